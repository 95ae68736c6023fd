"""Products of few results on a GPU: their sums are split among blocks, and the same bits come back from every call."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.targets.target import parse_targets
from nacre.passes.layout.split_model import BANDWIDTH, PROCESSORS, RATES, Product
from nacre.passes.layout.split_sums import SplitSums

SOURCE = """language 1
dim B in 0..60
model few(x: f16[3, 1, 2048], w: f16[2048, 136], b: f16[136]) -> f16[3, 1, 136] { return relu(x @ w + b) }
model tiles(x: f32[B, 1024], w: f32[1024, 67]) -> f32[B, 67] { return x @ w }
model bytes(x: i8[2, 1536], w: i8[1536, 48]) -> i32[2, 48] { return matmul(x, w, into=i32) }
model short(x: f32[B, 500], w: f32[500, 30]) -> f32[B, 30] { return x @ w }
"""
CONVOLUTION = """language 1
model image(x: f16[2, 256, 5, 4]) -> f16[2, 72, 3, 2] {
  param w: f16[72, 256, 3, 3]
  param b: f16[72]
  return relu(conv2d(x, w, b, padding=1, stride=2))
}
"""
TOLERANCES = {"few": 1e-3, "tiles": 2e-6, "bytes": 0.0, "short": 2e-6}
"""Results relative to the largest one; those of f16 are rounded, and once more after the bias."""
DTYPES = {"f16": np.float16, "f32": np.float32, "i8": np.int8}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("split") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


@pytest.mark.parametrize("name", TOLERANCES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    for batch in (0, 1, 7, 60):
        rng = np.random.default_rng(batch)
        shapes = [[batch if n == "B" else n for n in argument["shape"]] for argument in entry["arguments"]]
        dtypes = [DTYPES[argument["dtype"]] for argument in entry["arguments"]]
        scale = 50 if name == "bytes" else 1
        arrays = [(scale * rng.normal(size=s)).astype(d) for s, d in zip(shapes, dtypes, strict=True)]
        first, again = (np.asarray(model.entries[name](*arrays)) for _ in range(2))
        assert not machine.error
        x, w, *bias = (array.astype(np.float64) for array in arrays)
        expected = np.maximum(x @ w + bias[0], 0) if bias else x @ w
        largest = np.max(np.abs(expected), initial=1)
        assert np.max(np.abs(first - expected), initial=0) <= TOLERANCES[name] * largest, batch
        assert first.tobytes() == again.tobytes()


def test_sums_are_split(built: tuple[Build, Path]) -> None:
    assert built[0].program is not None
    kernels = [[call.symbol for call in f.calls] for f in built[0].program.lowered.functions]
    names = [[symbol.partition("_")[0] for symbol in each] for each in kernels]
    # The launch that adds the parts computes the bias and the activation too.
    assert names == [["einsum", "fusion"], ["einsum", "sum"], ["einsum", "sum"], ["matmul"]]


def test_the_choice_is_told(built: tuple[Build, Path]) -> None:
    (remark, *_) = (remark for remark in built[0].remarks if remark.pass_name == "split-sums")
    few = Product(3, 136, 2048, 2)
    before, after = (f"{1e6 * few.seconds(parts):.1f} µs" for parts in (1, 8))
    assert remark.text == f"adds 8 parts of each sum: {after} instead of {before} by a model of an H100"
    kernels = [kernel for entry in built[0].report() for kernel in entry.kernels]
    assert sum(remark.text in {each.reason for each in kernel.neighbours} for kernel in kernels) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "bytes", "parts"),
    [
        (8, 4096, 4096, 2, 4),
        (1, 4096, 4096, 2, 8),
        (1, 16384, 4096, 2, 2),
        (64, 512, 8192, 2, 16),
        (1, 512, 700, 4, 2),
        (4096, 4096, 4096, 2, 1),
        (1, 4096, 4096, 1, 16),
    ],
)
def test_parts(rows: int, columns: int, depth: int, bytes: int, parts: int) -> None:
    assert SplitSums().parts_of(Product(rows, columns, depth, bytes)) == parts


def test_figures_are_those_of_the_chip() -> None:
    """Passes cannot import the table of chips."""
    chip = CHIPS["h100"]
    assert (chip.processors, chip.bandwidth) == (PROCESSORS, BANDWIDTH)
    assert {1: chip.rate("i8"), 2: chip.rate("f16"), 4: chip.rate("f32")} == RATES


def test_time_of_a_product() -> None:
    """By hand: 64 blocks, each with 16 KiB in flight, reach a share of the bandwidth; 256 blocks reach all of it."""
    product = Product(8, 4096, 4096, 2)
    read = 2 * 4096 * (4096 + 8) / 3.35e12
    assert product.seconds(1) == pytest.approx(read * (3.35e12 * 0.8e-6) / (64 * 16384))
    assert product.seconds(4) == pytest.approx(read + 2e-6 + 8 * 4 * 8 * 4096 / 3.35e12)


@pytest.fixture(scope="module")
def convolution(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path, dict[str, np.ndarray]]:
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("convolution")
    weights = {"w": rng.normal(size=(72, 256, 3, 3)) / 48, "b": rng.normal(size=72)}
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    np.savez(folder / "weights.npz", **halves)  # type: ignore[arg-type]  # NumPy's own stub
    (folder / "model.nacre").write_text(CONVOLUTION)
    source = read_model(folder / "model.nacre", folder / "weights.npz")
    build = Build(source, Options(targets=parse_targets("cuda:sm_80")))
    build.run(folder / "model.so")
    return build, folder / "model.so", halves


def test_convolution(machine: Machine, convolution: tuple[Build, Path, dict[str, np.ndarray]]) -> None:
    """Twelve positions and 72 channels are two blocks, and eight parts of 288 terms each are sixteen."""
    build, path, weights = convolution
    assert build.program is not None
    kernels = [call.symbol.partition("_")[0] for call in build.program.lowered.functions[0].calls]
    assert kernels[kernels.index("conv2d") + 1 :] == ["fusion", "transpose"]
    x = np.random.default_rng(6).normal(size=(2, 256, 5, 4)).astype(np.float16)
    model = nacre.load(path, device="cuda")
    first, again = (np.asarray(model(x)) for _ in range(2))
    assert machine.launches and not machine.error
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    w = weights["w"].astype(np.float64)
    total = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + 5 : 2, j : j + 4 : 2], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    expected = np.maximum(total + weights["b"].astype(np.float64)[:, None, None], 0)
    assert np.max(np.abs(first - expected)) <= TOLERANCES["few"] * np.max(expected)
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize(
    ("positions", "columns", "channels", "window", "parts"),
    [
        (49, 512, 512, 9, 16),
        (196, 256, 256, 9, 8),
        (784, 128, 128, 9, 1),
        (49, 512, 2048, 1, 8),
        (49, 512, 1000, 9, 1),
        (3136, 64, 64, 9, 1),
    ],
)
def test_parts_of_convolution(positions: int, columns: int, channels: int, window: int, parts: int) -> None:
    """The first four are layers of ResNet-50 for one image."""
    assert SplitSums().parts_of_convolution(positions, columns, channels, window) == parts


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80")


def test_code_of_convolution_is_assembled(
    convolution: tuple[Build, Path, dict[str, np.ndarray]], assembled: Path
) -> None:
    check_assembly(convolution[1], assembled, "sm_80")
