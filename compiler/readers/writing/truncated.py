"""Quotients that are rounded toward zero, and remainders with the sign of the dividend.

`floor_divide` of the graph rounds down, and `remainder` has the sign of the divisor. Both results are corrected where
the signs differ and the quotient is not exact. No magnitude is computed: the least integer has none.
"""

from __future__ import annotations

from ....dialect.dims import bounds
from .graph_writer import GraphWriter
from .tensors import Tensor


def divide_truncated(g: GraphWriter, x: Tensor, y: Tensor) -> Tensor:
    """Returns the quotient of integers, rounded toward zero."""
    quotient = g.floor_divide(x, y)
    if _never_negative(x) and _never_negative(y):
        return quotient
    is_lower = g.logical_and(_signs_differ(g, x, y), g.not_equal(g.multiply(quotient, y), x))
    return g.where(is_lower, g.add(quotient, g.like(1, x)), quotient)


def remainder_of_dividend(g: GraphWriter, x: Tensor, y: Tensor) -> Tensor:
    """Returns the remainder of integers or floats, with the sign of the dividend."""
    if x.dtype.is_float:
        magnitude = g.remainder(g.abs(x), g.abs(y))
        return g.where(g.less(x, g.like(0, x)), g.negate(magnitude), magnitude)
    rest = g.remainder(x, y)
    if _never_negative(x) and _never_negative(y):
        return rest
    is_other = g.logical_and(_signs_differ(g, x, y), g.not_equal(rest, g.like(0, rest)))
    return g.where(is_other, g.subtract(rest, y), rest)


def _signs_differ(g: GraphWriter, x: Tensor, y: Tensor) -> Tensor:
    return g.not_equal(g.less(x, g.like(0, x)), g.less(y, g.like(0, y)))


def _never_negative(x: Tensor) -> bool:
    if not x.dtype.is_signed:
        return True
    return x.sizes is not None and all(bounds(size)[0] >= 0 for size in x.sizes)
