"""What the default level may round differently within a kernel, and that strict code does not."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np

ROWS = """language 1
model f(x: f32[5, 40]) -> f32[5, 40] { return x / max(abs(x), axis=-1, keepdims=true) }
"""


def test_divisions_by_a_number_of_the_row(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    # Divisors whose reciprocal is infinite, denormal, or no number.
    x[1] *= np.float32(2.0**-140)
    x[2] *= np.float32(2.0**126)
    x[3, 7], x[4] = np.nan, 0
    with np.errstate(invalid="ignore"):
        exact = x / np.abs(x).max(axis=1, keepdims=True)
    strict = nacre.compile(ROWS, tmp_path / "strict.so", strict=True)(x)
    assert np.array_equal(strict, exact, equal_nan=True)
    default = nacre.compile(ROWS, tmp_path / "default.so")(x)
    assert np.array_equal(np.isnan(default), np.isnan(exact))
    # A reciprocal and a product, each rounded once, instead of one division.
    assert np.allclose(default, exact, rtol=1.5 * np.finfo(np.float32).eps, atol=0, equal_nan=True)
    assert np.array_equal(default[1:3], exact[1:3]), "extreme divisors are divided by"
