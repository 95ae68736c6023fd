"""Reading elements by index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _gather(use: Use) -> Sequence[Tensor]:
    x = use.input(0)
    return [use.g.gather(x, use.input(1), axis=use.axis(x.rank, 0))]


def _gather_elements(use: Use) -> Sequence[Tensor]:
    x, indices, g = use.input(0), use.input(1), use.g
    axis = use.axis(x.rank, 0)
    if indices.rank != x.rank:
        use.fail(f"takes indices of the rank of the operand, not {indices.type} for {x.type}", code="rank-mismatch")
    # Other axes of the indices may be shorter than those of x.
    parts = [slice_to(a, b) if i != axis else None for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if any(part is not None for part in parts):
        x = g.slice(x, starts=(0,) * x.rank, stops=tuple(parts))
    return [g.take_along_axis(x, indices, axis=axis)]


def slice_to(size: Size, wanted: Size) -> Size | None:
    return None if size == wanted else wanted


def _gather_nd(use: Use) -> Sequence[Tensor]:
    x, indices, g = use.input(0), use.input(1), use.g
    batch = use.integer("batch_dims", 0)
    if not 0 <= batch < min(x.rank, indices.rank):
        use.fail(f"has `batch_dims` = {batch}, for operands of ranks {x.rank} and {indices.rank}", code="bad-attribute")
    for axis in reversed(range(batch)):
        # Along each earlier axis, the index is the position in that axis.
        positions = g.iota(shape=(indices.shape[axis],))
        shape = (*(1,) * axis, indices.shape[axis], *(1,) * (indices.rank - axis - 1))
        column = g.broadcast_to(g.reshape(positions, shape=shape), shape=(*indices.shape[:-1], 1))
        indices = g.concat(g.cast(column, dtype=indices.dtype), indices, axis=-1)
    return [g.gather_nd(x, indices)]


def _one_hot(use: Use) -> Sequence[Tensor]:
    indices, g = use.input(0), use.g
    depth, values = use.input(1), use.input(2)
    axis = use.axis(indices.rank + 1, -1)
    if depth.type.elements != 1 or values.shape != (2,):
        use.fail(f"takes one depth and two values, not {depth.type} and {values.type}", code="wrong-operands")
    if depth.array is not None:
        number = float(depth.array.item())
        if not 0 <= number < 1 << 47:
            use.fail(f"has the depth {number:g}", code="bad-size")
        count: Size = int(number)
    elif depth.sizes is not None:
        count = depth.sizes[0]
    else:
        count = use.declared_shape("a depth")[axis]
        given = g.cast(g.reshape(depth, shape=()), dtype=I64)
        use.require(g.equal(given, g.size(count)))
    positions = g.cast(indices, dtype=I64)
    positions = g.where(g.less(positions, known(np.int64(0))), g.add(positions, g.size(count)), positions)
    classes = g.reshape(g.iota(shape=(count,)), shape=(count, *(1,) * (indices.rank - axis)))
    hot = g.equal(g.unsqueeze(positions, axes=(axis,)), classes)
    off, on = (g.gather(values, known(np.int64(i)), axis=0) for i in (0, 1))
    return [g.where(hot, on, off)]


def _compress(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.input(1).array is None:
        return [_compress_in_call(use, x, use.input(1))]
    condition = use.known_array(1, "a condition")
    positions = np.flatnonzero(condition).astype(np.int64)
    if not use.has("axis"):
        return [g.gather(g.reshape(x, shape=(x.type.elements,)), known(positions), axis=0)]
    return [g.gather(x, known(positions), axis=use.axis(x.rank, 0))]


def _compress_in_call(use: Use, x: Tensor, condition: Tensor) -> Tensor:
    """Selects elements by a condition of the call. The declared shape gives their number, which the call checks."""
    g, declared = use.g, use.declared_shape("a condition")
    if not use.has("axis"):
        x, axis = g.reshape(x, shape=(x.type.elements,)), 0
    else:
        axis = use.axis(x.rank, 0)
    count = declared[axis]
    use.require(g.equal(g.sum(g.cast(condition, dtype=I64)), g.size(count)))
    # A stable sort puts the selected positions first, in their order.
    order = g.argsort(g.cast(g.logical_not(condition), dtype=I64), axis=0)
    return g.gather(x, g.slice(order, starts=(0,), stops=(count,)), axis=axis)


def _reverse_sequence(use: Use) -> Sequence[Tensor]:
    x, lengths, g = use.input(0), use.input(1), use.g
    time, batch = use.integer("time_axis", 0), use.integer("batch_axis", 1)
    if {time, batch} != {0, 1} or x.rank < 2:
        use.fail(f"has the axes {time} of time and {batch} of the batch, for {x.type}", code="bad-axis")
    count = g.cast(lengths, dtype=I64)
    shape = [1] * x.rank
    steps = g.reshape(g.iota(shape=(x.shape[time],)), shape=(*shape[:time], x.shape[time], *shape[time + 1 :]))
    count = g.reshape(count, shape=(*shape[:batch], x.shape[batch], *shape[batch + 1 :]))
    mirrored = g.subtract(g.subtract(count, known(np.int64(1))), steps)
    return [g.take_along_axis(x, g.where(g.less(steps, count), mirrored, steps), axis=time)]


def _trilu(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    upper = use.integer("upper", 1)
    given = use.optional(1)
    if given is not None and given.type.elements != 1:
        use.fail(f"takes one diagonal, not {given.type}", code="wrong-operands")
    if given is None or given.sizes is not None:
        diagonal = 0 if given is None else given.sizes[0]  # type: ignore[index]  # sizes are known here
        return [g.apply("triu" if upper else "tril", [x], {"diagonal": diagonal})[0]]
    rows = g.reshape(g.iota(shape=(x.shape[-2],)), shape=(x.shape[-2], 1))
    offset = g.subtract(g.iota(shape=(x.shape[-1],)), rows)
    diagonal = g.cast(g.reshape(given, shape=()), dtype=I64)
    kept = g.greater_equal(offset, diagonal) if upper else g.less_equal(offset, diagonal)
    return [g.where(kept, x, g.like(0, x))]


def _array_features(use: Use) -> Sequence[Tensor]:
    x, positions, g = use.input(0), use.input(1), use.g
    found = g.gather(x, g.reshape(positions, shape=(positions.type.elements,)), axis=x.rank - 1)
    return [g.reshape(found, shape=(1, *found.shape)) if x.rank == 1 else found]


CONVERTERS: Converters = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Compress": _compress,
    "ReverseSequence": _reverse_sequence,
    "Trilu": _trilu,
    "ai.onnx.ml::ArrayFeatureExtractor": _array_features,
}
