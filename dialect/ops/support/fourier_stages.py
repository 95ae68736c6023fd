"""Stages of a Fourier transform in a sequential body, and the parts of real rows that are transformed as complex ones.

Real rows of an even number of elements are transformed as half as many complex ones, z[j] = x[2j] + i x[2j + 1]. With
w = exp(sign * 2 pi i / n) and h = n / 2, the parts of z separate by symmetry:

    e = (Z[k] + conj Z[h - k]) / 2       o = -i (Z[k] - conj Z[h - k]) / 2       X[k] = e + w^k o      `separate`
    Z[k] = (X[k] + conj X[h - k]) + i w^k (X[k] - conj X[h - k])                                       `join`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...emitter import Scalar, SequenceEmitter, Tensor
from ...lazy_dataclass import dataclass
from ...types import I64
from .butterflies import Arithmetic, Complex, Stage


@dataclass(frozen=True, slots=True)
class Row:
    """The transform of one row, or of a block of its columns."""

    s: SequenceEmitter
    arithmetic: Arithmetic
    factors: Tensor
    wide: int
    """The columns in a buffer."""

    def i(self, number: int) -> Scalar:
        return self.s.constant(number, I64)

    def plus(self, x: Scalar, number: int) -> Scalar:
        return x if number == 0 else self.s.binary("add", x, self.i(number))

    def times(self, x: Scalar, number: int) -> Scalar:
        return x if number == 1 else self.s.binary("mul", x, self.i(number))

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.binary("add", x, y)

    def factor(self, at: Scalar) -> tuple[Scalar, Scalar]:
        return self.s.load(self.factors, [self.i(0), at]), self.s.load(self.factors, [self.i(1), at])

    def parts(self, x: Complex) -> tuple[Scalar, Scalar]:
        return x[0], self.arithmetic.number(0.0) if x[1] is None else x[1]

    def loop(
        self, count: Scalar | int, tensors: Sequence[Tensor], body: Callable[..., Sequence[Tensor]]
    ) -> list[Tensor]:
        """Emits a loop that carries tensors alone: `body(index, tensors) -> tensors`."""
        if count == 1:
            return list(body(self.i(0), tensors))
        number = self.i(count) if isinstance(count, int) else count
        return list(self.s.repeat(number, tensors, [], lambda i, t, _: (body(i, t), []))[0])

    def stage(
        self,
        stage: Stage,
        read: Callable[[Scalar, Scalar], Complex],
        write: Callable[[Sequence[Tensor], Scalar, Scalar, Complex], Sequence[Tensor]],
        into: Sequence[Tensor],
        columns: Scalar | int,
    ) -> list[Tensor]:
        """Emits a stage. `read` and `write` take an index in a row, and a column of this element. `columns` counts the
        columns if the elements are not adjacent in memory, and else is 0: the loop over q passes all columns."""
        r, m, step = stage.radix, stage.butterflies, stage.step
        last = m == 1

        def butterfly(t: Sequence[Tensor], p: Scalar, q: Scalar, column: Scalar) -> Sequence[Tensor]:
            from_position = self.add(q, self.times(p, step))
            a = [read(self.plus(from_position, step * m * j), column) for j in range(r)]
            made = self.arithmetic.transform(a)
            to = self.add(q, self.times(p, step * r))
            for k, x in enumerate(made):
                if k and not last:
                    at = (
                        self.plus(p, stage.begin + (k - 1) * m)
                        if stage.first
                        else self.plus(self.times(p, r - 1), stage.begin + k - 1)
                    )
                    x = self.arithmetic.times(x, self.factor(at))
                t = write(t, self.plus(to, step * k), column, x)
            return t

        def for_columns(t: Sequence[Tensor], p: Scalar, q: Scalar) -> Sequence[Tensor]:
            if self.wide == 1:
                return butterfly(t, p, q, self.i(0))
            return self.loop(columns, t, lambda c, t: butterfly(t, p, q, c))

        return self.loop(m, into, lambda p, t: self.loop(step, t, lambda q, t: for_columns(t, p, q)))


def separate(
    f: Row,
    z: Sequence[Tensor],
    item: Scalar,
    row: Scalar,
    half: int,
    stages: Sequence[Stage],
    results: Sequence[Tensor],
    scale: float,
) -> list[Tensor]:
    """Writes the first half of the spectrum of real rows from the transform of z."""
    s, zero = f.s, f.i(0)
    begin = _end(stages)
    halved = f.arithmetic.number(0.5 * scale)
    nothing = f.arithmetic.number(0.0)
    a, b = s.load(z[0], [item, zero]), s.load(z[1], [item, zero])
    whole = [s.binary("add", a, b), s.binary("sub", a, b)]
    if scale != 1.0:
        whole = [s.binary("mul", v, f.arithmetic.number(scale)) for v in whole]
    out = list(results)
    for position, value in zip((0, half), whole, strict=True):
        at = [row, f.i(position), zero]
        out = [s.store(out[0], at, value), s.store(out[1], at, nothing)]

    def combine(number: Scalar, t: Sequence[Tensor]) -> Sequence[Tensor]:
        k = f.plus(number, 1)
        other = s.binary("sub", f.i(half - 1), number)
        (ar, ai), (br, bi) = (tuple(s.load(part, [item, n]) for part in z) for n in (k, other))
        even = s.binary("mul", s.binary("add", ar, br), halved), s.binary("mul", s.binary("sub", ai, bi), halved)
        odd = s.binary("mul", s.binary("add", ai, bi), halved), s.binary("mul", s.binary("sub", br, ar), halved)
        value = f.arithmetic.add(even, f.arithmetic.times(odd, f.factor(f.plus(k, begin))))
        return [s.store(o, [row, k, zero], v) for o, v in zip(t, f.parts(value), strict=True)]

    return f.loop(half - 1, out, combine)


def join(
    f: Row, x: Tensor, y: Tensor, item: Scalar, row: Scalar, half: int, stages: Sequence[Stage], z: Sequence[Tensor]
) -> list[Tensor]:
    """Writes z from the first half of a spectrum; the imaginary parts at both ends do not count."""
    s, zero = f.s, f.i(0)
    begin = _end(stages)
    first, last = s.load(x, [row, zero, zero]), s.load(x, [row, f.i(half), zero])
    ends = s.binary("add", first, last), s.binary("sub", first, last)
    out = [s.store(o, [item, zero], v) for o, v in zip(z, ends, strict=True)]

    def combine(number: Scalar, t: Sequence[Tensor]) -> Sequence[Tensor]:
        k = f.plus(number, 1)
        other = s.binary("sub", f.i(half - 1), number)
        (ar, ai), (br, bi) = (tuple(s.load(part, [row, n, zero]) for part in (x, y)) for n in (k, other))
        even = s.binary("add", ar, br), s.binary("sub", ai, bi)
        odd = s.binary("sub", ar, br), s.binary("add", ai, bi)
        turned = f.arithmetic.times(odd, f.factor(f.plus(k, begin)))
        value = f.arithmetic.add_turned(even, turned, 1)
        return [s.store(o, [item, k], v) for o, v in zip(t, f.parts(value), strict=True)]

    return f.loop(half - 1, out, combine)


def _end(stages: Sequence[Stage]) -> int:
    """Returns the number of the factors of the stages."""
    return sum(stage.butterflies * (stage.radix - 1) for stage in stages if stage.butterflies > 1)
