"""erf and its complement."""

from __future__ import annotations

import math

from ...tiler.vector_math.arithmetic import minimum, polynomial, rarely
from ...tiler.vector_math.writer import Lanes
from .arithmetic import magnitude, multiply_exactly, with_sign_of
from .exponential import exp_of_pair

_SLOPE = 2 / math.sqrt(math.pi)
_SERIES = tuple(2**n / math.prod(range(1, 2 * n + 2, 2)) for n in range(38))
"""exp(a**2) * erf(a) / (a * _SLOPE) in powers of a**2, for a < 2. No term is negative."""
_NEAR = 2.0
_DEPTH, _DEPTH_NEAR = 60, 220
"""The terms of the continued fraction from 2 on, and from 1 on."""


def _decay(a: Lanes) -> Lanes:
    """Returns exp(-a**2)."""
    # exp(-h - l) with h + l = a**2: the rounding of a square would be multiplied by it.
    high, low = multiply_exactly(a, a)
    return exp_of_pair(-high, -low)


def _small(a: Lanes) -> Lanes:
    """Returns erf(a) for 0 <= a < 2."""
    return _decay(a) * (polynomial(a * a, _SERIES) * (a * _SLOPE))


def _tail(a: Lanes, depth: int) -> Lanes:
    """Returns erfc(a) from 2 on, or from 1 on with a larger depth.

    exp(-a**2) / sqrt(pi) / (a + (1/2) / (a + (2/2) / (a + (3/2) / ...))), from the last term on.
    """
    writer = a.writer
    first, count, one = (writer.fresh_name() for _ in range(3))
    writer.write(f"{first} = arith.constant 0 : index")
    writer.write(f"{count} = arith.constant {depth} : index")
    writer.write(f"{one} = arith.constant 1 : index")
    start = a + math.sqrt(depth / 2)
    result, step, carried, left = (writer.fresh_name() for _ in range(4))
    half = a.lift(-0.5)
    begin = a.lift(depth / 2)
    writer.write(
        f"{result}:2 = scf.for {step} = {first} to {count} step {one}"
        f" iter_args({carried} = {start.name}, {left} = {begin.name}) -> (f64, f64) {{"
    )
    next_one = a + Lanes(writer, left, "f64") / Lanes(writer, carried, "f64")
    less = Lanes(writer, left, "f64") + half
    writer.write(f"  scf.yield {next_one.name}, {less.name} : f64, f64")
    writer.write("}")
    return _decay(a) * (0.5 * _SLOPE) / Lanes(writer, f"{result}#0", "f64")


def erf(x: Lanes) -> Lanes:
    # 1 from 6 on
    a = minimum(magnitude(x), 6.0)
    near = _small(minimum(a, _NEAR))
    (result,) = rarely(a > _NEAR, [near], lambda: [1.0 - _tail(a, _DEPTH)])
    return with_sign_of(result, x)


def erfc(x: Lanes) -> Lanes:
    # 0 from 27.3 on
    a = minimum(magnitude(x), 28.0)
    small = with_sign_of(_small(minimum(a, _NEAR)), x)
    near = 0.5 + (0.5 - small)

    def beyond(depth: int) -> Lanes:
        tail = _tail(a, depth)
        return (x < 0.0).choose(2.0 - tail, tail)

    (result,) = rarely((a > 1.0) & (a < _NEAR), [near], lambda: [beyond(_DEPTH_NEAR)])
    (result,) = rarely(a.not_below(_NEAR), [result], lambda: [beyond(_DEPTH)])
    return x.is_nan().choose(x, result)
