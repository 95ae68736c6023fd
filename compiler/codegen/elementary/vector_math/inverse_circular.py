"""Inverses of the circular functions."""

from __future__ import annotations

from collections.abc import Sequence

from .arithmetic import SIGN, fma, magnitude, polynomial, square_root, with_sign_of
from .writer import Lanes

_HALF_PI, _HALF_PI_LOW = 1.5707963705062866, -4.371138828673793e-08
_ASIN = (0.16666752099990845, 0.074953094124794, 0.04546914994716644, 0.024184778332710266, 0.042158305644989014)
"""(asin(x) - x) / x**3 in powers of x**2, for |x| <= 1/2."""
_ATAN = (
    -0.33333298563957214,
    0.1999852955341339,
    -0.14264015853405,
    0.10950880497694016,
    -0.08399305492639542,
    0.05788133665919304,
    -0.03109685517847538,
    0.010868547484278679,
    -0.0017827684059739113,
)
"""(atan(x) - x) / x**3 in powers of x**2, for |x| <= 1."""


def reduced_asin(a: Lanes, tail: Sequence[float]) -> tuple[Lanes, Lanes, Lanes]:
    """Returns whether a > 1/2, and y and c with asin(y) = y + c, where y is a, or sqrt((1 - a) / 2) if a > 1/2.

    tail: the coefficients of (asin(x) - x) / x**3 in powers of x**2, for |x| <= 1/2 in the dtype of `a`.
    """
    far = a > 0.5
    square = far.choose(fma(a, -0.5, 0.5), a * a)
    y = far.choose(square_root(square), a)
    return far, y, polynomial(square, tail) * (square * y)


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
    sign = x.bits() & SIGN
    angle = y + correction
    turned = (far.choose(angle + angle, -angle).bits() ^ sign).as_float()
    base = far.choose((x < 0.0).choose(2 * _HALF_PI, 0.0), _HALF_PI)
    low = far.choose((x < 0.0).choose(2 * _HALF_PI_LOW, 0.0), _HALF_PI_LOW)
    return base + (turned + low)


def _atan_up_to_1(t: Lanes) -> Lanes:
    square = t * t
    return fma(polynomial(square, _ATAN, square * square) * square, t, t)


def atan(x: Lanes) -> Lanes:
    # atan(a) = pi / 2 - atan(1 / a)
    a = magnitude(x)
    far = a > 1.0
    angle = _atan_up_to_1(far.choose(1.0 / a, a))
    return with_sign_of(far.choose((_HALF_PI - angle) + _HALF_PI_LOW, angle), x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    a, b = magnitude(y), magnitude(x)
    steep = a > b
    over, under = steep.choose(b, a), steep.choose(a, b)
    # The quotient is neither 0 / 0 nor infinity / infinity.
    diagonal = under.equals(0.0).choose(0.0, over.lift(1.0))
    angle = _atan_up_to_1(over.equals(under).choose(diagonal, over / under))
    backward = x.bits() < 0
    angle = (steep ^ backward).choose(-angle, angle)
    base = steep.choose(_HALF_PI, backward.choose(2 * _HALF_PI, 0.0))
    low = steep.choose(_HALF_PI_LOW, backward.choose(2 * _HALF_PI_LOW, 0.0))
    return with_sign_of((base + angle) + low, y)
