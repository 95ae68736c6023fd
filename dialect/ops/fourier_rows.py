"""Fourier transforms by butterflies, one row after another: the pass `butterflies` inserts them for CPUs.

`fourier_rows` transforms axis 1 of [rows, n, columns]. `support/butterflies` has the plan: its stages read one of two
buffers and write the other, which stay in the cache of a core. The last stage writes the result.

Real rows of an even number of elements are transformed as half as many complex ones, z[j] = x[2j] + i x[2j + 1]. With
w = exp(-2 pi i / n) and h = n / 2, the parts of z separate by symmetry:

    e = (Z[k] + conj Z[h - k]) / 2       o = -i (Z[k] - conj Z[h - k]) / 2       X[k] = e + w^k o      ("half")
    Z[k] = (X[k] + conj X[h - k]) + i w^-k (X[k] - conj X[h - k])                                      ("whole")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Size, bounds, ceil_divide, multiply
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..lazy_dataclass import dataclass
from ..operator import Attributes, Case, InferenceError, Operand, Operator
from ..types import I64, TensorType
from .fourier_axis import ATTRIBUTES, FLOATS, infer_axis, reference
from .support.accumulate import Numbers
from .support.butterflies import Arithmetic, Complex, Stage, factors_of, plan, radices, unit_roots

COLUMNS = 16
"""The columns that are transformed together."""
ITEMS = 8
"""The most work items, each with buffers of its own."""
BUFFERED = 1 << 17
"""The most elements of a buffer of several work items."""
Turned = tuple[Sequence[Tensor], Sequence[Scalar]]


def tables(size: int, form: str, sign: int) -> Numbers:
    """Returns the factors [2, count], real and imaginary parts: those of the stages, then those that separate the parts
    of z."""
    if form == "complex":
        found = factors_of(size, sign)
    else:
        half = size // 2
        found = np.concatenate([factors_of(half, sign), unit_roots(np.arange(half), size, sign)])
    found = found if len(found) else np.ones(1, complex)
    return np.stack([found.real, found.imag])


def takes(x: TensorType, attributes: Attributes) -> bool:
    """Returns whether there is a plan for an operand or a result [rows, n, columns] of `fourier_axis`."""
    size = attributes["size"]
    if attributes["form"] == "complex":
        return size > 1 and radices(size) is not None
    return size > 2 and size % 2 == 0 and x.shape[2] == 1 and radices(size // 2) is not None


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    factors, *parts = types
    size, form = attributes["size"], attributes["form"]
    results = infer_axis("fourier_rows", parts, attributes)
    if not takes(results[0], attributes):
        raise InferenceError("bad-attribute", f"`fourier_rows` of the form {form!r} has no plan for {results[0]}")
    count = tables(size, form, attributes["sign"]).shape[1]
    if factors.shape != (2, count):
        raise InferenceError("shape-mismatch", f"`fourier_rows` takes factors [2, {count}], not {factors}", operand=0)
    return results


@dataclass(frozen=True, slots=True)
class _Row:
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
        """Emits a stage. `read` and `write` address element `place` of a row and a column of it. `columns` counts the
        columns if the places are not adjacent in memory, and else is 0: the loop over q passes all columns."""
        r, m, step = stage.radix, stage.butterflies, stage.step
        last = m == 1

        def butterfly(t: Sequence[Tensor], p: Scalar, q: Scalar, column: Scalar) -> Sequence[Tensor]:
            from_place = self.add(q, self.times(p, step))
            a = [read(self.plus(from_place, step * m * j), column) for j in range(r)]
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


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    factors, x, *rest = operands
    size, form, sign = attributes["size"], attributes["form"], attributes["sign"]
    scale = attributes["scale"]
    rows, _, width = x.type.shape
    dtype = x.type.dtype
    length = size if form == "complex" else size // 2
    stages = plan(length)
    wide = 1 if width == 1 else COLUMNS
    blocks: Size = ceil_divide(width, wide)
    total = multiply(rows, blocks)
    count, items = len(types), max(1, min(ITEMS, bounds(total)[1], BUFFERED // (length * wide)))
    share = ceil_divide(total, items)
    items = items if not isinstance(total, int) or total == 0 else -(-total // int(str(share)))
    buffer = TensorType(dtype, (items, length * wide))

    def write_item(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        (item,) = indices
        first, zero = s.binary("mul", item, s.size(share)), s.constant(0, I64)
        left = s.binary("max", s.binary("sub", s.size(total), first), zero)

        def write_row(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            return write(s, item, s.binary("add", first, i), t), []

        return s.repeat(s.binary("min", left, s.size(share)), tensors, [], write_row)[0]

    def write(s: SequenceEmitter, item: Scalar, unit: Scalar, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        row, block = unit, s.constant(0, I64)
        if blocks != 1:
            row, block = (s.binary(function, unit, s.size(blocks)) for function in ("div", "rem"))
        arithmetic = Arithmetic(s, dtype, sign)
        f = _Row(s, arithmetic, factors, wide)
        results, work = list(tensors[:count]), list(tensors[count:])
        zero = s.constant(0, I64)
        start = f.times(block, wide)
        columns: Scalar | int = 1
        if wide > 1:
            columns = s.binary("min", s.binary("sub", s.size(width), start), s.constant(wide, I64))

        def at(place: Scalar, column: Scalar) -> list[Scalar]:
            return [row, place, zero if wide == 1 else f.add(start, column)]

        def read_operand(place: Scalar, column: Scalar) -> Complex:
            if form == "half":
                twice = f.times(place, 2)
                return s.load(x, at(twice, column)), s.load(x, at(f.plus(twice, 1), column))
            parts = [s.load(part, at(place, column)) for part in (x, *rest)]
            return parts[0], parts[1] if rest else None

        def inside(place: Scalar, column: Scalar) -> list[Scalar]:
            return [item, place if wide == 1 else f.add(f.times(place, wide), column)]

        def reader(source: Sequence[Tensor]) -> Callable[[Scalar, Scalar], Complex]:
            def read(place: Scalar, column: Scalar) -> Complex:
                return s.load(source[0], inside(place, column)), s.load(source[1], inside(place, column))

            return read

        def write_work(t: Sequence[Tensor], place: Scalar, column: Scalar, value: Complex) -> Sequence[Tensor]:
            return [s.store(o, inside(place, column), v) for o, v in zip(t, f.parts(value), strict=True)]

        def write_result(t: Sequence[Tensor], place: Scalar, column: Scalar, value: Complex) -> Sequence[Tensor]:
            value = value if scale == 1.0 else arithmetic.scale(value, scale)
            if form == "whole":
                twice = f.times(place, 2)
                first, second = f.parts(value)
                return [s.store(s.store(t[0], at(twice, column), first), at(f.plus(twice, 1), column), second)]
            return [s.store(o, at(place, column), v) for o, v in zip(t, f.parts(value), strict=True)]

        read: Callable[[Scalar, Scalar], Complex] = read_operand
        buffers = [work[:2], work[2:]]
        if form == "whole":
            buffers[1] = _join(f, x, rest[0], item, row, length, stages, buffers[1])
            read = reader(buffers[1])
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            if last and form != "half":
                results = f.stage(stage, read, write_result, results, columns)
            else:
                here = number % 2
                buffers[here] = f.stage(stage, read, write_work, buffers[here], wide if number else columns)
                read = reader(buffers[here])
        if form == "half":
            results = _separate(f, buffers[(len(stages) - 1) % 2], item, row, length, stages, results, scale)
        return [*results, *buffers[0], *buffers[1]]

    carried = [*(e.memory(type) for type in types), *(e.memory(buffer) for _ in range(4))]
    return list(e.scan((items,), carried, write_item, work_items=True)[:count])


def _separate(
    f: _Row,
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
    for place, value in zip((0, half), whole, strict=True):
        at = [row, f.i(place), zero]
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


def _join(
    f: _Row, x: Tensor, y: Tensor, item: Scalar, row: Scalar, half: int, stages: Sequence[Stage], z: Sequence[Tensor]
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


def _reference(factors: Numbers, *parts: Numbers, **attributes: Any) -> Any:
    return reference(*parts, **attributes)


def _case(shape: tuple[int, int, int], size: int, parts: int, **attributes: Any) -> Case:
    full = {"form": "complex", "sign": -1, **attributes}
    factors = tables(size, full["form"], full["sign"])
    return Case(
        (factors.shape, *(shape,) * parts), {"size": size, **full}, arrays={0: factors}, tolerance=8.0, terms=size
    )


fourier_rows = Operator(
    name="fourier_rows",
    summary="the Fourier transform of axis 1 of [rows, `size`, columns] by butterflies, times `scale`",
    operands=(Operand("factors", FLOATS), Operand("real", FLOATS), Operand("imaginary", FLOATS, optional=True)),
    attributes=ATTRIBUTES,
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    cases=(
        _case((2, 64, 1), 64, 2),
        _case((3, 30, 1), 30, 1, sign=1, scale=0.5),
        _case((2, 21, 17), 21, 2),
        _case((2, 143, 1), 143, 2),
        _case((2, 44, 1), 44, 1, form="half", scale=2.0),
        _case((1, 32, 1), 32, 1, form="half", sign=1),
        _case((2, 17, 1), 32, 2, form="whole", sign=1),
        _case((1, 4, 1), 6, 2, form="whole", scale=0.2),
        _case((0, 6, 1), 6, 1),
        _case((2, 6, 0), 6, 1),
    ),
    results=("real", "imaginary"),
    properties=frozenset({"sequential", "internal"}),
)

OPERATORS = (fourier_rows,)
