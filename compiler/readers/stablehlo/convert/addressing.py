"""Gathers and scatters: parts of a tensor at positions that a call computes.

Both operations address a tensor by vectors of positions. A vector has one position for each axis of `start_index_map`
(or `scatter_dims`). Along a batching axis, the position is that of the vector itself:

    x [B, R, C], indices [B, K, 1], batching axis 0, indexed axis 1:   rows (b, indices[b, k, 0]) of x, each [C]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .....dialect.dims import Size
from .....dialect.types import BOOL, I64
from ...writing.ordered_updates import update_in_order
from ...writing.tensors import Tensor
from ..writing.items import flatten
from ..writing.use import Converters, Use


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Vectors of positions [..., axes], and the axes of the tensor that they address."""

    vectors: Tensor
    axes: tuple[int, ...]


def _addresses(use: Use, indices: Tensor, starts: Sequence[int], batching: Sequence[tuple[int, int]]) -> _Addresses:
    """Returns the addresses of an operation. `batching` has pairs of a tensor axis and an index axis."""
    g, vector = use.g, (use.lists(_NUMBERS[use.record.name]).get("index_vector_dim") or (0,))[0]
    if vector == indices.rank:
        indices = g.unsqueeze(indices, axes=(indices.rank,))
    elif vector != indices.rank - 1:
        indices = _turned(use, indices, (*(axis for axis in range(indices.rank) if axis != vector), vector))
    columns = [g.cast(indices, dtype=I64)]
    for _, axis in batching:
        # Axes after that of the vectors have moved to the front by one.
        columns.append(g.iota(shape=(*indices.shape[:-1], 1), axis=axis - (axis > vector)))
    vectors = columns[0] if len(columns) == 1 else g.concat(*columns, axis=indices.rank - 1)
    return _Addresses(vectors, (*starts, *(axis for axis, _ in batching)))


_NUMBERS = {
    "gather": "dimension_numbers",
    "dynamic_gather": "dimension_numbers",
    "scatter": "scatter_dimension_numbers",
}


def outside_if_negative(use: Use, indices: Tensor) -> Tensor:
    """Replaces negative positions by one that is out of range, because the graph counts negative ones from the end."""
    g = use.g
    return g.where(g.less(indices, g.like(0, indices)), g.like(_OUTSIDE, indices), indices)


_OUTSIDE = 1 << 62


def _pairs(lists: Mapping[str, tuple[int, ...]], first: str, second: str) -> list[tuple[int, int]]:
    return list(zip(lists.get(first, ()), lists.get(second, ()), strict=True))


def _clamped(use: Use, found: _Addresses, x: Tensor, sizes: Sequence[Size]) -> _Addresses:
    """Clamps starts so that the slices are inside the tensor."""
    g = use.g
    inside = g.maximum(found.vectors, g.like(0, found.vectors))
    if any(sizes[axis] != 1 for axis in found.axes):
        last = [g.reshape(g.size(x.shape[axis] - sizes[axis]), shape=(1,)) for axis in found.axes]
        inside = g.minimum(inside, last[0] if len(last) == 1 else g.concat(*last, axis=0))
    return _Addresses(inside, found.axes)


def _windows(use: Use, found: _Addresses, windows: Sequence[tuple[int, Size]]) -> Tensor:
    """Returns vectors [..., *sizes, axes] that address each element of windows of some axes."""
    g, vectors = use.g, found.vectors
    if not windows:
        return vectors
    outer, depth = vectors.shape[:-1], vectors.shape[-1]
    shape = (*outer, *(size for _, size in windows), depth)
    spread = g.broadcast_to(g.reshape(vectors, shape=(*outer, *(1 for _ in windows), depth)), shape=shape)
    rest = (None,) * (len(shape) - 1)
    columns: list[Tensor] = []
    for number, axis in enumerate(found.axes):
        column = g.slice(spread, starts=(*rest, number), stops=(*rest, number + 1))
        for inner, (window, _) in enumerate(windows):
            if window == axis:
                column = g.add(column, g.iota(shape=(*shape[:-1], 1), axis=len(outer) + inner))
        columns.append(column)
    return columns[0] if len(columns) == 1 else g.concat(*columns, axis=len(shape) - 1)


def _front(use: Use, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """Returns the tensor with some axes first, and the order of its axes."""
    order = (*axes, *(axis for axis in range(x.rank) if axis not in axes))
    return _turned(use, x, order), order


def _turned(use: Use, x: Tensor, order: tuple[int, ...]) -> Tensor:
    return x if order == tuple(range(x.rank)) else use.g.transpose(x, axes=order)


def _gather(use: Use) -> Sequence[Tensor]:
    """Gathers slices; starts are clamped so that slices are inside the tensor, as StableHLO specifies."""
    x, indices = use.operands[:2]
    g, lists = use.g, use.lists("dimension_numbers")
    sizes: Sequence[Size] = use.sizes(2, "sizes of slices") if len(use.operands) > 2 else use.integers("slice_sizes")
    batching = _pairs(lists, "operand_batching_dims", "start_indices_batching_dims")
    found = _addresses(use, indices, lists.get("start_index_map", ()), batching)
    removed = {*lists.get("collapsed_slice_dims", ()), *(axis for axis, _ in batching)}
    if not found.axes or removed - set(found.axes):
        use.fail("removes an axis that it does not address")
    parts = tuple(size if axis not in found.axes else None for axis, size in enumerate(sizes))
    if any(size not in (None, whole) for size, whole in zip(parts, x.shape, strict=True)):
        x = g.slice(x, starts=(0,) * x.rank, stops=parts)
    windows = [(axis, sizes[axis]) for axis in sorted(found.axes) if axis not in removed]
    front, order = _front(use, x, found.axes)
    made = g.gather_nd(front, _windows(use, _clamped(use, found, x, sizes), windows), mode="clamp")
    # The axes are those of the indices, of the windows, and of whole slices. `offset_dims` lists the axes of the result
    # for the last two.
    batch, offsets = found.vectors.rank - 1, lists.get("offset_dims", ())
    kept = [axis for axis, _ in windows] + list(order[len(found.axes) :])
    slices = iter(batch + kept.index(axis) for axis in sorted(kept))
    outer = iter(range(batch))
    axes = tuple(next(slices) if axis in offsets else next(outer) for axis in range(made.rank))
    return [_turned(use, made, axes)]


def _scatter(use: Use) -> Sequence[Tensor]:
    """Scatters updates; updates out of bounds are skipped, as StableHLO specifies."""
    if len(use.operands) != 3:
        use.fail(f"writes {len(use.operands) // 3} tensors together")
    x, indices, updates = use.operands
    lists = use.lists("scatter_dimension_numbers")
    batching = _pairs(lists, "input_batching_dims", "scatter_indices_batching_dims")
    found = _addresses(use, indices, lists.get("scatter_dims_to_operand_dims", ()), batching)
    removed = {*lists.get("inserted_window_dims", ()), *(axis for axis, _ in batching)}
    if not found.axes or removed - set(found.axes):
        use.fail("removes an axis that it does not address")
    inner = lists.get("update_window_dims", ())
    axis_of = dict(zip((axis for axis in range(x.rank) if axis not in removed), inner, strict=True))
    for axis, update_axis in axis_of.items():
        if axis not in found.axes and updates.shape[update_axis] != x.shape[axis]:
            use.fail("writes a part of an axis that it does not address")
    windows = [(axis, updates.shape[axis_of[axis]]) for axis in sorted(found.axes) if axis not in removed]
    front, order = _front(use, x, found.axes)
    outer = [axis for axis in range(updates.rank) if axis not in inner]
    kept = [*(axis for axis, _ in windows), *order[len(found.axes) :]]
    updates = _turned(use, updates, (*outer, *(axis_of[axis] for axis in kept)))
    indices = outside_if_negative(use, _windows(use, found, windows))
    made = _combined(use, front, indices, updates)
    return [_turned(use, made, tuple(order.index(axis) for axis in range(x.rank)))]


def _combined(use: Use, x: Tensor, rows: Tensor, updates: Tensor) -> Tensor:
    """Combines updates with the elements at rows of positions by the body of the operation."""
    g, body = use.g, use.record.regions[0]
    (old, _), (new, _) = body.arguments
    *operations, last = body.operations
    if not operations and last.operands[0] == new:
        return g.scatter_nd(x, rows, updates, mode="drop")
    is_sum = len(operations) == 1 and operations[0].name == "add" and set(operations[0].operands) == {old, new}
    is_sum = is_sum and last.operands[0] == operations[0].results[0][0]
    if is_sum and x.dtype != BOOL:
        return g.scatter_nd_add(x, rows, updates, mode="drop")

    def combine(element: Tensor, update: Tensor) -> Tensor:
        (made,) = flatten(use.run_elementwise(body, [element, update]))
        return made if made.shape == element.shape else g.broadcast_to(made, shape=element.shape)

    return update_in_order(g, x, rows, updates, combine, mode="drop")


def _torch_index_select(use: Use) -> Sequence[Tensor]:
    x, indices = use.operands
    if use.integer("batch_dims"):
        use.fail("selects separately for each batch")
    indices = use.g.cast(indices, dtype=I64)
    inside = use.g.maximum(indices, use.g.like(0, indices))
    return [use.g.gather(x, inside, axis=use.integer("dim"), mode="clamp")]


CONVERTERS: Converters = {
    "gather": _gather,
    "dynamic_gather": _gather,
    "scatter": _scatter,
    "torch_index_select": _torch_index_select,
}
