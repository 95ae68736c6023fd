"""Fourier transforms by butterflies, one row after another: the pass `butterflies` inserts them for CPUs.

`fourier_rows` transforms axis 1 of [rows, n, columns]. `support/butterflies` has the plan: its stages read one of two
buffers and write the other, which stay in the cache of a core. The last stage writes the result.

Real rows of an even number of elements are transformed as half as many complex ones; `support/fourier_stages` joins and
separates their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Size, bounds, ceil_divide, multiply, static_size
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..operator import Attributes, Case, InferenceError, Operand, Operator
from ..types import I64, TensorType
from .fourier_axis import ATTRIBUTES, FLOATS, infer_axis, reference
from .support.accumulate import Numbers
from .support.butterflies import Arithmetic, Complex, factors_of, plan, radices, unit_roots
from .support.fourier_stages import Row, join, separate

COLUMNS = 16
"""The columns that are transformed together."""
ITEMS = 8
"""The most work items, each with separate buffers."""
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
    items = items if not isinstance(total, int) or total == 0 else -(-total // static_size(share))
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
        f = Row(s, arithmetic, factors, wide)
        results, work = list(tensors[:count]), list(tensors[count:])
        zero = s.constant(0, I64)
        start = f.times(block, wide)
        columns: Scalar | int = 1
        if wide > 1:
            columns = s.binary("min", s.binary("sub", s.size(width), start), s.constant(wide, I64))

        def at(position: Scalar, column: Scalar) -> list[Scalar]:
            return [row, position, zero if wide == 1 else f.add(start, column)]

        def read_operand(position: Scalar, column: Scalar) -> Complex:
            if form == "half":
                twice = f.times(position, 2)
                return s.load(x, at(twice, column)), s.load(x, at(f.plus(twice, 1), column))
            parts = [s.load(part, at(position, column)) for part in (x, *rest)]
            return parts[0], parts[1] if rest else None

        def inside(position: Scalar, column: Scalar) -> list[Scalar]:
            return [item, position if wide == 1 else f.add(f.times(position, wide), column)]

        def reader(source: Sequence[Tensor]) -> Callable[[Scalar, Scalar], Complex]:
            def read(position: Scalar, column: Scalar) -> Complex:
                return s.load(source[0], inside(position, column)), s.load(source[1], inside(position, column))

            return read

        def write_work(t: Sequence[Tensor], position: Scalar, column: Scalar, value: Complex) -> Sequence[Tensor]:
            return [s.store(o, inside(position, column), v) for o, v in zip(t, f.parts(value), strict=True)]

        def write_result(t: Sequence[Tensor], position: Scalar, column: Scalar, value: Complex) -> Sequence[Tensor]:
            value = value if scale == 1.0 else arithmetic.scale(value, scale)
            if form == "whole":
                twice = f.times(position, 2)
                first, second = f.parts(value)
                return [s.store(s.store(t[0], at(twice, column), first), at(f.plus(twice, 1), column), second)]
            return [s.store(o, at(position, column), v) for o, v in zip(t, f.parts(value), strict=True)]

        read: Callable[[Scalar, Scalar], Complex] = read_operand
        buffers = [work[:2], work[2:]]
        if form == "whole":
            buffers[1] = join(f, x, rest[0], item, row, length, stages, buffers[1])
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
            results = separate(f, buffers[(len(stages) - 1) % 2], item, row, length, stages, results, scale)
        return [*results, *buffers[0], *buffers[1]]

    carried = [*(e.memory(type) for type in types), *(e.memory(buffer) for _ in range(4))]
    return list(e.scan((items,), carried, write_item, work_items=True)[:count])


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
    properties=frozenset({"sequential", "internal", "spreading"}),
)

OPERATORS = (fourier_rows,)
