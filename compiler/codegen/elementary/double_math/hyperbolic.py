"""Hyperbolic functions and their inverses."""

from __future__ import annotations

from ..vector_math.arithmetic import fma, minimum, square_root
from ..vector_math.writer import INFINITY, NAN, Lanes
from .arithmetic import magnitude, with_sign_of
from .exponential import LN2, exp, expm1
from .logarithm import log1p_of_finite

_LARGE = 709.0
"""From here on, half of an exponential is finite where the exponential is not."""


def tanh(x: Lanes) -> Lanes:
    # tanh(a) = e / (e + 2) with e = exp(2 a) - 1
    a = minimum(magnitude(x), 20.0)
    e = expm1(a + a)
    near = a < 1.0
    quotient = near.choose(e, x.lift(2.0)) / (e + 2.0)
    return with_sign_of(near.choose(quotient, 1.0 - quotient), x)


def _of_large(a: Lanes) -> Lanes:
    """Returns exp(a) / 2."""
    root = exp(a * 0.5)
    return (root * 0.5) * root


def sinh(x: Lanes) -> Lanes:
    a = magnitude(x)
    e = expm1(minimum(a, _LARGE))
    result = (e + e / (e + 1.0)) * 0.5
    result = (a > _LARGE).choose(_of_large(a), result)
    # Halves of denormals are not exact.
    return (a < 2.0**-28).choose(x, with_sign_of(result, x))


def cosh(x: Lanes) -> Lanes:
    a = magnitude(x)
    e = exp(minimum(a, _LARGE))
    return (a > _LARGE).choose(_of_large(a), fma(e, 0.5, 0.5 / e))


def _log1p_or_log2x(far: Lanes, near: Lanes, a: Lanes) -> Lanes:
    """Returns log(1 + near), or log(2 a) where a is so large that 1 + a is a."""
    result = log1p_of_finite(far.choose(a, near))
    result = result + far.choose(LN2, result.lift(0.0))
    return (a < INFINITY).choose(result, a)


def asinh(x: Lanes) -> Lanes:
    # asinh(a) = log(a + sqrt(1 + a**2)) = log1p(a + a * (a / (1 + sqrt(1 + a**2))))
    a = magnitude(x)
    near = fma(a, a / (square_root(fma(a, a, 1.0)) + 1.0), a)
    return with_sign_of(_log1p_or_log2x(a > 2.0**60, near, a), x)


def acosh(x: Lanes) -> Lanes:
    # acosh(x) = log(x + sqrt(x**2 - 1)) = log1p(t + sqrt(2 t + t**2)) with t = x - 1
    t = x - 1.0
    near = t + square_root(fma(t, t, t + t))
    return (x < 1.0).choose(NAN, _log1p_or_log2x(x > 2.0**60, near, x))


def atanh(x: Lanes) -> Lanes:
    # atanh(a) = log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2
    a = magnitude(x)
    grown = (a + a) / (1.0 - a)
    result = (grown < INFINITY).choose(log1p_of_finite(grown) * 0.5, grown)
    # The first terms of the series, since half of a denormal is not exact.
    result = (a < 2.0**-28).choose(a, result)
    return with_sign_of((a > 1.0).choose(NAN, result), x)
