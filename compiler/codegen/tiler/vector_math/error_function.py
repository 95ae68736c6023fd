"""erf and its complement."""

from __future__ import annotations

from .arithmetic import fma, magnitude, minimum, polynomial, with_sign_of
from .exponential import EXP_TAIL, LN2, LN2_HIGH, LN2_LOW, LOG2_E, ONE_FACTOR, power_of_two, scale_down
from .writer import Lanes

_SLOPE = 1.128379225730896
_REST = (
    -5.411928327703208e-08,
    0.6366193890571594,
    0.10277775677058365,
    -0.01915278658270836,
    -0.00016090198187157512,
    0.0016675228253006935,
    -0.0006331017357297242,
    0.00011771382560255006,
    -9.264197615266312e-06,
)
"""-log(erfc(a)) / a - _SLOPE for 0 < a < 3.93."""
_DECAY = tuple(
    (-1) ** i * c
    for i, c in enumerate(
        (0.4999999701976776, 0.1666654646396637, 0.04166744276881218, 0.008366252295672894, 0.0013869963586330414)
    )
)
"""(exp(-r) - 1 + r) / r**2 for |r| <= ln 2 / 2."""
_ERFC = (
    1.0215827226638794,
    -0.6871606707572937,
    0.279470831155777,
    -0.03644233196973801,
    -0.021496135741472244,
    0.00648112827911973,
    0.003031187690794468,
    -0.0008533297805115581,
    -0.0005603861063718796,
    7.437082240357995e-05,
    7.091923907864839e-05,
)
"""(a + 2) * exp(a**2) * erfc(a) in powers of (a - 2) / (a + 2), for 0 <= a < 9.6. erfc is denormal from 9.2 on."""


def erf(x: Lanes) -> Lanes:
    # erf(a) = 1 - exp(-q) with q = -log(erfc(a)); 1 in f32 from 3.92 on. With q = r - n ln 2 and s = 2**n this is
    # s * (1 - exp(-r)) + (1 - s), to full accuracy where it is small.
    a = minimum(magnitude(x), 3.95)
    q = fma(a, _SLOPE, a * polynomial(a, _REST, a * a))
    shifted = fma(q, -LOG2_E, ONE_FACTOR)
    r = fma(shifted - ONE_FACTOR, LN2, q)
    square = r * r
    small = fma(-polynomial(r, _DECAY, square), square, r)
    s = power_of_two(shifted)
    return with_sign_of(fma(s, small, 1.0 - s), x)


def erfc(x: Lanes) -> Lanes:
    # exp(-a**2) needs a**2 to more bits than f32 has: exp(-h - l) = exp(-h) * (1 - l) with h + l = a**2.
    a = minimum(magnitude(x), 10.3)
    h = a * a
    low = fma(a, a, -h)
    shifted = fma(h, -LOG2_E, ONE_FACTOR)
    n = shifted - ONE_FACTOR
    r = fma(n, -LN2_HIGH, -h) + fma(n, -LN2_LOW, -low)
    square = r * r
    decay = fma(polynomial(r, EXP_TAIL, square), square, r)
    # The polynomial, and its quotient by a + 2. The rest of the division includes the roundings of both sums.
    inverse = 1.0 / (a + 2.0)
    t = (a - 2.0) * inverse
    slope = polynomial(t, _ERFC[1:], t * t)
    top = fma(t, slope, _ERFC[0])
    top_low = fma(t, slope, _ERFC[0] - top)
    quotient = top * inverse
    rest = fma(quotient, -2.0, fma(-quotient, a, top)) + top_low
    decayed = scale_down(quotient + fma(quotient, decay, rest * inverse), n, shifted)
    return (x < 0.0).choose(2.0 - decayed, decayed)
