"""Floats of 8 bits from a checkpoint to the results of calls, at both levels, against numpy with `ml_dtypes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.readers.language.format import format_source
from nacre.runtime.loader import Model
from safetensors.numpy import save_file

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
SOURCE = Path(__file__).with_name("float8.nacre")
Floats = npt.NDArray[Any]


def random(*shape: int, dtype: Any = np.float32, spread: float = 1.0) -> Floats:
    return (np.random.default_rng(shape).normal(size=shape) * spread).astype(dtype)


WEIGHTS = {
    "layer.weight": random(19, 37, dtype=E4M3, spread=50.0),
    "layer.scale": np.abs(random(19, 1)) + np.float32(0.01),
    "plain": random(37, 19, dtype=E5M2),
    # Stored in f32, and rounded as it is read: more than 448 becomes that.
    "shortened": np.concatenate([random(36, 6), np.full((1, 6), 1000, np.float32)]),
    "table": np.arange(256, dtype=np.uint8)[:99].reshape(11, 9).view(E4M3),
}


@pytest.fixture(scope="module", params=[0, 2])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("float8")
    save_file(WEIGHTS, folder / "weights.safetensors")
    text = SOURCE.read_text()
    assert format_source(text, SOURCE.name) == text
    checkpoint = folder / "weights.safetensors"
    return nacre.compile(SOURCE, folder / "float8.so", weights=checkpoint, opt_level=request.param)


def assert_same(actual: Floats, expected: Floats) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert np.array_equal(actual.astype(np.float64), expected.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("batch", [0, 1, 20])
def test_codes_are_moved(model: Model, batch: int) -> None:
    x, y = random(batch, 7, dtype=E4M3), random(batch, 7, dtype=E5M2)
    joined, stacked, sliced, truth = model.entries["moved"](x, y)
    assert_same(joined, np.concatenate([x, np.full((1, 7), 0.5, E4M3)]).T)
    assert_same(stacked, np.stack([y, np.where(y > 0, y, y.dtype.type(0))]))
    assert_same(sliced, x[:, 1:6:2])
    assert_same(truth, x != 0)


@pytest.mark.parametrize("batch", [0, 1, 19])
def test_numbers_are_converted(model: Model, batch: int) -> None:
    x, scale = random(batch, 5, spread=100.0), np.float32(0.3)
    x[:1] = [0.0, np.nan, np.inf, -1e30, 1.0625]
    codes, short, back, through = model.entries["converted"](x, scale)
    expected = np.clip(x * (np.float32(1) / scale), -448, 448).astype(E4M3)
    assert_same(codes, expected)
    assert_same(short, np.clip(x, -57344, 57344).astype(E5M2))
    assert_same(back, expected.astype(np.float32) * scale)
    assert_same(through, np.clip(x, -448, 448).astype(E4M3).astype(np.float16))


@pytest.mark.parametrize("batch", [0, 1, 5, 20])
def test_codes_are_multiplied(model: Model, batch: int) -> None:
    x, y = random(batch, 37), random(batch, 37, dtype=E5M2)
    w = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
    shortened = np.clip(WEIGHTS["shortened"], -448, 448).astype(E4M3).astype(np.float64)
    expected = (
        x @ (w["layer.weight"] * w["layer.scale"]).T,
        y.astype(np.float64) @ w["plain"],
        x @ shortened,
        x @ w["plain"],
    )
    for actual, exact in zip(model.entries["multiplied"](x, y), expected, strict=True):
        assert actual.dtype == np.float32 and actual.shape == exact.shape
        assert np.abs(actual - exact).max(initial=0) <= 8 * 2.0**-24 * np.sqrt(37) * np.abs(exact).max(initial=0)


def test_rows_of_a_table_are_read(model: Model) -> None:
    ids = np.asarray([3, 0, 10, 3])
    assert_same(model.entries["looked_up"](ids), WEIGHTS["table"][ids].astype(np.float32))


def test_weights_take_a_byte_each(model: Model) -> None:
    """But the plain one perhaps, which is read in two orders."""
    described = model.describe()["weights"]
    assert described["bytes"] < 6000, described


def test_arrays_of_other_floats_are_refused(model: Model) -> None:
    with pytest.raises(nacre.NacreError, match=r"argument `x`: expected f8e4m3\[B, 7\], got u8\[1, 7\]"):
        model.entries["moved"](np.zeros((1, 7), np.uint8), random(1, 7, dtype=E5M2))


POLICY = """
language 1

dim B in 0..20

model net(x: f32[B, 70], ids: i64[B]) -> f32[B, 33], f32[B, 5] {
  param first: f32[70, 130]
  param second: f32[130, 33]
  param table: f32[9, 5]
  return relu(x @ first) @ second, table[ids]
}
"""


def restored(weight: Floats, dtype: Any, axis: int) -> Floats:
    """What the policy makes of a weight, in float64 but for the codes."""
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    scale = np.maximum(np.abs(weight).max(axis=axis, keepdims=True), np.float32(2.0**-100)) / largest
    return (weight * (np.float32(1) / scale)).astype(dtype).astype(np.float64) * scale.astype(np.float64)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(("precision", "dtype"), [("f8", E4M3), ('quantize net { weights "*" to f8e5m2 }', E5M2)])
def test_a_policy_keeps_weights_in_them(tmp_path: Path, precision: str, dtype: Any, level: int) -> None:
    weights = {"first": random(70, 130), "second": random(130, 33), "table": random(9, 5)}
    weights["first"][:, 7] = 0
    save_file(weights, tmp_path / "net.safetensors")
    options: dict[str, Any] = {"weights": tmp_path / "net.safetensors", "precision": precision, "opt_level": level}
    model = nacre.compile(POLICY, tmp_path / "net.so", **options)
    first, second, table = (restored(w, dtype, axis) for w, axis in zip(weights.values(), (0, 0, 1), strict=True))
    for batch in (0, 1, 19):
        x, ids = random(batch, 70), np.arange(batch) % 9
        y, rows = model(x, ids)
        exact = np.maximum(x @ first, 0) @ second
        assert np.abs(y - exact).max(initial=0) <= 8 * 2.0**-24 * np.sqrt(130) * np.abs(exact).max(initial=0)
        assert np.abs(rows - table[ids]).max(initial=0) <= 2.0**-24 * np.abs(table).max()
    if level == 2:
        # A byte for each weight, and panels that are filled up.
        assert model.describe()["weights"]["bytes"] < 1.5 * (70 * 130 + 130 * 33)
