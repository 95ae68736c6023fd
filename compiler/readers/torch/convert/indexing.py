"""Reading elements by index."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import Size, maximum
from .....dialect.types import BOOL, I64
from ...writing.tensors import BoundedTensor, Tensor, known
from ..writing.use import Converters, Use
from .selection import counted, positions_of


def indices_of(use: Use, name: str, x: Tensor) -> list[tuple[int, Tensor]]:
    """Returns the indices of `x[i, :, j]`, each with its axis. A mask that is known becomes its positions."""
    given = use.arguments[name]
    found: list[tuple[int, Tensor]] = []
    axis = 0
    for each in given:
        if each is None:
            axis += 1
        elif each.dtype in (BOOL,) or each.dtype.name == "u8":
            if each.array is None:
                use.fail(
                    "selects elements by a mask that is computed in a call: their number depends on data",
                    code="data-dependent",
                    help="one mask of one axis is supported; `torch.where` keeps the shape",
                )
            for positions in np.nonzero(each.array):
                found.append((axis, known(positions.astype(np.int64))))
                axis += 1
        else:
            found.append((axis, use.to(each, I64)))
            axis += 1
    return found


def joint_shape(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Returns the shape that index tensors broadcast to."""
    rank = max(map(len, shapes), default=0)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                result[axis] = maximum(result[axis], size)
    return tuple(result)


def columns_of(use: Use, indices: Sequence[Tensor]) -> Tensor:
    """Returns indices [..., n] of n axes, broadcast to one shape."""
    g = use.g
    shape = joint_shape([index.shape for index in indices])
    wide = [index if index.shape == shape else g.broadcast_to(index, shape=shape) for index in indices]
    return g.stack(*wide, axis=-1)


def to_front(use: Use, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns the tensor with some axes moved to the beginning."""
    order = (*axes, *(axis for axis in range(x.rank) if axis not in axes))
    return x if order == tuple(range(x.rank)) else use.g.transpose(x, axes=order)


def is_adjacent(axes: Sequence[int]) -> bool:
    return all(b == a + 1 for a, b in itertools.pairwise(axes))


def _index(use: Use) -> Sequence[Tensor | BoundedTensor]:
    x, g = use.tensor(), use.g
    given = [(axis, each) for axis, each in enumerate(use.arguments["indices"]) if each is not None]
    if len(given) == 1 and given[0][1].dtype == BOOL and given[0][1].array is None and given[0][1].rank == 1:
        ((axis, mask),) = given
        positions, number = positions_of(use, counted(use, use.values["indices"][axis], mask))
        return [BoundedTensor(g.gather(x, positions, axis=axis), axis, number)]
    pairs = indices_of(use, "indices", x)
    axes = [axis for axis, _ in pairs]
    if not pairs:
        return [x]
    if len(pairs) == 1:
        return [g.gather(x, pairs[0][1], axis=axes[0])]
    indices = columns_of(use, [index for _, index in pairs])
    taken = g.gather_nd(to_front(use, x, axes), indices)
    if not is_adjacent(axes) or axes[0] == 0:
        return [taken]
    # The axes of the indices replace the indexed axes.
    count, before = indices.rank - 1, axes[0]
    order = (*range(count, count + before), *range(count), *range(count + before, taken.rank))
    return [g.transpose(taken, axes=order)]


def _index_select(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    index = use.tensor("index")
    if not x.rank:
        return [g.reshape(x, shape=use.shape)]
    index = index if index.rank else g.reshape(index, shape=(1,))
    return [g.gather(x, index, axis=use.axis())]


def cut(use: Use, x: Tensor, shape: Sequence[Size], axis: int) -> Tensor:
    """Returns the slice of x that `gather` addresses with indices of a shape: x may be longer along other axes."""
    stops: list[Any] = [
        None if number == axis or size == wanted else wanted
        for number, (size, wanted) in enumerate(zip(x.shape, shape, strict=True))
    ]
    if all(stop is None for stop in stops):
        return x
    return use.g.slice(x, starts=(0,) * x.rank, stops=tuple(stops))


def _gather(use: Use) -> Sequence[Tensor]:
    x, index, g = use.tensor(), use.to(use.tensor("index"), I64), use.g
    if not x.rank and not index.rank:
        return [x]
    x = x if x.rank else g.reshape(x, shape=(1,))
    flat = index if index.rank else g.reshape(index, shape=(1,))
    axis = use.axis(rank=x.rank)
    if flat.type.elements == 0:
        return [g.broadcast_to(g.like(0, x), shape=use.shape)]
    taken = g.take_along_axis(cut(use, x, flat.shape, axis), flat, axis=axis)
    return [taken if index.rank else g.reshape(taken, shape=())]


def _embedding(use: Use) -> Sequence[Tensor]:
    return [use.g.gather(use.tensor("weight"), use.tensor("indices"), axis=0)]


def _one_hot(use: Use) -> Sequence[Tensor]:
    return [use.g.one_hot(use.tensor(), depth=use.number("num_classes"), dtype=I64, mode="error")]


def _nonzero(use: Use) -> Sequence[Tensor | BoundedTensor]:
    x, g = use.tensor(), use.g
    if x.array is not None:
        return [known(np.argwhere(x.array).astype(np.int64))]
    mask = counted(use, use.values["self"], x if x.dtype == BOOL else g.not_equal(x, g.like(0, x)))
    positions, count = positions_of(use, g.reshape(mask, shape=(mask.type.elements,)))
    columns, rest = [], positions
    for size in reversed(mask.shape):
        columns.append(g.remainder(rest, g.size(maximum(size, 1))))
        rest = g.floor_divide(rest, g.size(maximum(size, 1)))
    if not columns:
        return [BoundedTensor(g.reshape(positions, shape=(1, 0)), 0, count)]
    return [BoundedTensor(g.stack(*reversed(columns), axis=1), 0, count)]


def _masked_select_by_size(use: Use) -> Sequence[Tensor]:
    """masked_scatter: replaces the elements at true positions by the elements of the source, in order."""
    g = use.g
    x, source = use.tensor(), use.cast("source", use.dtype)
    mask = use.tensor("mask")
    wide = mask if mask.shape == use.shape else g.broadcast_to(mask, shape=use.shape)
    flat = g.reshape(g.cast(wide, dtype=I64), shape=(wide.type.elements,))
    positions = g.subtract(g.cumsum(flat, axis=0), known(1))
    count = source.type.elements
    if count == 0 or wide.type.elements == 0:
        return [x]
    taken = g.gather(g.reshape(source, shape=(count,)), g.maximum(positions, known(0)), axis=0, mode="clamp")
    x = x if x.shape == use.shape else g.broadcast_to(x, shape=use.shape)
    return [g.where(wide, g.reshape(taken, shape=use.shape), x)]


CONVERTERS: Converters = {
    "index.Tensor": _index,
    "index_select.default": _index_select,
    "gather.default": _gather,
    "embedding.default": _embedding,
    "one_hot.default": _one_hot,
    "nonzero.default": _nonzero,
    "masked_scatter.default": _masked_select_by_size,
}
