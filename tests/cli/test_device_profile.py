"""`nacre profile --model` and `nacre inspect` describe the code for a GPU that is not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.tools.profile.device_code import read_code

MODEL = """language 1
dim B in 1..64
model m(x: f16[B, 64], w: f16[64, 32]) -> f16[B, 32] { return relu(x @ w) }
"""
PTX = """
.shared .align 16 .b8 tiles[512];
.shared .align 16 .b8 others[512];
.visible .entry k(
\t.param .u64 k_param_0
)
.maxntid 64
{
\tmov.u64 %rd1, tiles;
\tld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd2];
\t@%p1 ld.global.b16 %rs1, [%rd2];
\tcp.async.cg.shared.global [%rd1], [%rd2], 16, %r1;
\tbar.sync 0;
\tst.global.v2.b32 [%rd3], {%r1, %r2};
\tret;
}
"""


@pytest.fixture
def device_so(cli: Cli, tmp_path: Path) -> Path:
    source, made = tmp_path / "m.nacre", tmp_path / "m.so"
    source.write_text(MODEL)
    done = cli("compile", source, "--target", "cuda", "-o", made)
    assert done.code == 0, done.err
    return made


def test_bound_is_that_of_the_data_sheet(cli: Cli, device_so: Path) -> None:
    done = cli("profile", device_so, "--model", "h100", "--at", "B=16", "--json")
    assert done.code == 0, done.err
    message, (kernel,) = done.json, done.json["kernels"]
    flops, size = 2 * 16 * 64 * 32, 2 * (16 * 64 + 64 * 32 + 16 * 32)
    assert (message["model"], message["entry"], message["dims"]) == ("h100", "m", {"B": 16})
    assert kernel["bytes"] == size and kernel["memory"] == pytest.approx(size / 3.35e12)
    assert kernel["compute"] == pytest.approx(flops / 989e12 + 16 * 32 / 66.9e12)
    assert message["seconds"] == kernel["seconds"] == kernel["memory"] and kernel["by"] == "memory"
    (code,) = kernel["code"]
    assert code["products"] > 0 and max(size for size, _ in code["reads"]) == 16


DECODED = """language 1
model m(x: bf16[128, 512]) -> bf16[128, 256] {
  param w: bf16[256, 512]
  return x @ w.T
}
"""
SEVERAL = """language 1
model m(x: f16[64, 512], w: f16[512, 256]) -> f16[64, 256] { return x @ w }
"""
SINGLE = """language 1
model m(x: f16[1, 512], w: f16[512, 256]) -> f16[1, 256] { return x @ w }
"""


@pytest.mark.parametrize(
    ("source", "precision", "factors", "rate"),
    [
        (DECODED, "int4", ["bf16"], 989e12),
        (SINGLE, "", [], 66.9e12),
        (SEVERAL.replace("f16", "f32"), "", [], 66.9e12),
        (SEVERAL.replace("f16", "f32"), "tf32", ["tf32"], 494e12),
        (SEVERAL.replace("f16", "f64"), "", [], 33.5e12),
    ],
)
def test_code_decides_the_rate_of_products(
    cli: Cli, tmp_path: Path, source: str, precision: str, factors: list[str], rate: float
) -> None:
    """Weights of 4 bits are multiplied in bf16, one row and f32 without tensor cores."""
    path = tmp_path / "m.nacre"
    path.write_text(source)
    np.savez(tmp_path / "w.npz", w=np.zeros((256, 512), np.float32))
    options = [
        *(["--precision", precision] if precision else []),
        *(["--checkpoint", tmp_path / "w.npz"] if "param" in source else []),
    ]
    done = cli("compile", path, "--target", "cuda", "-o", tmp_path / "m.so", *options)
    assert done.code == 0, done.err
    kernels = cli("profile", tmp_path / "m.so", "--model", "h100", "--json").json["kernels"]
    kernel = max(kernels, key=lambda kernel: kernel["flops"])
    assert [code["factors"] for code in kernel["code"] if code["factors"]] == ([factors] if factors else [])
    # Operations that are not products, such as the decoding of weights, have a rate of their own.
    assert kernel["compute"] == pytest.approx(kernel["flops"] / rate, rel=0.3)


def test_tables(cli: Cli, device_so: Path) -> None:
    done = cli("profile", device_so, "--model", "a100")
    assert done.code == 0 and "launches on a100" in done.out and "at B=64" in done.out and "\nin 1 launch;" in done.out
    assert "launches on a100" in cli("inspect", device_so).out
    assert len(cli("inspect", device_so, "--json").json["launches"]) == 1


def test_artifact_without_code_for_gpus(cli: Cli, double_so: Path) -> None:
    done = cli("profile", double_so, "--model", "h100")
    assert done.code == 2 and "has no code for GPUs" in done.err
    assert "launches" not in cli("inspect", double_so).out


def test_instructions_are_counted_by_their_bytes() -> None:
    (code,) = read_code(PTX)
    assert (code.name, code.threads, code.shared, code.barriers) == ("k", 64, 512, 1)
    assert code.reads == ((2, 1), (16, 2)) and code.writes == ((8, 1),)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [(256, 32, 0, 8), (256, 255, 0, 1), (128, 168, 0, 3), (128, 32, 100 << 10, 2), (32, 16, 0, 32)],
)
def test_blocks_at_once(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert CHIPS["h100"].blocks_at_once(threads, registers, shared) == blocks
