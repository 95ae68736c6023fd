"""erf and its complement."""

from __future__ import annotations

from ..vector_math.arithmetic import fma, minimum, polynomial, rarely
from ..vector_math.writer import Lanes
from .arithmetic import magnitude, multiply_exactly, with_sign_of
from .exponential import exp, exp_of_pair

_SLOPE, _SLOPE_REST = 1.1283791670955126, 1.533545961316588e-17
"""2 / sqrt(pi)"""
_NEAR = (
    -0.37612638903183754,
    0.11283791670955111,
    -0.026866170645123925,
    0.0052239776253048325,
    -0.0008548327010138358,
    0.00012055332219610691,
    -1.4925622646696348e-05,
    1.6461449310631618e-06,
    -1.6355150424420964e-07,
    1.4692721695624695e-08,
    -1.1501353588177746e-09,
    6.175907631430082e-11,
)
"""(erf(a) / a - _SLOPE) / a**2 in powers of a**2, for 0 <= a <= 1."""
_USUAL_CENTRE = 3.0
_USUAL_TAIL = (
    0.17900115118138996,
    -0.3262335600430372,
    0.2456038017123348,
    -0.15011593650077573,
    0.07166583719748106,
    -0.024392499319120572,
    0.004269136356484317,
    0.0007077464722132616,
    -0.0005970624825455132,
    4.525427584728947e-05,
    6.406258506296106e-05,
    -1.284540656715812e-05,
    -8.008284150060674e-06,
    2.0133155651736006e-06,
    1.2714132955221688e-06,
)
"""exp(a**2) * erfc(a) in powers of (a - _USUAL_CENTRE) / (a + _USUAL_CENTRE), for 1 <= a <= 6, to the rounding of
erf."""
_CENTRE = 3.5
_TAIL = (
    1.2423492448711544,
    -0.14000918013761943,
    -0.010555596332218347,
    0.09751909515325831,
    -0.11508959816018778,
    0.08798315382487767,
    -0.04882332582801339,
    0.01909933094221437,
    -0.004215019906333473,
    -0.00030226787618156507,
    0.0005643844069991527,
    -0.00012151242367371272,
    -4.2782182142114066e-05,
    2.426092305506583e-05,
    2.3281559476306537e-06,
    -3.814332018249988e-06,
    -4.390199495004716e-08,
    6.000555471183939e-07,
    -8.42047966771052e-09,
    -9.29295823252325e-08,
    9.902072946705436e-10,
    1.0368076179987536e-08,
    -1.5361901159113567e-10,
)
"""exp(a**2) * erfc(a) * (1 + 2 a) in powers of (a - _CENTRE) / (a + _CENTRE), for 1/2 <= a <= 28.

(Shepherd and Laframboise, Chebyshev approximation of (1 + 2 x) exp(x**2) erfc x, 1981.)
"""


def _quotient(a: Lanes, centre: float) -> Lanes:
    return (a - centre) / (a + centre)


def _small(a: Lanes) -> Lanes:
    """Returns erf(a) for 0 <= a <= 1."""
    square = a * a
    return fma(a, _SLOPE, a * fma(polynomial(square, _NEAR, square * square), square, _SLOPE_REST))


def _tail(a: Lanes) -> Lanes:
    """Returns erfc(a) for 1/2 <= a <= 28."""
    t = _quotient(a, _CENTRE)
    # exp(-h - l) with h + l = a**2: the rounding of a square would be multiplied by it.
    high, low = multiply_exactly(a, a)
    return exp_of_pair(-high, -low) * (polynomial(t, _TAIL, t * t) / fma(a, 2.0, 1.0))


def erf(x: Lanes) -> Lanes:
    # 1 from 6 on
    a = minimum(magnitude(x), 6.0)
    near = _small(minimum(a, 1.0))

    def far() -> list[Lanes]:
        t = _quotient(a, _USUAL_CENTRE)
        return [fma(exp(-(a * a)), -polynomial(t, _USUAL_TAIL, t * t), 1.0)]

    (result,) = rarely(a > 1.0, [near], far)
    return with_sign_of(result, x)


def erfc(x: Lanes) -> Lanes:
    # 0 from 27.3 on
    a = minimum(magnitude(x), 28.0)
    near = 1.0 - with_sign_of(_small(minimum(a, 1.0)), x)

    def beyond() -> list[Lanes]:
        tail = _tail(a)
        return [(x < 0.0).choose(2.0 - tail, tail)]

    (result,) = rarely(a > 0.5, [near], beyond)
    return x.is_nan().choose(x, result)
