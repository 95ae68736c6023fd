"""Tallies: sums over calls are the figures of all numbers at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from nacre.compiler.comparison.tally import Tally

RNG = np.random.default_rng(1)


def tally(actual: Any, expected: Any, *cuts: int) -> Tally:
    made = Tally()
    for a, e in zip(np.split(actual, cuts), np.split(expected, cuts), strict=True):
        made.add(a, e, len(a))
    return made


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 9)])
def test_calls_add_up(cuts: tuple[int, ...]) -> None:
    expected = RNG.normal(size=(10, 4, 5)).astype("float32")
    actual = (expected + RNG.normal(size=expected.shape) * 1e-3).astype("float32")
    actual[4, 2] = expected[4, 2]
    figures = tally(actual, expected, *cuts).figures()
    a, e = actual.astype("float64"), expected.astype("float64")
    errors = np.abs(a - e)
    rows = [float((x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y)) for x, y in zip(a, e, strict=True)]
    found = (figures.rms_error, figures.error, figures.mean, figures.largest, figures.cosine, figures.least_cosine)
    rms = np.sqrt((e**2).mean())
    wanted = (
        np.sqrt((errors**2).mean()) / rms,
        errors.max() / np.abs(e).max(),
        errors.mean(),
        errors.max(),
        np.mean(rows),
        np.min(rows),
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert figures.snr == pytest.approx(10 * np.log10((e**2).sum() / (errors**2).sum()))
    base = 2.0 ** math.floor(math.log2(rms))
    for power, count in figures.histogram.items():
        assert count == np.count_nonzero((errors >= base * 2.0 ** (power - 1)) & (errors < base * 2.0**power))
    assert sum(figures.histogram.values()) + figures.exact == figures.elements == 200 and figures.exact == 5
    assert figures.samples == 10


def test_a_tensor_without_an_axis_of_samples_is_one() -> None:
    made = Tally()
    made.add(np.ones((3, 2), "float32"), np.ones((3, 2), "float32"), 7)
    assert made.figures().samples == 1 and made.figures().snr == math.inf


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_nonfinite_values_on_one_side_are_infinite_errors(wrong: float) -> None:
    expected = np.array([[1, wrong], [3, 4]], "float32")
    same = tally(expected, expected).figures()
    assert (same.error, same.cosine, same.exact) == (0, 1, 4)
    figures = tally(np.array([[1, 2], [3, 4]], "float32"), expected).figures()
    assert (figures.error, figures.snr, figures.cosine, figures.least_cosine) == (math.inf, -math.inf, 0.5, 0)


def test_zero_and_small_numbers_have_an_angle() -> None:
    zeros, tiny = np.zeros((1, 3), "float64"), np.full((1, 3), 1e-200)
    assert tally(zeros, zeros).figures().cosine == 1
    assert tally(zeros, tiny).figures().cosine == 0
    assert tally(tiny * 2, tiny).figures().cosine == pytest.approx(1)


def test_dtypes_may_differ() -> None:
    expected = np.array([[0.5, 1.0]], "float32")
    assert tally(expected.astype("float16"), expected).figures().exact == 2
    assert tally(np.array([[3, 4]], "int8"), np.array([[3, 6]], "int8")).figures().largest == 2
