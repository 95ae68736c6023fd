"""`update_slice`: the assignment to a part of a state, `keys[:, :, at : at + T] = k`.

The part is a box. Its start is an integer scalar at run time on the `axes`, and a size known from the dims on the other
axes; `starts` holds these, 0 for the axes of a run-time start. A run-time start counts from the end if negative. Unlike
a window of `dynamic_update_slice`, the box need not be known to fit: the dims of a call are required to admit it.

    x: f32[2, S, 4], update: f32[2, T, 4], at: i64, axes = (1,)       x[:, at : at + T, :] = update

The gradient of `update` is gathered where the start is not a number, since a window that is not known to fit cannot be
sliced. Lowering may write the box into the memory of `x`, where nothing reads the old value later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Size, add, at_least, bounds
from ..emitter import BodyEmitter, Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import (
    Addressing,
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Operand,
    Operator,
    Use,
)
from ..types import ANY, I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.arguments import read_integers, read_sizes
from .support.index_modes import INDICES, WINDOW_MODE, clamped, clamped_array


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, update, *given = types
    axes = read_integers("update_slice", "axes", attributes["axes"])
    starts = read_sizes("update_slice", "starts", attributes["starts"])
    if update.rank != x.rank or len(starts) != x.rank:
        message = f"`update_slice` needs a start and a size for each axis of {x}, not {len(starts)} and {update.rank}"
        raise InferenceError("wrong-operands", message, operand=1)
    if len(given) != len(axes) or list(axes) != sorted(set(axes)) or not all(0 <= axis < x.rank for axis in axes):
        raise InferenceError("wrong-operands", f"`update_slice` has {len(given)} starts for the axes {axes} of {x}")
    for number, start in enumerate(given):
        if start.rank:
            raise InferenceError(
                "rank-mismatch", f"a start of `update_slice` is a scalar, not {start}", operand=2 + number
            )
    for axis, (size, part) in enumerate(zip(x.shape, update.shape, strict=True)):
        end = add(starts[axis], part)
        never = bounds(add(size, -1 * part))[1] < 0
        if never if axis in axes else not at_least(size, end):
            message = f"the part reaches over {part} elements of axis {axis} from {starts[axis]} on, which has {size}"
            if axis in axes:
                message = f"a part of {part} elements never fits into axis {axis}, which has {size}"
            raise InferenceError("shape-mismatch", message, operand=1)
    return (x,)


def _firsts(x: Numbers, update: Numbers, given: Sequence[Numbers], attributes: Attributes) -> list[int]:
    firsts = [int(start) for start in attributes["starts"]]
    for axis, start in zip(attributes["axes"], given, strict=True):
        firsts[axis] = int(clamped_array(start, x.shape[axis], window=update.shape[axis]))
    return firsts


def _reference(
    x: Numbers, update: Numbers, *given: Numbers, axes: tuple[int, ...], starts: tuple[int, ...], mode: str = "error"
) -> Numbers:
    result = x.copy()
    firsts = _firsts(x, update, given, {"axes": axes, "starts": starts})
    result[tuple(slice(first, first + n) for first, n in zip(firsts, update.shape, strict=True))] = update
    return result


def write_box(
    e: Emitter, kept: Tensor, update: Tensor, given: Sequence[Tensor], attributes: Attributes
) -> Sequence[Tensor]:
    """Returns `kept` with the box written, element by element: the rest of its memory is not touched."""
    axes, starts = attributes["axes"], attributes["starts"]
    shape, box = kept.type.shape, update.type.shape

    def first(s: BodyEmitter | SequenceEmitter, axis: int) -> Scalar:
        if axis not in axes:
            return s.size(starts[axis])
        return clamped(s, s.load(given[axes.index(axis)], []), shape[axis], window=box[axis])

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        positions = [s.binary("add", first(s, axis), index) for axis, index in enumerate(indices)]
        return [s.store(tensors[0], positions, s.load(update, indices))]

    return e.scan(box, [kept], write)


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, update, *given = operands
    return write_box(e, x, update, given, attributes)


def _differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
    x, update, *given = use.inputs
    axes, starts = use.attributes["axes"], use.attributes["starts"]
    zeros = b.full(shape=update.type.shape, value=0.0, dtype=update.type.dtype)
    kept = b.update_slice(use.gradient, zeros, *given, **use.attributes)
    read = use.gradient
    for axis, (size, part) in enumerate(zip(x.type.shape, update.type.shape, strict=True)):
        start = starts[axis]
        if axis not in axes and start == 0 and part == size:
            continue
        if axis not in axes and isinstance(start, int) and isinstance(part, int):
            before = (None,) * axis
            read = b.slice(read, starts=(*before, start), stops=(*before, start + part))
            continue
        zero = b.scalar(0, I64)
        first = b.cast(given[axes.index(axis)], dtype=I64) if axis in axes else b.size_value(size=start)
        first = b.where(b.less(first, zero), b.add(first, b.size_value(size=size)), first)
        first = b.maximum(b.minimum(first, b.size_value(size=add(size, -1 * part))), zero)
        read = b.gather(read, b.add(first, b.iota(shape=(part,))), axis=axis, mode="clamp")
    return [kept, read, *(None for _ in given)]


def _addresses(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    x, update, *_ = types
    return tuple(
        Addressing(2 + number, (x.shape[axis],), update.shape[axis]) for number, axis in enumerate(attributes["axes"])
    )


def _case(
    x: tuple[int, ...],
    update: tuple[int, ...],
    axes: tuple[int, ...],
    starts: tuple[Size, ...],
    *given: int,
    mode: str = "error",
    dtype: DType = I64,
) -> Case:
    return Case(
        (x, update, *(() for _ in given)),
        {"axes": axes, "starts": starts, "mode": mode},
        arrays={2 + number: np.asarray(start, dtype.numpy) for number, start in enumerate(given)},
    )


update_slice = Operator(
    name="update_slice",
    summary="x with `update` written into a box that starts at `starts`, and at the given scalars on the `axes`",
    operands=(Operand("x", ANY), Operand("update", ANY), Operand("at", INDICES, "I", variadic=True, optional=True)),
    attributes=(AttributeSpec("axes", "ints"), AttributeSpec("starts", "sizes"), WINDOW_MODE),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    addresses=_addresses,
    cases=LateCases(
        lambda: (
            _case((5, 6), (2, 3), (0, 1), (0, 0), 1, 2),
            _case((5, 6), (2, 3), (1,), (3, 0), -3, dtype=I32),
            _case((5, 6), (2, 6), (0,), (0, 0), 9, mode="clamp"),
            _case((5, 6, 3), (2, 3, 1), (0, 2), (0, 2, 0), -4, -9, mode="clamp"),
            _case((4,), (0,), (0,), (0,), -3),
            _case((4,), (3,), (), (1,)),
            _case((0, 3), (0, 1), (0, 1), (0, 0), 0, 2),
            _case((1, 7, 1), (1, 1, 1), (1,), (0, 0, 0), 6),
        )
    ),
    properties=frozenset({"internal", "overwriting", "windowed"}),
)

OPERATORS = (update_slice,)
