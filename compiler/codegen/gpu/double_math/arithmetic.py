"""Building blocks of formulas in f64: bit patterns, and pairs of numbers whose sum has about 106 bits."""

from __future__ import annotations

from ...tiler.vector_math.arithmetic import fma
from ...tiler.vector_math.writer import Lanes, Operand

SIGN, MAGNITUDE = -(1 << 63), (1 << 63) - 1
FRACTION_BITS, BIAS = 52, 1023
ROUND = 1.5 * 2.0**52
"""Adding it leaves the nearest integer in the low bits."""
_ROUND_BITS = 0x4338000000000000

Pair = tuple[Lanes, Lanes]
"""A sum of two numbers, the second one small against the first one."""


def bits(x: Lanes) -> Lanes:
    return x.writer.let(f"arith.bitcast {x.name} : f64 to i64", "i64")


def from_bits(x: Lanes) -> Lanes:
    return x.writer.let(f"arith.bitcast {x.name} : i64 to f64", "f64")


def magnitude(x: Lanes) -> Lanes:
    return from_bits(bits(x) & MAGNITUDE)


def with_sign_of(x: Lanes, sign: Lanes) -> Lanes:
    """Returns `x`, which is not negative, with the sign of `sign`."""
    return from_bits(bits(x) | (bits(sign) & SIGN))


def integer_of(shifted: Lanes) -> Lanes:
    """Returns n as an i64, where shifted = n + ROUND."""
    return bits(shifted) - _ROUND_BITS


def power_of_two(n: Lanes) -> Lanes:
    """Returns 2**n for an integer -1023 < n < 1024."""
    return from_bits((n + BIAS) << FRACTION_BITS)


def scale(x: Lanes, n: Lanes) -> Lanes:
    """Returns x * 2**n, where x is about 1 and |n| < 2000, rounded once."""
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


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
