"""sin, cos and tan, for arguments of any size."""

from __future__ import annotations

import math

from .arithmetic import SIGN, fma, funnel_shift, magnitude, polynomial, rarely
from .exponential import ROUND
from .writer import Lanes

_PI = (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15)
"""Parts of pi; their sum has 70 bits."""
_NEAR = 2.0**15
"""The bound below which multiples of pi can be subtracted from an argument part by part."""
_SIN = (-0.16666659712791443, 0.00833306834101677, -0.00019809666264336556, 2.6057839477289235e-06)
"""(sin(r) - r) / r**3 in powers of r**2, for |r| <= pi / 2."""
_TAN = (
    0.33333155512809753,
    0.1333884596824646,
    0.05340687558054924,
    0.024447167292237282,
    0.0030910391360521317,
    0.009403237141668797,
)
"""(tan(r) - r) / r**3 in powers of r**2, for |r| <= pi / 4."""
_TURN_BITS = (0x0028BE60, 0xDB939105, 0x4A7F09D5, 0xF47D4D37, 0x7036D8A5, 0x664F10E4, 0x107F9458)
"""Eight zeros and then the first 216 bits of 1 / (2 pi)."""


def _turns(a: Lanes) -> Lanes:
    """Returns a / (2 pi) without its integer part, as an i64 in units of 2**-64, for a >= 2**15.

    a = m * 2**e with an integer m, so only the bits of 1 / (2 pi) matter that do not multiply to whole turns: 96 bits
    from bit e on. (Payne and Hanek, Radian reduction for trigonometric functions, 1983.)
    """
    bits = a.bits()
    mantissa = ((bits & 0x7FFFFF) | 0x800000).widen()
    position = bits.shift_down(23) - (150 - 8)
    passed = [position > 32 * count - 1 for count in (1, 2, 3)]
    words = []
    for first in range(4):
        word = position.lift(_TURN_BITS[first])
        for i, beyond in enumerate(passed, first + 1):
            word = beyond.choose(_TURN_BITS[i], word)
        words.append(word)
    high, middle, low = (funnel_shift(words[i], words[i + 1], position & 31).widen() for i in range(3))
    return ((mantissa * high) << 32) + mantissa * middle + (mantissa * low).shift_down(32)


def _reduce(a: Lanes, halves: int, offset: float) -> tuple[Lanes, Lanes]:
    """Returns r and a word with the lowest bit of n, where a = (n - offset) * p + r and |r| <= p / 2; p is pi /
    halves."""
    # ROUND has no bits left for an offset.
    shifted = fma(a, halves / math.pi, offset) + ROUND if offset else fma(a, halves / math.pi, ROUND)
    n = shifted - ROUND - offset if offset else shifted - ROUND
    r = a
    for part in _PI:
        r = fma(n, -part / halves, r)

    def from_turns() -> tuple[Lanes, Lanes]:
        turns = _turns(a)
        if offset:
            turns = turns + int(offset * 2**63 / halves)
        # As a signed integer, the remainder after subtracting half turns (or quarters) is centred on zero.
        rest = turns << halves
        far = (rest.to_float("f64") * (math.pi / halves * 2.0**-64)).narrow()
        count = (turns + 2**63 // (2 * halves)).shift_down(64 - halves).narrow()
        # NaN for NaN and infinity.
        return far + (a - a), count

    remainder, count = rarely(a.not_below(_NEAR), (r, shifted.bits()), from_turns)
    return remainder, count


def _turn_sign(result: Lanes, count: Lanes) -> Lanes:
    """Returns the result with its sign changed where the count is odd."""
    return (result.bits() ^ (count << 31)).as_float()


def _sin_of_remainder(r: Lanes) -> Lanes:
    square = r * r
    return fma(polynomial(square, _SIN, square * square) * square, r, r)


def sin(x: Lanes) -> Lanes:
    r, count = _reduce(magnitude(x), 1, 0.0)
    return ((x.bits() & SIGN) ^ _turn_sign(_sin_of_remainder(r), count).bits()).as_float()


def cos(x: Lanes) -> Lanes:
    # cos(x) = sin(x + pi / 2)
    r, count = _reduce(magnitude(x), 1, 0.5)
    return _turn_sign(_sin_of_remainder(r), count)


def tan(x: Lanes) -> Lanes:
    # tan(r + pi / 2) = -1 / tan(r)
    r, count = _reduce(magnitude(x), 2, 0.0)
    square = r * r
    tangent = fma(polynomial(square, _TAN, square * square) * square, r, r)
    result = (count & 1).equals(1).choose(-1.0 / tangent, tangent)
    return ((x.bits() & SIGN) ^ result.bits()).as_float()
