"""Conversions to element types without a dtype of the graph, such as INT4: integers wrap, floats are rounded to values
of the element type."""

from __future__ import annotations

from dataclasses import replace

from .....dialect.types import F32, I32
from ...writing.tensors import Tensor
from ..writing.narrow import POWERS, Narrow
from ..writing.use import Use

_EXPONENT = 0xFF << 23
"""The bits of an f32 that hold its exponent."""


def narrowed(use: Use, x: Tensor, to: Narrow) -> Tensor:
    """Returns x converted to an element type, stored in the dtype that represents this element type."""
    g = use.g
    if to.bits:
        made = _wrapped(use, x, to)
    else:
        wide = g.cast(x, dtype=F32)
        made = _power(use, wide) if to is POWERS else _rounded(use, wide, to)
    return replace(g.cast(made, dtype=to.held), element=to.name)


def _wrapped(use: Use, x: Tensor, to: Narrow) -> Tensor:
    """Returns x converted to an integer type, modulo its range. Floats are truncated first."""
    g = use.g
    whole = g.cast(x, dtype=I32)
    low = g.bitwise_and(whole, g.like((1 << to.bits) - 1, whole))
    if not to.held.is_signed:
        return low
    sign = g.like(1 << (to.bits - 1), whole)
    return g.subtract(g.bitwise_xor(low, sign), sign)


def _exponent_of(use: Use, x: Tensor) -> Tensor:
    """Returns the greatest powers of two that are not above the magnitudes of x; 0 below the normal numbers."""
    g = use.g
    bits = g.bitcast(x, dtype=I32)
    return g.bitcast(g.bitwise_and(bits, g.like(_EXPONENT, bits)), dtype=F32)


def _rounded(use: Use, x: Tensor, to: Narrow) -> Tensor:
    """Rounds to nearest, halves to even. Numbers beyond the largest one saturate, or become NaN with `saturate` = 0."""
    g = use.g
    largest = g.like(to.largest, x)
    inside = g.minimum(g.maximum(x, g.negate(largest)), largest)
    # Denormal numbers have the spacing of the smallest normal ones.
    step = g.multiply(g.maximum(_exponent_of(use, inside), g.like(to.smallest, x)), g.like(2.0**-to.fraction, x))
    made = g.multiply(g.round(g.divide(inside, step)), step)
    if to.name == "FLOAT4E2M1":
        # The element type has no NaN.
        return g.where(g.isnan(x), g.like(0, x), made)
    if not use.integer("saturate", 1):
        # Half a step above the largest number is a tie, and the number after it is the even one.
        spacing = to.largest - to.largest / (2 - 2.0**-to.fraction) * (2 - 2.0 ** (1 - to.fraction))
        limit = g.like(to.largest + spacing / 2, x)
        made = g.where(g.less(g.abs(x), limit), made, g.like(float("nan"), x))
    # The element type has only one zero.
    return g.where(g.equal(made, g.like(0, x)), g.like(0, x), made)


def _power(use: Use, x: Tensor) -> Tensor:
    """Returns powers of two, NaN for negative numbers."""
    g, mode = use.g, use.string("round_mode", "up")
    if not use.integer("saturate", 1):
        use.fail("does not saturate powers of two")
    if mode not in ("up", "down", "nearest"):
        use.fail(f"has the rounding mode {mode!r}", code="bad-attribute")
    inside = g.minimum(g.maximum(x, g.like(POWERS.smallest, x)), g.like(POWERS.largest, x))
    power = g.maximum(_exponent_of(use, inside), g.like(POWERS.smallest, x))
    if mode != "down":
        limit = power if mode == "up" else g.multiply(power, g.like(1.5, x))
        is_above = g.greater(inside, limit) if mode == "up" else g.greater_equal(inside, limit)
        power = g.where(is_above, g.multiply(power, g.like(2, x)), power)
    return g.where(g.greater_equal(x, g.like(0, x)), power, g.like(float("nan"), x))
