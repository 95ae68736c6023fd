"""Running sums of few long rows on a GPU are computed in parts."""

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
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.dtypes import DTYPES
from nacre.passes.layout.split_scans import SplitScans

SOURCE = """language 1
dim B in 0..3
model rows(x: f32[B, 1200]) -> f32[B, 1200] { return cumsum(x, axis=1) }
model before(x: f64[B, 300, 3]) -> f64[B, 300, 3] { return cumsum(x, axis=1, exclusive=true) }
model back(x: f16[B, 1155]) -> f16[B, 1155] { return cumsum(x, axis=-1, reverse=true) }
model both(x: i32[600, B]) -> i32[600, B] { return cumsum(x, axis=0, exclusive=true, reverse=true) }
model short(x: f32[B, 255]) -> f32[B, 255] { return cumsum(x, axis=1) }
model prime(x: f32[B, 1201]) -> f32[B, 1201] { return cumsum(x, axis=1) }
"""
AXES = {"rows": 1, "before": 1, "back": 1, "both": 0, "short": 1, "prime": 1}
TOLERANCES = {"f16": 2**-11, "f32": 1e-6, "f64": 1e-15, "i32": 0}
"""The rounding of a result, relative to the sum of the magnitudes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("scans") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_scans_are_split(built: tuple[Build, Path], assembled: Path) -> None:
    assert built[0].program is not None
    kernels = {f.name: len(f.calls) for f in built[0].program.lowered.functions}
    assert {name for name, count in kernels.items() if count == 1} == {"short", "prime"}, kernels
    check_assembly(built[1], assembled, "sm_80")


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("name", AXES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str, batch: int) -> None:
    model = nacre.load(built[1], device="cuda")
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    (argument,) = entry["arguments"]
    shape, dtype = [batch if n == "B" else n for n in argument["shape"]], argument["dtype"]
    rng = np.random.default_rng(batch)
    x = rng.integers(-99, 99, size=shape) if dtype == "i32" else rng.normal(0.1, 1, size=shape)
    x = x.astype(DTYPES[dtype].numpy)
    result = np.asarray(model.entries[name](x))
    assert not machine.error
    axis = AXES[name]
    wide = np.moveaxis(x.astype(np.int64 if dtype == "i32" else np.float64), axis, 0)
    wide = wide[::-1] if name in ("back", "both") else wide
    sums, magnitudes = np.cumsum(wide, 0), np.cumsum(np.abs(wide), 0)
    if name in ("before", "both"):
        sums = sums - wide
    sums, magnitudes = ((a[::-1] if name in ("back", "both") else a) for a in (sums, magnitudes))
    expected, scale = np.moveaxis(sums, 0, axis), np.moveaxis(magnitudes, 0, axis)
    assert np.all(np.abs(result.astype(expected.dtype) - expected) <= TOLERANCES[dtype] * scale + 1e-300)


def test_parts() -> None:
    rule = SplitScans()
    assert [rule.parts_of(4, n) for n in (0, 1, 255, 256, 1201, 100_000)] == [1, 1, 1, 16, 1, 250]
    assert rule.parts_of(4096, 100_000) == 1 and rule.parts_of(float("inf"), 100_000) == 1
