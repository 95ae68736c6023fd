"""sin, cos and tan, for arguments of any size."""

from __future__ import annotations

import math

from ..vector_math.arithmetic import fma, funnel_shift, polynomial, rarely
from ..vector_math.writer import Lanes
from .arithmetic import (
    FRACTION_BITS,
    ROUND,
    SIGN,
    Pair,
    add_exactly,
    bits,
    from_bits,
    integer_of,
    magnitude,
    multiply_exactly,
    multiply_pairs,
    normalize,
)

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
"""Parts of pi / 2."""
_NEAR = 2.0**20
"""The bound below which multiples of pi / 2 can be subtracted from an argument part by part."""
_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(1, 10))
"""(sin(r) - r) / r**3 in powers of r**2, for |r| <= pi / 4."""
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(2, 11))
"""(cos(r) - 1 + r**2 / 2) / r**4 in powers of r**2."""
_TURN_WORDS = (
    0x28BE60DB9391054A,
    0x7F09D5F47D4D3770,
    0x36D8A5664F10E410,
    0x7F9458EAF7AEF158,
    0x6DC91B8E909374B8,
    0x01924BBA82746487,
    0x3F877AC72C4A69CF,
    0xBA208D7D4BAED121,
    0x3A671C09AD17DF90,
    0x4E64758E60D4CE7D,
    0x272117E2EF7E4A0E,
    0xC7FE25FFF7816603,
    0xFBCBC462D6829B47,
    0xDB4D9FB3C9F2C26D,
    0xD3D18FD9A797FA8B,
    0x5D49EEB1FAF97C5E,
    0xCF41CE7DE294A4BA,
    0x9AFED7EC47E35742,
    0x1580CC11BF1EDAEA,
)
"""The first 1216 bits of 1 / (2 pi)."""


def _wide_product(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Returns the low and the high half of a product of unsigned numbers."""
    writer = a.writer
    name = writer.fresh_name()
    low, high = (f"%w{name[1:]}{half}" for half in ("l", "h"))
    writer.write(f"{low}, {high} = arith.mului_extended {a.name}, {b.name} : {writer.type_of('i64')}")
    return Lanes(writer, low, "i64"), Lanes(writer, high, "i64")


def _below(a: Lanes, b: Lanes) -> Lanes:
    """Returns 1 where an unsigned number is below another one, else 0."""
    writer = a.writer
    words = writer.type_of("i64")
    less = writer.let(f"arith.cmpi ult, {a.name}, {b.name} : {words}", "i1")
    return writer.let(f"arith.extui {less.name} : {writer.type_of('i1')} to {words}", "i64")


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _turns(a: Lanes) -> tuple[Lanes, Lanes]:
    """Returns a / (2 pi) without its integer part, as two words of a fraction of 128 bits, for a >= 2**20.

    a = m * 2**e with an integer m, so only the bits of 1 / (2 pi) matter that do not multiply to whole turns: 192 bits
    from bit e on. (Payne and Hanek, Radian reduction for trigonometric functions, 1983.)
    """
    writer = a.writer
    pattern = bits(a)
    mantissa = (pattern & ((1 << FRACTION_BITS) - 1)) | (1 << FRACTION_BITS)
    # One word of zeros is before the first bit, for exponents below zero.
    position = (pattern >> FRACTION_BITS) - (1075 - 64)
    known = (0, *_TURN_WORDS)
    passed = [position > 64 * count - 1 for count in range(1, 17)]
    words = []
    for begin in range(4):
        word = writer.constant(_signed(known[begin]), "i64")
        for count, beyond in enumerate(passed, 1):
            word = beyond.choose(writer.constant(_signed(known[begin + count]), "i64"), word)
        words.append(word)
    upper, second, third = (funnel_shift(words[i], words[i + 1], position & 63) for i in range(3))
    low, high = _wide_product(mantissa, second)
    _, beneath = _wide_product(mantissa, third)
    total = low + beneath
    return mantissa * upper + high + _below(total, low), total


def _reduce_far(a: Lanes) -> tuple[Pair, Lanes]:
    high, low = _turns(a)
    count = (high + (1 << 61)).shift_down(62)
    rest = high - (count << 62)
    upper = low.shift_down(32).to_float("f64") * 2.0**-32
    lower = (low & 0xFFFFFFFF).to_float("f64") * 2.0**-64
    # An i64 has more bits than an f64: its lower half is converted apart.
    part = rest >> 32
    whole = part.to_float("f64") * 2.0**32
    small = (rest - (part << 32)).to_float("f64")
    head, missing = add_exactly(whole, small)
    head, more = add_exactly(head, upper)
    pair = normalize(head, missing + (more + lower))
    r = multiply_pairs(pair, (2 * math.pi * 2.0**-64, 4 * _HALF_PI[1] * 2.0**-64))
    # NaN for NaN and infinity.
    return (r[0] + (a - a), r[1]), count


def _reduce(a: Lanes) -> tuple[Pair, Lanes]:
    """Returns r and n with a = n * pi / 2 + r and |r| <= pi / 4. The lowest two bits of n, an i64, are right."""
    shifted = fma(a, 2 / math.pi, ROUND)
    n = shifted - ROUND
    first = fma(n, -_HALF_PI[0], a)
    product, low = multiply_exactly(n, _HALF_PI[1])
    high, rest = add_exactly(first, -product)
    r, r_low = normalize(high, rest - fma(n, _HALF_PI[2], low))

    def far() -> tuple[Lanes, Lanes, Lanes]:
        (high, low), count = _reduce_far(a)
        return high, low, count

    r, r_low, count = rarely(a.not_below(_NEAR), (r, r_low, integer_of(shifted)), far)
    return (r, r_low), count


def _sin_and_cos(r: Pair) -> tuple[Lanes, Lanes]:
    x, low = r
    square = x * x
    sine = x + fma(polynomial(square, _SIN) * square, x, fma(square, -0.5 * low, low))
    half = square * 0.5
    about = 1.0 - half
    cosine = about + (((1.0 - about) - half) + fma(polynomial(square, _COS) * square, square, -(x * low)))
    return sine, cosine


def _turned(x: Lanes, count: Lanes) -> Lanes:
    """Returns a number with its sign changed where the second bit of the count is set."""
    return from_bits(bits(x) ^ ((count & 2) << 62))


def sin(x: Lanes) -> Lanes:
    r, count = _reduce(magnitude(x))
    sine, cosine = _sin_and_cos(r)
    result = _turned((count & 1).equals(1).choose(cosine, sine), count)
    return x.equals(0.0).choose(x, from_bits(bits(result) ^ (bits(x) & SIGN)))


def cos(x: Lanes) -> Lanes:
    r, count = _reduce(magnitude(x))
    sine, cosine = _sin_and_cos(r)
    return _turned((count & 1).equals(1).choose(sine, cosine), count + 1)


def tan(x: Lanes) -> Lanes:
    # tan(r + pi / 2) = -1 / tan(r)
    r, count = _reduce(magnitude(x))
    sine, cosine = _sin_and_cos(r)
    odd = (count & 1).equals(1)
    result = odd.choose(-cosine, sine) / odd.choose(sine, cosine)
    return x.equals(0.0).choose(x, from_bits(bits(result) ^ (bits(x) & SIGN)))
