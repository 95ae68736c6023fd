"""Short discrete Fourier transforms as straight-line arithmetic, and the plan that makes long ones of them.

A plan splits n into radices r and computes one stage for each (Stockham's form of Cooley and Tukey, 1965, which moves
no bits of indices). A stage reads m * r elements that are `s` apart, for m * r * s == n, and writes them in an order in
which the next stage finds its own elements r * s apart:

    for p < m, q < s:    a[j] = x[q + s * (p + m * j)]                         for j < r
                         y[q + s * (r * p + k)] = w(p * k; m * r) * dft(a)[k]  for k < r

The loop over q is contiguous on both sides, so it becomes vectors once s is a multiple of their length: the first radix
of a multiple of 8 is 8. Other even lengths end with 2 or 4. Then the results of a real row for 0 and n / 2 are exactly
real, since each is a sum or a difference of real numbers. An element takes about 5 log2(n) operations. Its error grows
with log(n), since every factor w(k; n) = exp(sign * 2 pi i * k / n) is computed in f64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...emitter import Scalar, ScalarEmitter
from ...lazy_dataclass import dataclass
from ...types import DType
from .accumulate import Numbers

PRIMES = (3, 5, 7, 11, 13)
"""The odd radices. Other primes are not split by a plan."""

Complex = tuple[Scalar, Scalar | None]
"""The parts of a number; a real number has no second part."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a plan: its radix, the number of butterflies, the distance of their elements, and where its factors
    begin among those of all stages. The factors w(p * k) lie at `begin + (k - 1) * butterflies + p` in the first stage,
    where p runs over vectors, and else at `begin + (radix - 1) * p + k - 1`. The last stage has none."""

    radix: int
    butterflies: int
    step: int
    begin: int

    @property
    def first(self) -> bool:
        return self.step == 1


def radices(size: int) -> list[int] | None:
    """Returns the radices of a transform of `size` elements; None where a prime factor is none of them."""
    rest, found = size, []
    for radix in (8, 4, 2, *PRIMES) if size % 8 == 0 else (*PRIMES, 4, 2):
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    return found if rest == 1 else None


def plan(size: int) -> list[Stage]:
    stages: list[Stage] = []
    step, begin = 1, 0
    for radix in radices(size) or [0]:
        assert radix, f"{size} has another prime factor"
        count = size // (step * radix)
        stages.append(Stage(radix, count, step, begin))
        begin += count * (radix - 1) if count > 1 else 0
        step *= radix
    return stages


def factors_of(size: int, sign: int) -> Numbers:
    """Returns the factors of all stages, as complex numbers in their order."""
    tables = [np.zeros(0, complex)]
    for stage in plan(size):
        if stage.butterflies > 1:
            p, k = np.arange(stage.butterflies), np.arange(1, stage.radix)
            table = unit_roots(np.outer(p, k), stage.butterflies * stage.radix, sign)
            tables.append((table.T if stage.first else table).ravel())
    return np.concatenate(tables)


def unit_roots(turns: Numbers, size: int, sign: int) -> Numbers:
    """Returns `exp(sign * 2 pi i * turns / size)`, with exact values at quarter turns."""
    turns = turns % size
    made = np.exp(sign * 2j * np.pi * turns / size)
    quarter = 4 * turns % size == 0
    exact = np.asarray([1, 1j * sign, -1, -1j * sign])
    return np.where(quarter, exact[4 * turns // size], made)


class Arithmetic:
    """Complex arithmetic on the scalars of a body, in one direction (`sign`) of a transform."""

    def __init__(self, s: ScalarEmitter, dtype: DType, sign: int) -> None:
        self.s, self.dtype, self.sign = s, dtype, sign

    def number(self, value: float) -> Scalar:
        return self.s.constant(value, self.dtype)

    def _combine(self, function: str, x: Scalar | None, y: Scalar | None) -> Scalar | None:
        if x is None or y is None:
            return x if y is None else self.s.unary("neg", y) if function == "sub" else y
        return self.s.binary(function, x, y)

    def add(self, x: Complex, y: Complex) -> Complex:
        return self.s.binary("add", x[0], y[0]), self._combine("add", x[1], y[1])

    def subtract(self, x: Complex, y: Complex) -> Complex:
        return self.s.binary("sub", x[0], y[0]), self._combine("sub", x[1], y[1])

    def scale(self, x: Complex, factor: float) -> Complex:
        number = self.number(factor)
        return self.s.binary("mul", x[0], number), None if x[1] is None else self.s.binary("mul", x[1], number)

    def turn(self, x: Complex) -> Complex:
        """Multiplies by `sign * i`."""
        real, imaginary = x[0], x[1]
        zero = self.number(0.0)
        if imaginary is None:
            return zero, (real if self.sign > 0 else self.s.unary("neg", real))
        if self.sign > 0:
            return self.s.unary("neg", imaginary), real
        return imaginary, self.s.unary("neg", real)

    def add_turned(self, x: Complex, y: Complex, sign: int) -> Complex:
        """Returns `x + sign * i * y`."""
        real = x[0] if y[1] is None else self.s.binary("sub" if sign > 0 else "add", x[0], y[1])
        imaginary = self._combine("add" if sign > 0 else "sub", x[1], y[0])
        return real, imaginary

    def times(self, x: Complex, factor: tuple[Scalar, Scalar]) -> Complex:
        s, (real, imaginary) = self.s, factor
        if x[1] is None:
            return s.binary("mul", x[0], real), s.binary("mul", x[0], imaginary)
        first = s.binary("sub", s.binary("mul", x[0], real), s.binary("mul", x[1], imaginary))
        return first, s.binary("add", s.binary("mul", x[0], imaginary), s.binary("mul", x[1], real))

    # Transforms of a few elements

    def transform(self, a: Sequence[Complex]) -> list[Complex]:
        if len(a) == 1:
            return list(a)
        if len(a) == 2:
            return [self.add(a[0], a[1]), self.subtract(a[0], a[1])]
        if len(a) == 4:
            return self._four(a)
        return self._eight(a) if len(a) == 8 else self._odd(a)

    def _four(self, a: Sequence[Complex]) -> list[Complex]:
        even, less = self.add(a[0], a[2]), self.subtract(a[0], a[2])
        odd, turned = self.add(a[1], a[3]), self.subtract(a[1], a[3])
        return [
            self.add(even, odd),
            self.add_turned(less, turned, self.sign),
            self.subtract(even, odd),
            self.add_turned(less, turned, -self.sign),
        ]

    def _eight(self, a: Sequence[Complex]) -> list[Complex]:
        even, odd = self._four(a[0::2]), self._four(a[1::2])
        half = math.sqrt(0.5)
        # exp(sign * i * pi / 4) and three times its angle
        first = self.scale(self.add_turned(odd[1], odd[1], self.sign), half)
        third = self.scale(self.add_turned(self._negated(odd[3]), odd[3], self.sign), half)
        return [
            self.add(even[0], odd[0]),
            self.add(even[1], first),
            self.add_turned(even[2], odd[2], self.sign),
            self.add(even[3], third),
            self.subtract(even[0], odd[0]),
            self.subtract(even[1], first),
            self.add_turned(even[2], odd[2], -self.sign),
            self.subtract(even[3], third),
        ]

    def _negated(self, x: Complex) -> Complex:
        return self.s.unary("neg", x[0]), None if x[1] is None else self.s.unary("neg", x[1])

    def _odd(self, a: Sequence[Complex]) -> list[Complex]:
        """An odd prime: elements j and r - j meet conjugate factors, so their sum meets the cosines and their
        difference the sines."""
        size = len(a)
        half = range(1, (size + 1) // 2)
        sums = [self.add(a[j], a[size - j]) for j in half]
        differences = [self.subtract(a[j], a[size - j]) for j in half]
        total = a[0]
        for x in sums:
            total = self.add(total, x)
        below, above = [], []
        for k in half:
            even, odd = a[0], None
            for j, x, y in zip(half, sums, differences, strict=True):
                angle = 2 * math.pi * (j * k % size) / size
                even = self.add(even, self.scale(x, math.cos(angle)))
                part = self.scale(y, math.sin(angle))
                odd = part if odd is None else self.add(odd, part)
            assert odd is not None
            below.append(self.add_turned(even, odd, self.sign))
            above.append(self.add_turned(even, odd, -self.sign))
        return [total, *below, *above[::-1]]
