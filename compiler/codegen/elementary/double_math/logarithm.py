"""log and its relatives."""

from __future__ import annotations

from collections.abc import Callable

from ..vector_math.arithmetic import fma, polynomial, rarely
from ..vector_math.writer import INFINITY, NAN, Lanes
from .arithmetic import (
    BIAS,
    FRACTION_BITS,
    Pair,
    add_exactly,
    bits,
    float_of,
    from_bits,
    magnitude,
    multiply_exactly,
    normalize,
)
from .exponential import LN2_HIGH, LN2_LOW, LOG2_E

_ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bit pattern of sqrt(1/2): mantissas lie between it and sqrt(2)."""
_LEAST_NORMAL, _NORMAL_EXPONENTS = 1 << FRACTION_BITS, 2 * BIAS - 1
"""The bit pattern of the least normal number; patterns less it have one of so many exponents, counted from 0, if they
are of positive normal numbers."""
_TWO, _FRACTION = 0x4000000000000000, (1 << FRACTION_BITS) - 1
_LOG2_E_REST = 2.0355273740931033e-17
_LOG10_E, _LOG10_E_REST = 0.4342944819032518, 1.098319650216765e-17
_LOG10_2_HIGH, _LOG10_2_LOW = 0.3010299955494702, 1.1451100898021838e-10
_ATANH = tuple(2 / (2 * k + 1) for k in range(1, 14))
"""(log((1 + s) / (1 - s)) - 2 s) / s**3 in powers of s**2, for |s| <= 0.172."""
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """Returns e and m with x = 2**e * m and sqrt(1/2) <= m < sqrt(2), for positive finite numbers."""
    tiny = x < 2.0**-1022
    e, m = _split_normal(tiny.choose(x * 2.0**54, x))
    return tiny.choose(e - 54.0, e), m


def _split_normal(x: Lanes) -> tuple[Lanes, Lanes]:
    # The exponent of 2 is added, since a vector shifts without regard to signs in one step.
    offset = bits(x) + (_TWO - _ROOT_HALF)
    return (
        float_of(offset.shift_down(FRACTION_BITS) - (BIAS + 1)),
        from_bits((offset & _FRACTION) + _ROOT_HALF),
    )


def _log_of_mantissa(m: Lanes) -> Pair:
    """Returns log(m) with a relative error of about 2**-55."""
    # log(1 + f) = f - (f**2 / 2 - s (f**2 / 2 + r)), with s = f / (2 + f) and r as the rest of the series.
    f = m - 1.0
    s = f / (f + 2.0)
    square = s * s
    half = (f * f) * 0.5
    rest = polynomial(square, _ATANH, square * square) * square
    less = fma(-s, half + rest, half)
    high = f - less
    return high, (f - high) - less


def precise_log(x: Lanes) -> Pair:
    """Returns log(x) with a relative error of about 2**-64, for positive finite numbers."""
    # log(m) = 2 s + s**3 (2/3 + s**2 (2/5 + ...)) with s = (m - 1) / (m + 1)
    e, m = split(x)
    top = m - 1.0
    bottom = top + 2.0
    inverse = 1.0 / bottom
    s = top * inverse
    s_low = fma(s, (bottom - 2.0) - top, fma(s, -bottom, top)) * inverse
    square = s * s
    square_low = fma(s + s, s_low, fma(s, s, -square))
    rest = polynomial(square, _ATANH[1:], square * square) * square
    slope = rest + _TWO_THIRDS[0]
    slope_low = (rest - (slope - _TWO_THIRDS[0])) + _TWO_THIRDS[1]
    product, product_low = _multiply((square, square_low), (slope, slope_low))
    cube, cube_low = _multiply((product, product_low), (s, s_low))
    high, low = normalize(s + s, cube)
    low = low + fma(s_low, 2.0, cube_low)
    # The product is exact, and not below the other number unless it is zero.
    high, more = normalize(e * LN2_HIGH, high)
    return normalize(high, more + fma(e, LN2_LOW, low))


def _multiply(a: Pair, b: Pair) -> Pair:
    """Returns a product whose second number may exceed the rounding of the first."""
    high, low = multiply_exactly(a[0], b[0])
    return high, fma(a[0], b[1], fma(a[1], b[0], low))


def _at_the_ends(x: Lanes, result: Lanes) -> Lanes:
    """Returns the result for positive finite numbers, else the logarithm's value for infinity, zero and negative
    numbers."""
    result = (x < INFINITY).choose(result, x)
    result = x.equals(0.0).choose(-INFINITY, result)
    return (x < 0.0).choose(NAN, result)


def _of_parts(x: Lanes, formula: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """Returns the formula of e and m where x = 2**e * m, and the values of a logarithm at the ends. Denormal numbers
    and the ends take a slower path."""

    def rest() -> list[Lanes]:
        return [_at_the_ends(x, formula(*split(x)))]

    is_rest = (bits(x) - _LEAST_NORMAL).shift_down(FRACTION_BITS) > _NORMAL_EXPONENTS
    (result,) = rarely(is_rest, [formula(*_split_normal(x))], rest)
    return result


def _sum(e: Lanes, m: Lanes, more: Lanes | None = None) -> Lanes:
    """Returns e * ln 2 + log(m) + more, where `more` is small."""
    near, low = _log_of_mantissa(m)
    high, rest = normalize(e * LN2_HIGH, near)
    return high + (rest + fma(e, LN2_LOW, low if more is None else low + more))


def log(x: Lanes) -> Lanes:
    return _of_parts(x, _sum)


def log2(x: Lanes) -> Lanes:
    def formula(e: Lanes, m: Lanes) -> Lanes:
        near, low = _multiply(_log_of_mantissa(m), (x.lift(LOG2_E), x.lift(_LOG2_E_REST)))
        high, rest = normalize(e, near)
        return high + (rest + low)

    return _of_parts(x, formula)


def log10(x: Lanes) -> Lanes:
    def formula(e: Lanes, m: Lanes) -> Lanes:
        near, low = _multiply(_log_of_mantissa(m), (x.lift(_LOG10_E), x.lift(_LOG10_E_REST)))
        high, rest = normalize(e * _LOG10_2_HIGH, near)
        return high + (rest + fma(e, _LOG10_2_LOW, low))

    return _of_parts(x, formula)


def log1p_of_finite(x: Lanes) -> Lanes:
    """Returns log(1 + x) for -1 < x < infinity."""
    # log(u + c) = log(u) + c / u, with u + c = 1 + x exactly.
    u, c = add_exactly(x, 1.0)
    return (magnitude(x) < 2.0**-54).choose(x, _sum(*_split_normal(u), c / u))


def log1p(x: Lanes) -> Lanes:
    result = (x < INFINITY).choose(log1p_of_finite(x), x)
    result = x.equals(-1.0).choose(-INFINITY, result)
    result = (x < -1.0).choose(NAN, result)
    return x.equals(0.0).choose(x, result)
