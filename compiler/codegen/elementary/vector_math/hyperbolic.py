"""Hyperbolic functions and their inverses."""

from __future__ import annotations

from .arithmetic import fma, magnitude, maximum, minimum, polynomial, square_root, with_sign_of
from .exponential import LN2, LN2_HIGH, LN2_LOW, LOG2_E, ONE_FACTOR, power_of_two
from .logarithm import log1p_of_finite
from .writer import INFINITY, NAN, Lanes

_TANH_NEAR = (1.0, 0.333333283662796, -0.02222110889852047, 0.0021086528431624174, -0.0001902010408230126)
"""x / tanh(x) in powers of x**2, for |x| < 0.66."""
_TANH_FAR = (
    1.0,
    0.6931470036506653,
    0.24022246897220612,
    0.0555071085691452,
    0.009671292267739773,
    0.0013269524788483977,
)
"""2**r for |r| <= 1/2."""
_SINH_TAIL = (0.1666666716337204, 0.00833317544311285, 0.00019974088354501873)
"""(sinh(r) - r) / r**3 in powers of r**2, for |r| <= ln 2 / 2."""
_COSH_TAIL = (0.5, 0.041666459292173386, 0.0013935451861470938)
"""(cosh(r) - 1) / r**2 in powers of r**2, for |r| <= ln 2 / 2."""


def tanh(x: Lanes) -> Lanes:
    # Near zero x / c(x**2), elsewhere 1 - 2 / (exp(2|x|) + 1), which is 1 in f32 from 9.02 on; one division for both.
    a = minimum(magnitude(x), 9.1)
    near = a < 0.66
    below = polynomial(a * a, _TANH_NEAR)
    shifted = fma(a, 2 * LOG2_E, ONE_FACTOR)
    r = fma(a, 2 * LOG2_E, ONE_FACTOR - shifted)
    above = fma(polynomial(r, _TANH_FAR, r * r), power_of_two(shifted), 1.0)
    quotient = near.choose(a, 2.0) / near.choose(below, above)
    return with_sign_of(near.choose(quotient, 1.0 - quotient), x)


def _sinh_and_cosh(x: Lanes) -> tuple[Lanes, Lanes]:
    """Returns quarters of sinh and cosh of |x|."""
    # With s = 2**n, cosh(n ln 2 + r) = cosh(r) (s + 1/s) / 2 + sinh(r) (s - 1/s) / 2, and vice versa for sinh.
    a = minimum(magnitude(x), 90.0)
    bias = ONE_FACTOR - 3
    shifted = fma(a, LOG2_E, bias)
    n = shifted - bias
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, a))
    square = r * r
    sinh_r = fma(polynomial(square, _SINH_TAIL) * square, r, r)
    cosh_r = fma(polynomial(square, _COSH_TAIL), square, 1.0)
    up = power_of_two(shifted)
    # Where 2**-n is not a normal number, it is negligible.
    down = maximum(((127 * 2 - 6) << 23) - up.bits(), 0).as_float()
    difference, total = up - down, up + down
    return fma(difference, cosh_r, total * sinh_r), fma(difference, sinh_r, total * cosh_r)


def sinh(x: Lanes) -> Lanes:
    quarter, _ = _sinh_and_cosh(x)
    # Quarters of denormals are not exact.
    return (magnitude(x) < 2.0**-13).choose(x, with_sign_of(quarter * 4.0, x))


def cosh(x: Lanes) -> Lanes:
    _, quarter = _sinh_and_cosh(x)
    return quarter * 4.0


def _log1p_or_log2x(far: Lanes, near: Lanes, a: Lanes) -> Lanes:
    """Returns log(1 + near), or log(2 a) where a is so large that 1 + a is a."""
    result = log1p_of_finite(far.choose(a, near))
    result = result + far.choose(LN2, 0.0)
    return (a < INFINITY).choose(result, a)


def asinh(x: Lanes) -> Lanes:
    # asinh(a) = log(a + sqrt(1 + a**2)) = log1p(a + a * (a / (1 + sqrt(1 + a**2))))
    a = magnitude(x)
    near = fma(a, a / (square_root(fma(a, a, 1.0)) + 1.0), a)
    return with_sign_of(_log1p_or_log2x(a > 2.0**30, near, a), x)


def acosh(x: Lanes) -> Lanes:
    # acosh(x) = log(x + sqrt(x**2 - 1)) = log1p(t + sqrt(2 t + t**2)) with t = x - 1
    t = x - 1.0
    near = t + square_root(fma(t, t, t + t))
    return (x < 1.0).choose(NAN, _log1p_or_log2x(x > 2.0**30, near, x))


def atanh(x: Lanes) -> Lanes:
    # atanh(a) = log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2
    a = magnitude(x)
    grown = (a + a) / (1.0 - a)
    result = (grown < INFINITY).choose(log1p_of_finite(grown) * 0.5, grown)
    return with_sign_of((a > 1.0).choose(NAN, result), x)
