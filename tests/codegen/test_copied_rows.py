"""Products with columns that no pass packs: a panel is copied in calls of many rows, and read in place in others."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.codegen.tiler.copied import FEWEST_ROWS

TEXT = """language 1
dim T in {least}..300
model product(x: {dtype}[T, {steps}], w: {dtype}[{steps}, 29]) -> {dtype}[T, 29] {{ return x @ w }}
"""
DTYPES = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
STEPS = (33, 5000)
"""Sums with whole panels, and with panels of several stretches."""


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_of_a_row_do_not_depend_on_the_number_of_rows(dtype: str, steps: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((300, steps), (steps, 29)))
    path = tmp_path / "model.so"
    nacre.compile(TEXT.format(dtype=dtype, steps=steps, least=0), path)
    one, two = (nacre.load(path, threads=threads) for threads in (1, 2))
    whole = np.asarray(one(x, w))
    exact, step = x.astype(np.float64) @ w.astype(np.float64), float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    summed = np.finfo(np.float64 if dtype == "f64" else np.float32).eps
    bound = steps * summed * (np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64))) + step * np.abs(exact)
    assert (np.abs(whole.astype(np.float64) - exact) <= bound).all()
    for rows in (0, 1, 2, 5, FEWEST_ROWS - 1, FEWEST_ROWS, FEWEST_ROWS + 3, 300):
        for model in (one, two):
            assert np.array_equal(np.asarray(model(x[:rows], w)), whole[:rows]), rows


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_schedules(dtype: str) -> None:
    assert schedules(TEXT.format(dtype=dtype, steps=64, least=1)) == [("copied tile",)]
    few = TEXT.replace("300", str(FEWEST_ROWS - 1))
    assert schedules(few.format(dtype=dtype, steps=64, least=1)) == [("tile",)]
