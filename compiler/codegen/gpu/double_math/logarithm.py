"""log and its relatives."""

from __future__ import annotations

from ...tiler.vector_math.arithmetic import fma, polynomial
from ...tiler.vector_math.writer import INFINITY, NAN, Lanes
from .arithmetic import (
    FRACTION_BITS,
    Pair,
    add_exactly,
    add_pairs,
    bits,
    from_bits,
    magnitude,
    multiply_exactly,
    multiply_pairs,
    normalize,
)
from .exponential import LN2_HIGH, LN2_LOW, LOG2_E

_ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bit pattern of sqrt(1/2): mantissas lie between it and sqrt(2)."""
_LOG2_E_REST = 2.0355273740931033e-17
_LN2_LAST = 1.1612227229362532e-26
"""ln 2 - LN2_HIGH - LN2_LOW"""
_LOG10_E, _LOG10_E_REST = 0.4342944819032518, 1.098319650216765e-17
_LOG10_2_HIGH, _LOG10_2_LOW = 0.3010299955494702, 1.1451100898021838e-10
_ATANH = tuple(2 / (2 * k + 1) for k in range(1, 14))
"""(log((1 + s) / (1 - s)) - 2 s) / s**3 in powers of s**2, for |s| <= 0.172."""
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """Returns e and m with x = 2**e * m and sqrt(1/2) <= m < sqrt(2), for positive finite numbers."""
    tiny = x < 2.0**-1022
    offset = bits(tiny.choose(x * 2.0**54, x)) - _ROOT_HALF
    e = offset >> FRACTION_BITS
    m = from_bits((offset - (e << FRACTION_BITS)) + _ROOT_HALF)
    return (e - tiny.choose(x.writer.constant(54, "i64"), x.writer.constant(0, "i64"))).to_float("f64"), m


def _quotient(m: Lanes) -> Pair:
    """Returns s = (m - 1) / (m + 1)."""
    top = m - 1.0
    bottom = top + 2.0
    bottom_low = top - (bottom - 2.0)
    s = top / bottom
    return s, fma(s, -bottom_low, fma(s, -bottom, top)) / bottom


def _log_of_mantissa(m: Lanes) -> Pair:
    """Returns log(m) with a relative error of about 2**-59."""
    s, low = _quotient(m)
    square = s * s
    return normalize(s + s, fma(polynomial(square, _ATANH) * square, s, low + low))


def precise_log(x: Lanes) -> Pair:
    """Returns log(x) with a relative error of about 2**-64, for positive finite numbers."""
    e, m = split(x)
    s, low = normalize(*_quotient(m))
    square = multiply_pairs((s, low), (s, low))
    cube = multiply_pairs(multiply_pairs(square, (s, low)), _TWO_THIRDS)
    rest = polynomial(square[0], _ATANH[1:]) * square[0] * square[0] * s
    near = add_pairs(add_pairs((s + s, low + low), cube), (rest, rest.lift(0.0)))
    high, missing = multiply_exactly(e, LN2_LOW)
    # e * LN2_HIGH is exact.
    whole = add_pairs((e * LN2_HIGH, e.lift(0.0)), (high, fma(e, _LN2_LAST, missing)))
    return add_pairs(whole, near)


def _at_the_ends(x: Lanes, result: Lanes) -> Lanes:
    """Returns the result for positive finite numbers, else the logarithm's value for infinity, zero and negative
    numbers."""
    result = (x < INFINITY).choose(result, x)
    result = x.equals(0.0).choose(-INFINITY, result)
    return (x < 0.0).choose(NAN, result)


def _log_of_finite(x: Lanes, more: Lanes) -> Lanes:
    """Returns log(x) + more, where `more` is small."""
    e, m = split(x)
    near, low = _log_of_mantissa(m)
    high, rest = add_exactly(e * LN2_HIGH, near)
    return high + (rest + fma(e, LN2_LOW, low + more))


def log(x: Lanes) -> Lanes:
    return _at_the_ends(x, _log_of_finite(x, x.lift(0.0)))


def log2(x: Lanes) -> Lanes:
    e, m = split(x)
    near, low = multiply_pairs(_log_of_mantissa(m), (LOG2_E, _LOG2_E_REST))
    high, rest = add_exactly(e, near)
    return _at_the_ends(x, high + (rest + low))


def log10(x: Lanes) -> Lanes:
    e, m = split(x)
    near, low = multiply_pairs(_log_of_mantissa(m), (_LOG10_E, _LOG10_E_REST))
    high, rest = add_exactly(e * _LOG10_2_HIGH, near)
    return _at_the_ends(x, high + (rest + fma(e, _LOG10_2_LOW, low)))


def log1p_of_finite(x: Lanes) -> Lanes:
    """Returns log(1 + x) for -1 < x < infinity."""
    # log(u + c) = log(u) + c / u, with u + c = 1 + x exactly.
    u, c = add_exactly(x, 1.0)
    return (magnitude(x) < 2.0**-54).choose(x, _log_of_finite(u, c / u))


def log1p(x: Lanes) -> Lanes:
    result = (x < INFINITY).choose(log1p_of_finite(x), x)
    result = x.equals(-1.0).choose(-INFINITY, result)
    result = (x < -1.0).choose(NAN, result)
    return x.equals(0.0).choose(x, result)
