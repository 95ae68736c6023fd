"""Measures the differences of arrays: the largest and mean absolute error, and distances in units in the last place.

This module judges no difference: its significance depends on the computation, see `judge.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array, dtype_of

Numbers = npt.NDArray[np.float64]
"""The dtype of errors."""
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Errors:
    """The differences of an array from another of its shape and dtype.

    `largest` and `mean` are absolute errors, infinite if one element is NaN or infinite and the other differs; `ulps`
    is the largest distance in units in the last place, 0 for dtypes other than floats; `index` is that of
    `largest`, () in an empty array; `different` of `size` elements are not equal.
    """

    largest: float
    mean: float
    ulps: float
    index: tuple[int, ...]
    different: int
    size: int


def measure_errors(actual: Array, expected: Array) -> Errors:
    """Compares two arrays of the same shape and dtype."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    if actual.size == 0:
        return Errors(0.0, 0.0, 0.0, (), 0, 0)
    apart = absolute_errors(actual, expected)
    index = np.unravel_index(int(apart.argmax()), apart.shape)
    ulps = float(ulp_distances(actual, expected).max()) if dtype_of(actual).is_float else 0.0
    different = int(np.count_nonzero(apart))
    return Errors(float(apart.max()), float(apart.mean()), ulps, tuple(int(i) for i in index), different, actual.size)


def absolute_errors(actual: Array, expected: Array) -> Numbers:
    """Returns the absolute difference of each element; 0 for equal ones and for NaN in both, infinite for NaN in one.

    Floats may have different dtypes; integers must have the same, and are exact up to float64 precision.
    """
    if not dtype_of(actual).is_float:
        if actual.dtype == np.bool_:
            return np.asarray(actual != expected).astype(np.float64)
        # Differences of integers wrap around; interpreted as unsigned, they are correct.
        wide = np.uint64 if dtype_of(actual).kind.value == "unsigned" else np.int64
        a, e = actual.astype(wide), expected.astype(wide)
        high, low = np.maximum(a, e).astype(np.uint64), np.minimum(a, e).astype(np.uint64)
        # A difference of scalars, unlike one of arrays, warns when it wraps.
        with np.errstate(over="ignore"):
            return np.asarray(high - low).astype(np.float64)
    x, y = actual.astype(np.float64, copy=False), expected.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        apart = np.asarray(np.abs(x - y))
    if np.isfinite(apart).all():
        return apart
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    apart = np.where(same, 0.0, apart)
    return np.where(np.isnan(apart), np.inf, apart)


def same_bits(x: Array, y: Array) -> bool:
    """Returns whether two arrays are bitwise equal, with all NaNs equal: which NaN an operation returns, and with which
    sign, depends on the CPU and on the operand order that a compiler chooses."""
    if x.dtype.kind in "biu":
        return np.array_equal(x, y)
    nan = np.isnan(x)
    return np.array_equal(nan, np.isnan(y)) and x[~nan].tobytes() == y[~nan].tobytes()


def ulp_distances(actual: Array, expected: Array) -> Numbers:
    """Returns the number of floats of their dtype between each pair of elements; 0 for zeros of either sign and for NaN
    in both, infinite for NaN in one."""
    x, y = _ordered(actual), _ordered(expected)
    nan = np.isnan(actual.astype(np.float64)), np.isnan(expected.astype(np.float64))
    # For opposite signs the distance may exceed exact float64 integers; an approximation suffices.
    apart = np.where((x < 0) == (y < 0), np.abs(x - y).astype(np.float64), np.abs(x * 1.0 - y * 1.0))
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, apart))


def _ordered(array: Array) -> npt.NDArray[np.int64]:
    """Maps floats to integers of the same order; adjacent floats map to adjacent integers."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    width = array.dtype.itemsize
    bits = array.reshape(-1).view(_UNSIGNED[width]).reshape(array.shape).astype(np.uint64)
    magnitude = (bits & np.uint64((1 << (8 * width - 1)) - 1)).astype(np.int64)
    return np.where(bits >> np.uint64(8 * width - 1) != 0, -magnitude, magnitude)
