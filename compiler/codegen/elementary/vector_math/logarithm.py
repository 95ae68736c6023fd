"""log and its relatives."""

from __future__ import annotations

from collections.abc import Callable

from .arithmetic import SIGN, fma, polynomial, rarely
from .exponential import LN2_HIGH, LN2_LOW, LOG2_E
from .writer import INFINITY, NAN, Lanes

ROOT_HALF = 0x3F3504F3
"""The bit pattern of sqrt(1/2): mantissas lie between it and sqrt(2)."""
_FRACTION, _EXPONENT = 0x7FFFFF, -0x800000
_TAIL = (
    0.3333333134651184,
    -0.2500081956386566,
    0.2000124156475067,
    -0.166234090924263,
    0.14201579988002777,
    -0.13159610331058502,
    0.12762215733528137,
    -0.07636435329914093,
)
"""(log(1 + m) - m + m**2 / 2) / m**3 for sqrt(1/2) <= 1 + m < sqrt(2)."""
_LOG10_E = 0.4342944819032518
_LOG10_2_HIGH, _LOG10_2_LOW = 0.301025390625, 4.605038981195214e-06


_FROM_NORMAL, _END_OF_NORMAL = 0x7F800000, -0x01000000
"""The bit patterns of positive normal numbers, and only those, are below the second after the addition of the first,
which wraps around."""


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """Returns e and m with x = 2**e * m and sqrt(1/2) <= m < sqrt(2), for positive finite numbers."""
    tiny = x < 2.0**-126
    e, m = _split_normal(tiny.choose(x * 2.0**23, x))
    return tiny.choose(e - 23.0, e), m


def _split_normal(x: Lanes) -> tuple[Lanes, Lanes]:
    offset = x.bits() - ROOT_HALF
    return (offset >> 23).to_float(), ((offset & _FRACTION) + ROOT_HALF).as_float()


def _of_parts(x: Lanes, formula: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """Returns the formula of e and m - 1 where x = 2**e * m, and the values of a logarithm at the ends. Denormal
    numbers and the ends take a slower path."""

    def rest() -> list[Lanes]:
        e, m = split(x)
        return [_at_the_ends(x, formula(e, m - 1.0))]

    e, m = _split_normal(x)
    is_rest = (x.bits() + _FROM_NORMAL).not_below(_END_OF_NORMAL)
    (result,) = rarely(is_rest, [formula(e, m - 1.0)], rest)
    return result


def _sum(e: Lanes, m: Lanes) -> Lanes:
    """Returns e * ln 2 + log(1 + m)."""
    square = m * m
    small = fma(e, LN2_LOW, polynomial(m, _TAIL, square) * (square * m))
    return fma(e, LN2_HIGH, m + fma(square, -0.5, small))


def _at_the_ends(x: Lanes, result: Lanes) -> Lanes:
    """Returns the result for positive finite numbers, else the logarithm's value for infinity, zero and negative
    numbers."""
    result = (x < INFINITY).choose(result, x)
    result = x.equals(0.0).choose(-INFINITY, result)
    return (x < 0.0).choose(NAN, result)


def log(x: Lanes) -> Lanes:
    return _of_parts(x, _sum)


def _log1p_of_mantissa(m: Lanes) -> Lanes:
    square = m * m
    return m + fma(square, -0.5, polynomial(m, _TAIL, square) * (square * m))


def log2(x: Lanes) -> Lanes:
    return _of_parts(x, lambda e, m: fma(_log1p_of_mantissa(m), LOG2_E, e))


def log10(x: Lanes) -> Lanes:
    def formula(e: Lanes, m: Lanes) -> Lanes:
        small = fma(_log1p_of_mantissa(m), _LOG10_E, e * _LOG10_2_LOW)
        return fma(e, _LOG10_2_HIGH, small)

    return _of_parts(x, formula)


def log1p_of_finite(x: Lanes) -> Lanes:
    """Returns log(1 + x) for -1 < x < infinity."""
    # The exponent is that of 1 + x, but the mantissa is taken from x: 1 + m = 2**-e * (1 + x).
    offset = (x + 1.0).bits() - ROOT_HALF
    # 2**(2 - e) and then a quarter of it: 2**-128 is not a normal number.
    shrink = (0x40800000 - (offset & _EXPONENT)).as_float() * 0.25
    return _sum((offset >> 23).to_float(), fma(x, shrink, shrink - 1.0))


def log1p(x: Lanes) -> Lanes:
    result = (x < INFINITY).choose(log1p_of_finite(x), x)
    result = x.equals(-1.0).choose(-INFINITY, result)
    result = (x < -1.0).choose(NAN, result)
    # The sum of zeros has lost its sign.
    return (result.bits() | (x.bits() & SIGN)).as_float()
