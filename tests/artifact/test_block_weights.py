"""Weights in blocks, in artifacts of every level: the numbers of the interpreter, and the bytes that blocks promise."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest

MODEL = """
dim T in 0..20

block Linear<inputs, outputs, dtype>(x: f32[..., inputs]) -> f32[..., outputs] {{
  param weight: dtype[outputs, inputs]
  param bias: f32[outputs]
  return x @ dequantize(weight).T + bias
}}

model run(x: f32[2, T, 128], ids: i64[T]) -> y: f32[2, T, 40], rows: f32[T, 128], again: f32[2, T, 128] {{
  use first = Linear<128, 384, {first}>
  use second = Linear<384, 40, {second}>
  param table: {table}[301, 128]
  h = gelu(first(x)) * 0.5
  return second(h), embedding(dequantize(table), ids), dequantize(quantize_blocks(x, {table}))
}}
"""
SHAPES = {
    "first.weight": (384, 128),
    "first.bias": (384,),
    "second.weight": (40, 384),
    "second.bias": (40,),
    "table": (301, 128),
}
BYTES = {
    "q8[block 32]": 34 / 32,
    "q4[block 32]": 18 / 32,
    "q8[block 128, zero]": 131 / 128,
    "q4[block 16, zero]": 11 / 16,
}
LEVELS = [{"opt_level": 0}, {"opt_level": 1}, {}, {"strict": True}, {"target": "x86-64-v3"}]


@pytest.mark.parametrize("types", [tuple(BYTES)[:2] * 2, tuple(BYTES)[2:] * 2], ids=["symmetric", "zero"])
def test_artifacts_agree_with_the_interpreter(types: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    text = MODEL.format(first=types[0], second=types[1], table=types[3])
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    np.savez(tmp_path / "w.npz", **arrays)
    graph = nacre.graph.read(text, weights=tmp_path / "w.npz")
    ids = np.array([0, 300, 7, 7, 150])
    calls = [(rng.standard_normal((2, rows, 128)).astype(np.float32), ids[:rows]) for rows in (1, 5)]
    expected = [graph.run(*call) for call in calls]
    for number, options in enumerate(LEVELS):
        model = nacre.compile(text, tmp_path / f"{number}.so", weights=tmp_path / "w.npz", **options)
        for call, results in zip(calls, expected, strict=True):
            for name, actual, wanted in zip(("y", "rows", "again"), model(*call), results, strict=True):
                # Sums of at most 384 products in another order; values are quantized by divisions, which may be
                # rounded otherwise, and then are one step off.
                scale = np.abs(wanted).max()
                allowed = {"y": 40 * 2.0**-24 * scale, "rows": 0.0, "again": 0.15 * scale}[name]
                assert np.abs(actual - wanted).max() <= allowed, (options, name)
                assert name != "again" or np.median(np.abs(actual - wanted)) == 0


def test_weights_take_the_bytes_of_their_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    np.savez(tmp_path / "w.npz", **arrays)
    for dtype, each in BYTES.items():
        text = MODEL.format(first=dtype, second=dtype, table=dtype)
        model = nacre.compile(text, tmp_path / "m.so", weights=tmp_path / "w.npz")
        elements = sum(array.size for array in arrays.values() if array.ndim == 2)
        biases = sum(array.nbytes for array in arrays.values() if array.ndim == 1)
        total = model.describe()["weights"]["bytes"]
        assert total == pytest.approx(elements * each + biases, rel=0.05), dtype  # panels are filled up


def test_weights_of_bytes_with_a_scale_for_each_row(tmp_path: Path) -> None:
    text = """
    dim T in 1..20
    model run(x: f32[T, 100]) -> f32[T, 40] {
      param weight: f32[40, 100]
      scale = max(abs(weight), axis=1, keepdims=true) / 127
      return x @ dequantize(quantize(weight, scale, dtype=i8), scale).T
    }
    """
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "w.npz", weight=rng.standard_normal((40, 100)).astype(np.float32))
    x = rng.standard_normal((7, 100)).astype(np.float32)
    expected = nacre.graph.read(text, weights=tmp_path / "w.npz").run(x)
    for number, options in enumerate(LEVELS):
        model = nacre.compile(text, tmp_path / f"{number}.so", weights=tmp_path / "w.npz", **options)
        # Sums of 100 products in another order.
        assert np.abs(model(x) - expected).max() <= 20 * 2.0**-24 * np.abs(expected).max(), options
    assert model.describe()["weights"]["bytes"] < 1.3 * 48 * (100 + 4)
