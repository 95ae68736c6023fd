"""Rows in order on a GPU: counting and merging by many threads, with ties, NaN and every width of key."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.ops import OPERATORS

SOURCE = """language 1
dim N in 0..5000
dim B in 0..9
model sorted(x: f32[N]) -> f32[N] { return sort(x) }
model places(x: bf16[B, 130, 2]) -> i64[B, 130, 2] { return argsort(x, axis=1, descending=true) }
model bytes(x: u8[2, N]) -> u8[2, N] { return sort(x, descending=true) }
model long(x: i64[N]) -> i64[N] { return argsort(x) }
model best(x: f32[B, 1000]) -> v: f32[B, 3], p: i64[B, 3] { return top_k(x, k=3) }
model least(x: f64[2, N]) -> v: f64[2, min(70, N)], p: i64[2, min(70, N)] { return top_k(x, k=70, largest=false) }
"""
CASES: dict[str, tuple[str, dict[str, object], type[np.generic]]] = {
    "sorted": ("sort", {}, np.float32),
    "places": ("argsort", {"axis": 1, "descending": True}, ml_dtypes.bfloat16),
    "bytes": ("sort", {"descending": True}, np.uint8),
    "long": ("argsort", {}, np.int64),
    "best": ("top_k", {"k": 3}, np.float32),
    "least": ("top_k", {"k": 70, "largest": False}, np.float64),
}
"""The operator of each entry, its attributes, and the dtype of the rows."""
SIZES = (0, 1, 63, 65, 129, 700, 4097)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("order") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def make_rows(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Returns few different values, so that many are equal, and NaN, infinities and zeros of both signs."""
    rng = np.random.default_rng(sum(shape))
    values = rng.integers(-30, 30, shape).astype(dtype)
    if np.dtype(dtype).kind not in "iu":
        kinds = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0])
        values = np.where(rng.random(shape) < 0.2, kinds[rng.integers(0, 5, shape)], values).astype(dtype)
    return values


def differences(built: Path, name: str, size: int) -> list[str]:
    operator, given, dtype = CASES[name]
    model = nacre.load(built, device="cuda")
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    shape = tuple({"N": size, "B": size % 5}.get(n, n) for n in entry["arguments"][0]["shape"])
    x = make_rows(shape, dtype)
    results = model.entries[name](x)
    results = results if isinstance(results, tuple) else (results,)
    attributes = {a.name: given.get(a.name, a.default) for a in OPERATORS[operator].attributes}
    expected = OPERATORS[operator].reference(x, **attributes)
    expected = expected if isinstance(expected, tuple) else (expected,)
    pairs = zip(map(np.asarray, results), map(np.asarray, expected), strict=True)
    return [f"{a} {e}" for a, e in pairs if a.shape != e.shape or a.tobytes() != e.astype(a.dtype).tobytes()]


@pytest.mark.parametrize("name", CASES)
def test_order_is_that_of_the_reference(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    for size in SIZES:
        assert differences(built[1], name, size) == [], size
        assert not machine.error


def test_no_launch_is_a_sequence(built: tuple[Build, Path]) -> None:
    assert built[0].program is not None
    (kernels,) = built[0].program.kernels.values()
    schedules = [schedule for code in kernels.values() for schedule in code.report.schedules]
    assert schedules and not any("sequence" in schedule for schedule in schedules)


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80")


def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path]) -> None:
    """Where equal keys of the second run come first, the order is not stable."""
    machine.edit = lambda text: re.sub(r"setp\.gt\.s64", "setp.ge.s64", text)
    assert differences(built[1], "long", 700)
