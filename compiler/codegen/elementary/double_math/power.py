"""Powers and the cube root."""

from __future__ import annotations

from ..vector_math.arithmetic import fma, maximum, minimum, polynomial, rarely, truncate
from ..vector_math.writer import INFINITY, NAN, Lanes
from .arithmetic import SIGN, bits, from_bits, magnitude, multiply_exactly, with_sign_of
from .exponential import exp_of_pair
from .logarithm import precise_log

_THIRD_OF_BIAS = 0x553EF0FF289DD796
"""A bit pattern that, less a third of that of a number, is about that of the inverse of its cube root."""


def powf(x: Lanes, y: Lanes) -> Lanes:
    # exp(y log|x|)
    a = magnitude(x)
    high, low = precise_log(a)
    product, rest = multiply_exactly(y, high)
    bounded = maximum(minimum(product, 710.0), -746.0)
    # Beyond the bounds, the rest of the product may be anything and is ignored.
    rest = bounded.equals(product).choose(fma(y, low, rest), 0.0 * bounded)
    usual = exp_of_pair(bounded, rest)
    is_usual = (x > 0.0) & (x < INFINITY) & (magnitude(y) < INFINITY)
    (result,) = rarely(~is_usual, [usual], lambda: [_unusual_power(x, y, a, usual)])
    return result


def _unusual_power(x: Lanes, y: Lanes, a: Lanes, result: Lanes) -> Lanes:
    """Returns x ** y where one of them is not finite or x is not positive; `result` is |x| ** y, if both are finite."""
    zero, infinite = a.equals(0.0), a.equals(INFINITY)
    nothing = x.lift(0.0)
    upward = (y > 0.0) ^ zero
    result = (zero | infinite).choose(upward.choose(INFINITY, nothing), result)
    # An infinite power of a number between 0 and 1, and of one above 1.
    grows = (a > 1.0) ^ (y < 0.0)
    endless = magnitude(y).equals(INFINITY)
    result = (endless & ~zero & ~infinite).choose(grows.choose(INFINITY, nothing), result)
    result = a.equals(1.0).choose(1.0, result)
    # A remainder of 1 identifies odd numbers, one of 0 even ones. An infinity, which counts as even, has no remainder.
    remainder = magnitude(fma(truncate(y * 0.5), -2.0, y))
    odd = remainder.equals(1.0)
    none = x.writer.constant(0, "i64")
    result = from_bits(bits(result) ^ odd.choose(bits(x) & SIGN, none))
    fraction = (remainder > 0.0) & ~odd
    result = (fraction & (x < 0.0) & ~infinite).choose(NAN, result)
    result = (x.is_nan() | y.is_nan()).choose(NAN, result)
    # Anything to the power 0 is 1, and so is 1 to any power, even where the other operand is NaN.
    return (y.equals(0.0) | x.equals(1.0)).choose(1.0, result)


def cbrt(x: Lanes) -> Lanes:
    # y approximates 1 / cbrt(a): first from the exponent, then from powers of d = 1 - a y**3.
    a = magnitude(x)
    tiny = a < 2.0**-1022
    a = tiny.choose(a * 2.0**54, a)
    three, words = a.writer.constant(3, "i64"), a.writer.type_of("i64")
    third = a.writer.let(f"arith.divui {bits(a).name}, {three.name} : {words}", "i64")
    y = from_bits(a.writer.constant(_THIRD_OF_BIAS, "i64") - third)
    for _ in range(3):
        d = fma(a * y, -(y * y), 1.0)
        y = fma(y * d, polynomial(d, (1 / 3, 2 / 9, 14 / 81)), y)
    square = y * y
    root = a * square
    high, low = multiply_exactly(root, root)
    error = fma(high, -root, a) - low * root
    root = fma(error, square * (1 / 3), root)
    root = tiny.choose(root * 2.0**-18, root)
    root = a.equals(0.0).choose(a, root)
    return with_sign_of((a < INFINITY).choose(root, a), x)
