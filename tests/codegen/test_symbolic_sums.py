"""Products x.T @ y and gradients of convolutions' weights, whose sums have as many steps as a call has rows or images:
operands are copied in calls of many steps, and read in place in others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.codegen.tiler import blocked, copied
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F16, F32, F64, Array, DType

PRODUCTS = """language 1
dim K in {least}..400
dim T in 0..200
model blocks(x: {dtype}[K, 64], y: {dtype}[K, 48]) -> {dtype}[64, 48] {{ return einsum("km,kn->mn", x, y) }}
model relus(x: {dtype}[K, 64], y: {dtype}[K, 48]) -> {dtype}[64, 48] {{ return relu(einsum("km,kn->mn", x, y)) }}
model odd(x: {dtype}[K, 70], y: {dtype}[K, 29]) -> {dtype}[70, 29] {{ return einsum("km,kn->mn", x, y) }}
model rows(x: {dtype}[K, T], y: {dtype}[K, 29]) -> {dtype}[T, 29] {{ return einsum("km,kn->mn", x, y) }}
model few(x: {dtype}[K, 5], y: {dtype}[K, 29]) -> {dtype}[5, 29] {{ return einsum("km,kn->mn", x, y) }}
"""
STEPS = (0, 1, 3, copied.FEWEST_STEPS - 1, copied.FEWEST_STEPS, *(blocked.FEWEST_STEPS + n for n in (-1, 0, 1)), 400)
WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": ((40, 64), (20, 48), {"kernel": (3,), "padding": 1, "stride": 2}),
    "2d": ((9, 13, 64), (9, 13, 48), {"kernel": (3, 3), "padding": 1}),
    "dilated": ((13, 9, 64), (5, 5, 48), {"kernel": (3, 3), "padding": ((0, 0), (2, 2)), "stride": 2, "dilation": 2}),
    "1x1": ((12, 12, 64), (12, 12, 48), {"kernel": (1, 1)}),
    "groups": ((9, 9, 128), (7, 7, 96), {"kernel": (3, 3), "groups": 2}),
    "3d": ((5, 6, 7, 64), (4, 5, 6, 24), {"kernel": (2, 2, 2)}),
    "odd channels": ((9, 9, 70), (9, 9, 29), {"kernel": (3, 3), "padding": 1}),
}
"""The sizes of images and of gradients of their convolution, channels last, and the attributes of the gradient."""


def whole_numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers whose products have exact sums in any order."""
    return random.integers(-2, 3, shape).astype(dtype.numpy)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_products(dtype: DType, threads: int, tmp_path: Path) -> None:
    model = nacre.compile(PRODUCTS.format(dtype=dtype, least=0), tmp_path / "model.so", threads=threads)
    random = np.random.default_rng(0)
    for steps in STEPS:
        for name, rows, columns in (
            *((name, 64, 48) for name in ("blocks", "relus")),
            *(("odd", 70, 29), ("few", 5, 29)),
            *(("rows", size, 29) for size in (0, 1, copied.FEWEST_ROWS - 1, copied.FEWEST_ROWS, 200)),
        ):
            x, y = (whole_numbers(random, (steps, size), dtype) for size in (rows, columns))
            exact = x.astype(np.int64).T @ y.astype(np.int64)
            expected = (np.maximum(exact, 0) if name == "relus" else exact).astype(dtype.numpy)
            found = np.asarray(model.entries[name](x, y))
            assert np.array_equal(found, expected), (name, steps, rows)


@pytest.mark.parametrize("name", WINDOWS)
def test_weights_of_convolutions(name: str, tmp_path: Path) -> None:
    image, gradient, attributes = WINDOWS[name]
    types = [f"f32[B, {', '.join(map(str, sizes))}]" for sizes in (image, gradient)]
    shape = (*attributes["kernel"], image[-1] // attributes.get("groups", 1), gradient[-1])
    listed = ", ".join(f"{key}={value}" for key, value in attributes.items())
    text = f"""language 1
    dim B in 0..5
    model m(x: {types[0]}, g: {types[1]}) -> f32[{", ".join(map(str, shape))}] {{
      return conv_weight_gradient(x, g, layout="channels_last", {listed})
    }}"""
    model, random = nacre.compile(text, tmp_path / "model.so"), np.random.default_rng(1)
    given = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "channels_last"} | attributes
    for images in (0, 1, 2, 5):
        x, g = (whole_numbers(random, (images, *sizes), F32) for sizes in (image, gradient))
        expected = OPERATORS["conv_weight_gradient"].reference(x.astype(np.float64), g.astype(np.float64), **given)
        assert np.array_equal(np.asarray(model(x, g)), expected.astype(np.float32)), images


def test_schedules() -> None:
    text = PRODUCTS.format(dtype="f32", least=1)
    assert schedules(text) == sorted([("blocked tile",)] * 2 + [("copied tile",)] * 2 + [("tile",)])
    few = text.replace("400", str(copied.FEWEST_STEPS - 1))
    assert schedules(few) == [("tile",)] * 5
    window = """language 1
    dim B in 1..4
    model m(x: f32[B, 12, 12, 64], g: f32[B, 12, 12, 48]) -> f32[3, 3, 64, 48] {
      return conv_weight_gradient(x, g, kernel=(3, 3), padding=1, layout="channels_last")
    }"""
    assert any("blocked tile" in parts for parts in schedules(window))
