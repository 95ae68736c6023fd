"""Inverses of the circular functions."""

from __future__ import annotations

import math

from ..vector_math.arithmetic import fma, polynomial
from ..vector_math.inverse_circular import reduced_asin
from ..vector_math.writer import Lanes
from .arithmetic import SIGN, bits, from_bits, magnitude, with_sign_of

_HALF_PI, _HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
_ASIN = tuple(math.comb(2 * k, k) / (4**k * (2 * k + 1)) for k in range(1, 27))
"""(asin(x) - x) / x**3 in powers of x**2, for |x| <= 1/2."""
_ATAN = tuple((-1) ** k / (2 * k + 1) for k in range(1, 23))
"""(atan(x) - x) / x**3 in powers of x**2, for |x| <= 7/16."""
_CENTRES = (
    (7 / 16, 0.5, 0.4636476090008061, 2.2698777452961687e-17),
    (11 / 16, 1.0, 0.7853981633974483, 3.061616997868383e-17),
    (19 / 16, 1.5, 0.982793723247329, 1.3903311031230998e-17),
)
"""From the first number on, arguments are near the second one, whose inverse tangent is the sum of the last two."""
_FAR = 39 / 16


def asin(x: Lanes) -> Lanes:
    # asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2))
    a = magnitude(x)
    far, y, correction = reduced_asin(a, _ASIN)
    complement = fma(y, -2.0, _HALF_PI) + fma(correction, -2.0, _HALF_PI_LOW)
    return with_sign_of(far.choose(complement, y + correction), x)


def acos(x: Lanes) -> Lanes:
    # pi / 2 - asin(x); beyond 1/2 this is 2 asin(sqrt((1 - a) / 2)), or pi less that for negative numbers.
    a = magnitude(x)
    far, y, correction = reduced_asin(a, _ASIN)
    nothing = x.lift(0.0)
    angle = y + correction
    turned = from_bits(bits(far.choose(angle + angle, -angle)) ^ (bits(x) & SIGN))
    base = far.choose((x < 0.0).choose(2 * _HALF_PI, nothing), x.lift(_HALF_PI))
    low = far.choose((x < 0.0).choose(2 * _HALF_PI_LOW, nothing), x.lift(_HALF_PI_LOW))
    return base + (turned + low)


def _atan_of_quotient(top: Lanes, bottom: Lanes) -> Lanes:
    """Returns atan(top / bottom) for numbers that are not negative; one may be infinite."""
    # atan(a) = atan(c) + atan((a - c) / (1 + a c)), and pi / 2 - atan(1 / a) far away.
    a = top / bottom
    over, under, high, low = a, a.lift(1.0), a.lift(0.0), a.lift(0.0)
    for least, centre, known, known_low in _CENTRES:
        near = a.not_below(least)
        over = near.choose(a - centre, over)
        under = near.choose(fma(a, centre, 1.0), under)
        high, low = near.choose(known, high), near.choose(known_low, low)
    far = a.not_below(_FAR)
    over, under = far.choose(-1.0, over), far.choose(a, under)
    high, low = far.choose(_HALF_PI, high), far.choose(_HALF_PI_LOW, low)
    t = over / under
    square = t * t
    return high + (t + fma(polynomial(square, _ATAN) * square, t, low))


def atan(x: Lanes) -> Lanes:
    return with_sign_of(_atan_of_quotient(magnitude(x), x.lift(1.0)), x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    a, b = magnitude(y), magnitude(x)
    # The quotient is neither 0 / 0 nor infinity / infinity.
    same = a.equals(b)
    top, bottom = same.choose(a.equals(0.0).choose(0.0, a.lift(1.0)), a), same.choose(1.0, b)
    angle = _atan_of_quotient(top, bottom)
    angle = (bits(x) < 0).choose((2 * _HALF_PI - angle) + 2 * _HALF_PI_LOW, angle)
    angle = (x.is_nan() | y.is_nan()).choose(x + y, angle)
    return with_sign_of(magnitude(angle), y)
