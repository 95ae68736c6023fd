"""Powers and the cube root."""

from __future__ import annotations

from .arithmetic import SIGN, fma, magnitude, maximum, minimum, polynomial, rarely, truncate, with_sign_of
from .exponential import EXP2_SLOPE, TWO_FACTORS, scale
from .logarithm import split
from .writer import INFINITY, NAN, Lanes

_SLOPE, _SLOPE_LOW = 2.885390043258667, 3.851926067000022e-08
"""2 / ln 2"""
_LOG2 = (0.9617946147918701, 0.5790450572967529)
"""(log2((1 + s) / (1 - s)) - 2 s / ln 2) / s**3 in powers of s**2, for |s| <= 0.062."""
_LOW_CENTRE = (51 / 64, -0.32757568359375, 1.0255652114210534e-06)
_HIGH_CENTRE = (5 / 4, 0.3218994140625, 2.8680824470939115e-05)
"""Numbers that mantissas lie around, as 1 does, with two parts of their logarithms to base 2, the first with few
bits."""


def _log2(a: Lanes) -> tuple[Lanes, Lanes]:
    """Returns two parts of the logarithm to base 2 of a positive finite number; their sum has a relative error of about
    2**-34.

    The second part may be a thousandth of the first.
    """
    # log(m) = log(c) + 2 atanh(s) with s = (m - c) / (m + c), in two parts too.
    e, m = split(a)
    below, above = m < 0.891, m > 1.119
    centre, known, known_low = (
        below.choose(low, above.choose(high, one))
        for low, high, one in zip(_LOW_CENTRE, _HIGH_CENTRE, (m.lift(1.0), m.lift(0.0), m.lift(0.0)), strict=True)
    )
    top, bottom = m - centre, m + centre
    bottom_low = m - (bottom - centre)
    inverse = 1.0 / bottom
    s = top * inverse
    s_low = fma(s, -bottom_low, fma(s, -bottom, top)) * inverse
    square = s * s
    high = s * _SLOPE
    low = fma(s, _SLOPE_LOW, fma(s_low, _SLOPE, fma(s, _SLOPE, -high))) + known_low
    low = fma(polynomial(square, _LOG2) * square, s, low)
    whole = e + known
    total = whole + high
    return total, ((whole - total) + high) + low


def powf(x: Lanes, y: Lanes) -> Lanes:
    # 2**(y log2|x|)
    a = magnitude(x)
    high, low = _log2(a)
    product = y * high
    bounded = maximum(minimum(product, 129.0), -151.0)
    # Beyond the bounds, the rest of the product may be anything and is ignored.
    rest = bounded.equals(product).choose(fma(y, low, fma(y, high, -product)), 0.0)
    shifted = bounded + TWO_FACTORS
    n = shifted - TWO_FACTORS
    # With the rest, up to 0.7 instead of 1/2: still within the bound.
    r = (bounded - n) + rest
    result = scale(fma(polynomial(r, EXP2_SLOPE, r * r), r, 1.0), n, shifted)
    usual = ((x.bits() - 1) ^ SIGN) < (0x7F7FFFFF ^ SIGN)
    unusual = ~(usual & (magnitude(y) < INFINITY))
    return rarely(unusual, (result,), lambda: (_unusual_power(x, y, a, result),))[0]


def _unusual_power(x: Lanes, y: Lanes, a: Lanes, result: Lanes) -> Lanes:
    """Returns x ** y where one of them is not finite or x is not positive; `result` is |x| ** y, if both are finite."""
    zero, infinite = a.equals(0.0), a.equals(INFINITY)
    upward = (y > 0.0) ^ zero
    result = (zero | infinite).choose(upward.choose(INFINITY, x.lift(0.0)), result)
    # 1 to an infinite power is 1; every other power with an infinity is already 0 or infinity.
    result = a.equals(1.0).choose(1.0, result)
    # A remainder of 1 identifies odd numbers, one of 0 even ones. An infinity, which counts as even, has no remainder.
    remainder = magnitude(fma(truncate(y * 0.5), -2.0, y))
    odd = remainder.equals(1.0)
    result = (result.bits() ^ odd.choose(x.bits() & SIGN, 0)).as_float()
    fraction = (remainder > 0.0) & ~odd
    result = (fraction & (x < 0.0) & ~infinite).choose(NAN, result)
    result = (x.is_nan() | y.is_nan()).choose(NAN, result)
    # Anything to the power 0 is 1, and so is 1 to any power, even where the other operand is NaN.
    return (y.equals(0.0) | x.equals(1.0)).choose(1.0, result)


def cbrt(x: Lanes) -> Lanes:
    # y approximates 1 / cbrt(a): first from the exponent, then from powers of d = 1 - a y**3.
    a = magnitude(x)
    tiny = a < 2.0**-126
    a = tiny.choose(a * 2.0**24, a)
    y = fma(a.bits().to_float(), -1 / 3, 1419900000.0).to_integer().as_float()
    d = fma(a * y, -(y * y), 1.0)
    y = fma(y * d, polynomial(d, (1 / 3, 2 / 9, 14 / 81)), y)
    square = y * y
    root = a * square
    root = fma(fma(root * root, -root, a), square * (1 / 3), root)
    root = tiny.choose(root * 2.0**-8, root)
    return with_sign_of((a < INFINITY).choose(root, a), x)
