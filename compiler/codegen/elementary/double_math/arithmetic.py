"""Building blocks of formulas in f64: bit patterns, and pairs of numbers whose sum has about 106 bits."""

from __future__ import annotations

from ..vector_math.arithmetic import fma, scale_by_instruction
from ..vector_math.writer import Lanes, Operand

SIGN, MAGNITUDE = -(1 << 63), (1 << 63) - 1
FRACTION_BITS, BIAS = 52, 1023
ROUND = 1.5 * 2.0**52
"""Adding it leaves the nearest integer in the low bits."""
_ROUND_BITS = 0x4338000000000000
SCALED = ROUND + 2 * BIAS
"""ROUND, and the bias of two exponents, for `scale` and `power_of_two`."""
_EXPONENT = 0x7FF << FRACTION_BITS

Pair = tuple[Lanes, Lanes]
"""A sum of two numbers, the second one small against the first one."""


def _cast(x: Lanes, element: str) -> Lanes:
    types = f"{x.writer.type_of(x.element)} to {x.writer.type_of(element)}"
    return x.writer.let(f"arith.bitcast {x.name} : {types}", element)


def bits(x: Lanes) -> Lanes:
    return _cast(x, "i64")


def from_bits(x: Lanes) -> Lanes:
    return _cast(x, "f64")


def magnitude(x: Lanes) -> Lanes:
    return from_bits(bits(x) & MAGNITUDE)


def with_sign_of(x: Lanes, sign: Lanes) -> Lanes:
    """Returns `x`, which is not negative, with the sign of `sign`."""
    return from_bits(bits(x) | (bits(sign) & SIGN))


def integer_of(shifted: Lanes) -> Lanes:
    """Returns n as an i64, where shifted = n + ROUND."""
    return bits(shifted) - _ROUND_BITS


def float_of(n: Lanes) -> Lanes:
    """Returns an i64 of fewer than 51 bits as an f64."""
    return from_bits(n + _ROUND_BITS) - ROUND


def power_of_two(shifted: Lanes, more: int = 0) -> Lanes:
    """Returns 2**(n + more) where shifted = n + SCALED and -1023 < n + more < 1024."""
    return from_bits((bits(shifted) + (more - BIAS)) << FRACTION_BITS)


def scale(p: Lanes, shifted: Lanes) -> Lanes:
    """Returns p * 2**n, rounded once, where p is about 1, shifted = n + SCALED and -1100 < n < 1100."""
    if p.writer.scaling_doubles is not None:
        return scale_by_instruction(p.writer.scaling_doubles, p, shifted - SCALED)
    # Two factors, so that both are normal numbers where the product is not. The bits of SCALED have zeros at the end.
    pattern = bits(shifted)
    half = (pattern << (FRACTION_BITS - 1)) & _EXPONENT
    return p * from_bits(half) * from_bits((pattern << FRACTION_BITS) - half)


def add_exactly(a: Lanes, b: Operand) -> Pair:
    """Returns a + b without an error; neither of them need be the larger one."""
    b = a.lift(b)
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def multiply_exactly(a: Lanes, b: Operand) -> Pair:
    """Returns a * b without an error."""
    product = a * b
    return product, fma(a, b, -product)


def multiply_pairs(a: Pair, b: tuple[Operand, Operand]) -> Pair:
    high, low = multiply_exactly(a[0], b[0])
    return normalize(high, fma(a[0], b[1], fma(a[1], b[0], low)))


def add_pairs(a: Pair, b: Pair) -> Pair:
    high, low = add_exactly(a[0], b[0])
    return normalize(high, low + (a[1] + b[1]))


def normalize(high: Lanes, low: Lanes) -> Pair:
    """Adds to the first number the part of the second, smaller one that its precision can represent; returns the rest
    beside it."""
    total = high + low
    return total, low - (total - high)
