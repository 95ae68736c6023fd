"""Reads the attributes of operators that move elements: sizes and tuples of integers, one or many.

Raises InferenceError for other arguments, so that a bad argument never becomes an internal error of the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dims import INFINITY, Poly, Shape, Size, at_least, bounds, symbols
from ...operator import InferenceError
from ...types import DType


def is_integer(value: Any) -> bool:
    """Returns whether the value is an integer that fits i64 with headroom for additions."""
    return isinstance(value, int) and not isinstance(value, bool) and -INFINITY <= value <= INFINITY


def is_size(value: Any) -> bool:
    return isinstance(value, Poly) or is_integer(value)


def bad_attribute(operator: str, name: str, value: Any, expected: str) -> InferenceError:
    return InferenceError("bad-attribute", f"`{name}` of `{operator}` is {value!r}, expected {expected}")


def read_size(operator: str, name: str, value: Any) -> Size:
    """Reads one non-negative size."""
    if not is_size(value) or bounds(value)[1] < 0:
        raise bad_attribute(operator, name, value, "a size")
    size: Size = value
    return size


def read_sizes(operator: str, name: str, value: Any, *, minus_one: bool = False) -> Shape:
    """Reads one size or a tuple of sizes. They are non-negative, except for -1 with `minus_one`."""
    values = value if isinstance(value, tuple) else (value,)
    for v in values:
        if not is_size(v) or (bounds(v)[1] < 0 and not (minus_one and v == -1)):
            raise bad_attribute(operator, name, value, "sizes")
    return values


def read_integers(operator: str, name: str, value: Any, length: int | None = None) -> tuple[int, ...]:
    """Reads one integer or a tuple of integers."""
    values = value if isinstance(value, tuple) else (value,)
    if not all(map(is_integer, values)):
        raise bad_attribute(operator, name, value, "integers")
    if length is not None and len(values) != length:
        raise bad_attribute(operator, name, value, f"{length} of them, one for each axis")
    return values


def _limits(dtype: DType) -> tuple[int, int]:
    if not dtype.is_integer:
        return 0, 1
    info = np.iinfo(dtype.numpy.name)
    return int(info.min), int(info.max)


def _is_held(value: float, dtype: DType) -> bool:
    """Returns whether a float does not exceed the greatest number of a dtype without infinities."""
    format = dtype.float_format
    return not format.finite or math.isnan(value) or abs(value) <= format.largest


def read_number(operator: str, name: str, value: Any, dtype: DType) -> float | int | bool:
    """Reads a number as an element of the dtype, which must be able to hold it."""
    if isinstance(value, (bool, int, float)):
        if dtype.is_float:
            if _is_held(float(value), dtype):
                return float(value)
        elif math.isfinite(value) and value == int(value):
            low, high = _limits(dtype)
            if low <= value <= high:
                return int(value) if dtype.is_integer else bool(value)
    raise bad_attribute(operator, name, value, f"a number of {dtype}")


def refuse_negative(operator: str, name: str, sizes: Iterable[Any]) -> None:
    """Raises InferenceError for the first symbolic size that is negative for some values of its dims."""
    for size in sizes:
        if isinstance(size, Poly) and not at_least(size, 0):
            least, greatest = bounds(size)
            raise InferenceError(
                "bad-attribute",
                f"`{name}` of `{operator}` may be negative",
                label=f"{size} is within {least}..{greatest} for {', '.join(map(str, sorted(symbols(size))))}",
                help=f"`max({size}, 0)` is never negative",
            )


def is_negative(operator: str, name: str, value: Size) -> bool:
    """Returns whether a position counts from the end. Raises InferenceError if that depends on the dims."""
    if at_least(value, 0):
        return False
    if bounds(value)[1] < 0:
        return True
    raise InferenceError(
        "bad-attribute",
        f"`{name}` of `{operator}` is {value}, which may be negative or not",
        help="give the dim a range that decides it, such as `dim T in 1..512`",
    )
