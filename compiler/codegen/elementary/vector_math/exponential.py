"""exp and its relatives."""

from __future__ import annotations

from collections.abc import Callable

from .arithmetic import (
    either,
    fma,
    magnitude,
    maximum,
    minimum,
    nearest_integer,
    polynomial,
    rarely,
    scale_by_instruction,
)
from .writer import Lanes

ROUND = 12582912.0
"""1.5 * 2**23: adding it leaves the nearest integer in the low bits."""
LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
"""ln 2; the first part has few bits, so that small multiples of it are exact."""

EXP_TAIL = (0.4999999403953552, 0.1666652262210846, 0.04166829213500023, 0.008368532173335552, 0.0013818296138197184)
"""(exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2, to the rounding of exp."""
_EXPM1_TAIL = (0.4999999701976776, 0.1666654646396637, 0.04166744276881218, 0.008366252295672894, 0.0013869963586330414)
"""The same, to the rounding of expm1."""
EXP2_SLOPE = (
    0.6931471824645996,
    0.24022647738456726,
    0.05550359934568405,
    0.009618505835533142,
    0.0013390807434916496,
    0.00015326468565035611,
)
"""(2**r - 1) / r for |r| <= 1/2."""

TWO_FACTORS, ONE_FACTOR = ROUND + 254, ROUND + 127
"""ROUND, and the bias that makes an exponent of the low bits: for `scale`, and for powers of two that are normal
numbers."""
_BELOW = 254 - 127 + 1
"""The difference between the low bits of TWO_FACTORS + n and the exponent of 2**(n - 1)."""


def scale(p: Lanes, n: Lanes, shifted: Lanes) -> Lanes:
    """Returns p * 2**n where p is about 1, shifted = n + TWO_FACTORS, and n < 256, rounded once.

    On vectors, the result is zero where n is low, for any p. On scalars it requires n > -254.
    """
    low = n < -125
    # Callers of a scalar version vectorise only without a branch.
    if p.writer.lanes is None:
        return _scale_low(p, n, shifted, low)
    # Lanes with a zero result do not require the slow path: attention masks put them everywhere.
    denormal = low & (n > -151)
    (result,) = rarely(denormal, [_scale_or_zero(p, n, shifted, low)], lambda: [_scale_low(p, n, shifted, low)])
    return result


def scale_down(p: Lanes, n: Lanes) -> Lanes:
    """Returns p * 2**n where p is about 1 and -254 < n < 128, rounded once, without a branch for denormal results."""
    return _scale_low(p, n, n + TWO_FACTORS, n < -125)


def _scale_low(p: Lanes, n: Lanes, shifted: Lanes, low: Lanes) -> Lanes:
    """Computes `scale` for n > -254.

    On some CPUs, arithmetic with a denormal result takes a hundred times as long. The bit pattern of a denormal number
    is its multiple of 2**-149, so that multiple is computed and rounded to an integer.
    """
    scaled = _scale_within(p, low.choose(n + 149.0, n), low.choose(shifted + 149.0, shifted))
    return low.choose(nearest_integer(scaled), scaled.bits()).as_float()


def _scale_within(p: Lanes, n: Lanes, shifted: Lanes) -> Lanes:
    """Computes `scale` for results that are not denormal."""
    if p.writer.scaling:
        return scale_by_instruction(p.writer.scaling, p, n)
    # Two factors, so that both are normal numbers even where the product overflows.
    bits = shifted.bits()
    half = (bits << 22) & 0x7F800000
    rest = (bits << 23) - half
    return p * half.as_float() * rest.as_float()


def _scale_or_zero(p: Lanes, n: Lanes, shifted: Lanes, low: Lanes) -> Lanes:
    """Computes `scale`, with zero in the lanes that are low."""
    if p.writer.scaling:
        return scale_by_instruction(p.writer.scaling, p, n, low)
    # 2**128 is not representable, and half of 2**-125 is. Where n is low, the product may be anything, such as a NaN.
    half = (shifted.bits() << 23) - (_BELOW << 23)
    return low.choose(0.0, (p + p) * half.as_float())


def power_of_two(shifted: Lanes) -> Lanes:
    """Returns 2**n where shifted = n + ONE_FACTOR and -127 < n < 128."""
    return (shifted.bits() << 23).as_float()


def at_least(x: Lanes, bound: float) -> Lanes:
    """Applies the lower bound that `scale` needs on scalars; the result is zero below it."""
    return maximum(x, bound) if x.writer.lanes is None else x


def _near_one(x: Lanes, bound: float, near: Callable[[], Lanes], any_number: Callable[[], Lanes]) -> Lanes:
    """Returns the result of `near` if |x| < bound in all lanes, else that of `any_number`, which is equal there.

    On scalars, and where an instruction scales by powers of two, it is that of `any_number`.
    """
    if x.writer.lanes is None or x.writer.scaling:
        return any_number()
    return either(magnitude(x).not_below(bound), lambda: [any_number()], lambda: [near()])[0]


def _add_to_exponent(p: Lanes, shifted: Lanes) -> Lanes:
    """Returns p * 2**n where p and the result are normal numbers, and shifted = n + ROUND."""
    return (p.bits() + (shifted.bits() << 23)).as_float()


def _reduce(x: Lanes, shift: float) -> tuple[Lanes, Lanes, Lanes]:
    """Returns n + shift, n and r with x = n * ln 2 + r, where n is the integer nearest to x / ln 2."""
    shifted = fma(x, LOG2_E, shift)
    n = shifted - shift
    return shifted, n, fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


def exp(x: Lanes) -> Lanes:
    # exp(x) = 2**n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2.
    def near() -> Lanes:
        shifted, _, r = _reduce(x, ROUND)
        return _add_to_exponent(polynomial(r, (1.0, 1.0, *EXP_TAIL)), shifted)

    def any_number() -> Lanes:
        # Beyond the clamp the result is 0 or infinity anyway.
        shifted, n, r = _reduce(at_least(minimum(x, 89.0), -105.0), TWO_FACTORS)
        return scale(polynomial(r, (1.0, 1.0, *EXP_TAIL)), n, shifted)

    # |n| <= 124, so that the results are normal numbers.
    return _near_one(x, 86.0, near, any_number)


def exp2(x: Lanes) -> Lanes:
    # 2**x = 2**n * 2**r, n = round(x).
    def of_rest(r: Lanes) -> Lanes:
        return fma(polynomial(r, EXP2_SLOPE, r * r), r, 1.0)

    def near() -> Lanes:
        shifted = x + ROUND
        return _add_to_exponent(of_rest(x - (shifted - ROUND)), shifted)

    def any_number() -> Lanes:
        bounded = at_least(minimum(x, 129.0), -151.0)
        shifted = bounded + TWO_FACTORS
        n = shifted - TWO_FACTORS
        return scale(of_rest(bounded - n), n, shifted)

    return _near_one(x, 124.0, near, any_number)


def expm1(x: Lanes) -> Lanes:
    # 2**n * exp(r) - 1 = 2**n * expm1(r) + (2**n - 1), computed as half of that so that n = 128 is possible.
    bounded = maximum(minimum(x, 89.0), -18.0)
    shifted = fma(bounded, LOG2_E, ONE_FACTOR - 1)
    n = shifted - (ONE_FACTOR - 1)
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, bounded))
    square = r * r
    small = fma(polynomial(r, _EXPM1_TAIL, square), square, r)
    half = power_of_two(shifted)
    result = fma(half, small, half - 0.5) * 2.0
    # Halves of denormals are not exact, and zeros keep their sign.
    return (magnitude(x) < 2.0**-25).choose(x, result)
