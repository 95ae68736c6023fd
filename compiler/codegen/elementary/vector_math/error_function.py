"""erf and its complement."""

from __future__ import annotations

from .arithmetic import fma, magnitude, minimum, polynomial, rarely, with_sign_of
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
_NEAR = 3.95
"""Beyond this argument, erfc takes another path, with a division."""
_SCALED = (
    0.25539568066596985,
    -0.10679644346237183,
    0.041802894324064255,
    -0.015460975468158722,
    0.00543981185182929,
    -0.0018305060220882297,
    0.0005944479489699006,
    -0.0001864508813014254,
    5.373725070967339e-05,
    -1.5041483493405394e-05,
    5.686994427378522e-06,
    -1.8001630905928323e-06,
    4.4584698599692274e-08,
    2.786102371032939e-08,
    6.395937646175298e-08,
    -1.8859601880194532e-08,
)
"""exp(a**2) * erfc(a) in powers of a - 2, for 0 <= a <= _NEAR."""
_FAR = (0.5641893148422241, -0.2820432782173157, 0.4195701777935028, -0.9415417909622192, 1.7783745527267456)
"""a * exp(a**2) * erfc(a) in powers of 1 / a**2, for 3.9 <= a < 9.7. erfc is denormal from 9.2 on."""


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
    # The largest roundings are those of u, for a < 1, and of top. The result includes both. That of u is multiplied by
    # the slope of the polynomial, about -1 there.
    u = a - 2.0
    slope = polynomial(u, _SCALED[1:], u * u)
    first = _SCALED[0] - (a - (u + 2.0))
    top = fma(u, slope, first)
    top_low = fma(u, slope, first - top)
    near = (fma(top, decay, top_low) + top) * power_of_two(shifted)

    def far() -> list[Lanes]:
        inverse = 1.0 / a
        scaled = polynomial(inverse * inverse, _FAR)
        quotient = scaled * inverse
        rest = fma(-quotient, a, scaled)
        p = fma(quotient, decay, rest * inverse) + quotient
        return [scale_down(p, n)]

    (decayed,) = rarely(a > _NEAR, [near], far)
    return (x < 0.0).choose(2.0 - decayed, decayed)
