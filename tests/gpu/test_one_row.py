"""Products whose number of rows is that of a call: one launch computes calls with one row, another one the others."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets

SOURCE = """language 1
dim B in 0..2
dim T in 0..64
model rows(x: f32[B, T, 260], w: f32[260, 1032], b: f32[1032]) -> f32[B, T, 1032] { return relu(x @ w + b) }
model turned(x: f16[T, 520], w: f16[1032, 520], y: f16[T, 1032]) -> f16[T, 1032] { return x @ w.T + y }
model half(x: bf16[T, 512], w: bf16[512, 1032]) -> bf16[T, 1032] { return x @ w }
model small(x: f16[T, 512], w: f16[512, 512]) -> f16[T, 512] { return x @ w }
model packed(x: f32[T, 1024]) -> f32[T, 2080] {
  param weight: f32[2080, 1024] = 0.5
  return x @ weight.T
}
"""
FEW, WARP = "few rows of 256 threads", "row per warp of 256 threads"
ONE = {"rows": FEW, "turned": WARP, "half": FEW, "packed": WARP}
"""The schedules of calls with one row. The product with a small matrix has one launch for all calls."""
TOLERANCES = {"rows": 1e-6, "turned": 1e-3, "half": 8e-3, "packed": 1e-2}
"""The greatest error as a share of the greatest result, by the precision of the results, or of the activations."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("rows") / "model.so"
    rules = 'quantize packed { weights "*" to q4[block 32]\nactivations "*" to bf16 }\n'
    build = Build(in_precision(read_model(SOURCE), rules), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_schedules(built: tuple[Build, Path], assembled: Path) -> None:
    for name in ("rows", "turned", "half", "small", "packed"):
        product = [each for each in schedules_of(built[0], name) if not each.startswith("vectors")]
        assert len(product) == (2 if name in ONE else 1), (name, product)
        assert name not in ONE or product[0].startswith(ONE[name]), (name, product)
    check_assembly(built[1], assembled, "sm_80", "sm_90")


def test_profile_tells_that_calls_choose_launches(
    built: tuple[Build, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", str(built[1]), "--model", "a100", "--entry", "half"]) == 0
    assert "in at most 2 launches" in capsys.readouterr().out


def arrays_of(name: str, batch: int, rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "rows": [(batch, rows, 260), (260, 1032), (1032,)],
        "turned": [(rows, 520), (1032, 520), (rows, 1032)],
        "half": [(rows, 512), (512, 1032)],
        "packed": [(rows, 1024)],
    }
    dtype = {"turned": np.float16, "half": ml_dtypes.bfloat16}.get(name, np.float32)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes[name]]


def reference(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    x, *others = (array.astype(np.float64) for array in arrays)
    if name == "rows":
        return np.maximum(x @ others[0] + others[1], 0)
    if name == "turned":
        return np.asarray(x @ others[0].T + others[1])
    return np.asarray(x @ (np.full((1024, 2080), 0.5) if name == "packed" else others[0]))


@pytest.mark.parametrize("name", ONE)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    """Each call has one launch of the product, and that for one row has as many blocks as parts of a row."""
    model = nacre.load(built[1], device="cuda").entries[name]
    for batch, rows in ((1, 0), (1, 1), (2, 1), (1, 2), (2, 33)) if name == "rows" else ((1, 0), (1, 1), (1, 3)):
        arrays, before = arrays_of(name, batch, rows), machine.launches
        result = np.asarray(model(*arrays)).astype(np.float64)
        assert not machine.error
        expected = reference(name, arrays)
        assert np.max(np.abs(result - expected), initial=0) <= TOLERANCES[name] * np.max(np.abs(expected), initial=1)
        assert machine.launches - before == (rows > 0) * (2 if name == "packed" else 1)
        if batch * rows == 1:
            # A block has 8 vectors of 16 bytes, or 8 columns with a warp each.
            assert machine.blocks == {"rows": 33, "turned": 129, "half": 17, "packed": 260}[name]
