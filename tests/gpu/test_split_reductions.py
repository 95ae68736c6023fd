"""Long reductions with few results on a GPU: many blocks take part, and the same bits come back from every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from nacre.passes.layout.split_reductions import SplitReductions

SOURCE = """language 1
dim B in 0..3
model whole(x: f32[144, 64]) -> f32[] { return sum(x) }
model rows(x: f16[B, 8200]) -> f16[B, 1] { return mean(x, axis=1, keepdims=true) }
model columns(x: bf16[4290, 3]) -> bf16[3] { return sum(x, axis=0) }
model doubles(x: f64[B, 2, 8800]) -> f64[B, 2] { return max(x * 2.0, axis=2) }
model bytes(x: i8[B, 520, 2]) -> i8[B, 2] { return sum(x, axis=1) }
model least(x: i32[585, 5]) -> i32[5] { return min(x, axis=0) }
model logic(x: bool[B, 8192]) -> bool[B] { return any(x, axis=1) }
model short(x: f32[7168]) -> f32[] { return sum(x) }
model undivided(x: f32[8209]) -> f32[] { return sum(x) }
model remainder(x: f16[B, 521, 3]) -> f16[B, 3] { return prod(x, axis=1) }
model place(x: f32[B, 8193]) -> i64[B] { return argmax(x, axis=1) }
model lowest(x: i8[600, 3]) -> i64[1, 3] { return argmin(x, axis=0, keepdims=true) }
model spread(x: f32[B, 32777]) -> f32[B] { return variance(x, axis=1) }
model shares(x: f16[B, 32768]) -> f16[B, 32768] { return softmax(x) }
model normed(x: f32[B, 16384]) -> f32[B, 16384] { return layer_norm(x) }
"""
TOLERANCES = {"f16": 2**-11, "bf16": 2**-8, "f32": 1e-6}
"""The rounding of a result, relative to the sum of the magnitudes."""
UNSPLIT = ("short", "normed")
"""Less than 8 times 1024 elements, and rows whose definition takes longer than they do."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("split") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_reductions_are_split(built: tuple[Build, Path]) -> None:
    assert built[0].program is not None
    kernels = {f.name: len(f.calls) for f in built[0].program.lowered.functions}
    assert {name for name, count in kernels.items() if count < 2} == set(UNSPLIT), kernels


def _expected(name: str, x: np.ndarray) -> np.ndarray:
    if name in ("whole", "short", "undivided"):
        return np.asarray(np.sum(x.astype(np.float64)))
    if name == "rows":
        return np.asarray(np.mean(x.astype(np.float64), axis=1, keepdims=True))
    if name == "columns":
        return np.asarray(np.sum(x.astype(np.float64), axis=0))
    if name == "bytes":
        return np.sum(x, axis=1, dtype=np.int8)
    wide = x.astype(np.float64)
    if name == "shares":
        powers = np.exp(wide - wide.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))
    if name == "normed":
        centred = wide - wide.mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5))
    others: Mapping[str, Callable[[], Any]] = {
        "remainder": lambda: np.prod(wide, axis=1),
        "place": lambda: np.argmax(x, axis=1),
        "lowest": lambda: np.argmin(x, axis=0, keepdims=True),
        "spread": lambda: np.var(wide, axis=1),
    }
    if name in others:
        return np.asarray(others[name]())
    return {"doubles": lambda: np.max(x * 2, axis=2), "least": lambda: np.min(x, axis=0)}.get(
        name, lambda: np.any(x, axis=1)
    )()


@pytest.mark.parametrize("name", [line.split("(")[0][6:] for line in SOURCE.splitlines() if line[:5] == "model"])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str, batch: int) -> None:
    model = nacre.load(built[1], device="cuda")
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    (argument,) = entry["arguments"]
    shape, dtype = [batch if n == "B" else n for n in argument["shape"]], argument["dtype"]
    if "B" not in argument["shape"] and batch != 1:
        return
    rng = np.random.default_rng(batch)
    x = (
        rng.normal(1.0 if name == "remainder" else 0.5, 0.02 if name == "remainder" else 1, size=shape)
        if dtype[0] in "fb"
        else rng.integers(-99, 99, size=shape)
    )
    x = x < -2.5 if dtype == "bool" else x
    x = x.astype(DTYPES[dtype].numpy)
    first, again = (np.asarray(model.entries[name](x)) for _ in range(2))
    assert not machine.error
    assert first.tobytes() == again.tobytes()
    expected = _expected(name, x)
    assert first.shape == expected.shape
    if dtype not in TOLERANCES or expected.dtype == np.int64:
        np.testing.assert_array_equal(first, expected)
    else:
        rtol, atol = TOLERANCES[dtype], 2e-6 if name == "normed" else 2**-24 if name == "shares" else 0
        np.testing.assert_allclose(first.astype(np.float64), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *(("doubles", (1, 1, 1100)), ("rows", (2, 1024)), ("whole", (47, 63)), ("undivided", (8208,))),
        *(("place", (1, 8192)), ("place", (0, 5000)), ("spread", (2, 32776))),
    ],
)
def test_values_that_are_not_finite(
    machine: Machine, built: tuple[Build, Path], name: str, place: Sequence[int]
) -> None:
    model = nacre.load(built[1], device="cuda")
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    (argument,) = entry["arguments"]
    x = np.ones([3 if n == "B" else n for n in argument["shape"]], DTYPES[argument["dtype"]].numpy)
    for value in (np.nan, np.inf, -np.inf):
        x[tuple(place)] = value
        result = np.asarray(model.entries[name](x))
        assert not machine.error
        np.testing.assert_array_equal(result, _expected(name, x).astype(result.dtype))


@pytest.mark.parametrize(
    ("before", "length", "after", "parts"),
    [
        (1, 4096 * 4096, 1, 1024),
        (4, 128000, 1, 125),
        (1, 8192, 1, 8),
        (1, 8191, 1, 1),
        (1, 8209, 1, 8),
        (1, 32001, 1, 31),
        (1, 50257, 1, 29),
        (66, 8192, 1, 8),
        (76, 8192, 1, 1),
        (528, 4096, 1, 1),
        (1, 65536, 64, 1024),
        (1, 1024, 64, 16),
        (1, 512, 4, 8),
        (1, 511, 4, 1),
        (1, 4096, 528 * 256, 1),
        (0, 8192, 1, 8),
    ],
)
def test_parts(before: int, length: int, after: int, parts: int) -> None:
    assert SplitReductions().parts_of(before, length, after) == parts


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80")


def test_elementwise_nodes_after_columns_join_their_launch(machine: Machine, tmp_path: Path) -> None:
    text = """language 1
    dim B in 0..9
    model m(x: f32[B, 40, 67], b: f16[67]) -> f16[40, 67] { return relu(cast(sum(exp(x), axis=0) * 2.0, f16) + b) }
    """
    nacre.compile(text, tmp_path / "model.so", target="cuda:sm_80")
    model = nacre.load(tmp_path / "model.so", device="cuda")
    rng = np.random.default_rng(2)
    for batch in (0, 1, 9):
        x, b = rng.normal(size=(batch, 40, 67)).astype(np.float32), rng.normal(size=67).astype(np.float16)
        before = machine.launches
        y = np.asarray(model(x, b)).astype(np.float64)
        assert machine.launches == before + 1 and not machine.error
        expected = np.maximum(2 * np.exp(x.astype(np.float64)).sum(axis=0) + b, 0)
        assert np.max(np.abs(y - expected)) <= 2**-9 * max(np.max(expected), 1.0), batch
