"""How far arrays are apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler.validate.array_errors import absolute_errors, measure_errors, same_bits, ulp_distances

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0),
        (np.array([np.inf]), np.array([np.inf]), 0),
        (np.array([np.inf]), np.array([-np.inf]), np.inf),
        (np.array([np.nan]), np.array([1.0]), np.inf),
        (np.array([1.0]), np.array([np.nan]), np.inf),
        (np.array([1.0, 2.5]), np.array([1.5, 2.0]), 0.5),
        (np.array([2**62]), np.array([2**62 - 1]), 1),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2.0**64),
        (np.array([255], np.uint8), np.array([0], np.uint8), 255),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 4], np.uint64), 3),
        (np.array([True]), np.array([False]), 1),
        (np.zeros((0, 2)), np.zeros((0, 2)), 0),
    ],
)
def test_largest_error(actual: np.ndarray, expected: np.ndarray, error: float) -> None:
    assert measure_errors(actual, expected).largest == error


@pytest.mark.parametrize("shape", [(), (1,)])
def test_integers_of_opposite_signs_are_far_apart(shape: tuple[int, ...]) -> None:
    largest, least = (np.full(shape, n, np.int64) for n in (2**63 - 1, -(2**63)))
    assert absolute_errors(largest, least) == absolute_errors(least, largest) == 2.0**64
    assert absolute_errors(np.full(shape, 3, np.int64), np.full(shape, -4, np.int64)) == 7


def test_errors_of_an_array() -> None:
    expected = np.ones((2, 3), np.float32)
    actual = expected.copy()
    actual[1, 2], actual[0, 1] = np.nextafter(np.float32(1), np.float32(2)), 3
    errors = measure_errors(actual, expected)
    assert (errors.largest, errors.index, errors.different, errors.size) == (2, (0, 1), 2, 6)
    assert errors.mean == pytest.approx(2 / 6)
    assert errors.ulps == 3 * 2**22  # from 1 to 2 there are 2**23 floats, from 2 to 3 half as many


@pytest.mark.parametrize("dtype", FLOATS)
def test_units_in_the_last_place(dtype: type) -> None:
    values = np.array([0.0, 1.0, -1.0, 3.5, np.inf], dtype)
    zero, inf, nan = (np.array([x], dtype) for x in (0, np.inf, np.nan))
    above = np.nextafter(values[:4], inf).astype(dtype)
    assert ulp_distances(values[:4], above).tolist() == [1, 1, 1, 1]
    assert ulp_distances(values, values).tolist() == [0] * 5
    assert ulp_distances(zero, -zero).tolist() == [0]
    assert ulp_distances(nan, nan).tolist() == [0]
    assert ulp_distances(nan, zero).tolist() == [np.inf]
    least = np.nextafter(zero, inf).astype(dtype)
    assert ulp_distances(least, -least).tolist() == [2]


def test_the_same_bits() -> None:
    x = np.array([1.0, np.nan, -0.0], np.float32)
    assert same_bits(x, x.copy()) and same_bits(x, np.array([1.0, -np.nan, -0.0], np.float32))
    assert not same_bits(x, np.array([1.0, np.nan, 0.0], np.float32))
    assert not same_bits(x, np.array([1.0, 2.0, -0.0], np.float32))
    assert same_bits(np.array([3, 4]), np.array([3, 4])) and not same_bits(np.array([3, 4]), np.array([3, 5]))
