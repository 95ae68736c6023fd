"""exp and its relatives."""

from __future__ import annotations

import math

from ..vector_math.arithmetic import fma, maximum, minimum, polynomial
from ..vector_math.writer import Lanes
from .arithmetic import SCALED, Pair, magnitude, normalize, power_of_two, scale

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""ln 2; the first part has 32 bits, so that products with exponents are exact."""
_TAIL = tuple(1 / math.factorial(k) for k in range(2, 14))
"""(exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2."""
_EXP2 = tuple(LN2**k / math.factorial(k) for k in range(14))
"""2**r for |r| <= 1/2."""


def reduce(x: Lanes) -> tuple[Lanes, Pair]:
    """Returns n + SCALED and r with x = n * ln 2 + r and |r| <= ln 2 / 2."""
    shifted = fma(x, LOG2_E, SCALED)
    n = shifted - SCALED
    high = fma(n, -LN2_HIGH, x)
    r = fma(n, -LN2_LOW, high)
    return shifted, (r, fma(n, -LN2_LOW, high - r))


def expm1_near(r: Pair) -> Lanes:
    """Returns exp(r) - 1 for |r| <= ln 2 / 2. The second number of the pair is below the rounding of the first."""
    x, low = r
    return x + fma(polynomial(x, _TAIL), x * x, low)


def bounded(x: Lanes) -> Lanes:
    """Returns an argument beyond which exp(x) is 0 or infinity anyway."""
    return maximum(minimum(x, 710.0), -746.0)


def exp_of_pair(x: Lanes, low: Lanes) -> Lanes:
    """Returns exp(x + low) for a bounded x and a low part that is small."""
    shifted, (r, rest) = reduce(x)
    return scale(expm1_near(normalize(r, rest + low)) + 1.0, shifted)


def exp(x: Lanes) -> Lanes:
    # exp(x) = 2**n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2
    shifted, (r, _) = reduce(bounded(x))
    return scale(polynomial(r, (1.0, 1.0, *_TAIL)), shifted)


def exp2(x: Lanes) -> Lanes:
    # 2**x = 2**n * 2**r, n = round(x)
    x = maximum(minimum(x, 1025.0), -1076.0)
    shifted = x + SCALED
    return scale(polynomial(x - (shifted - SCALED), _EXP2), shifted)


def expm1(x: Lanes) -> Lanes:
    # 2**n * exp(r) - 1 = 2**n * expm1(r) + (2**n - 1), computed as half of that so that n = 1024 is possible.
    shifted, r = reduce(maximum(minimum(x, 710.0), -45.0))
    half = power_of_two(shifted, -1)
    result = fma(half, expm1_near(r), half - 0.5) * 2.0
    return (magnitude(x) < 2.0**-54).choose(x, result)
