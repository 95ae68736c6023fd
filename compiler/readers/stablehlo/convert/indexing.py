"""Gathers of whole rows, and sorts."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I64
from ...writing.tensors import Tensor
from ..writing.records import ELEMENTS
from ..writing.use import Converters, Use


def _gather(use: Use) -> Sequence[Tensor]:
    """Slices that are whole but for single positions of the indexed axes. Positions are clamped."""
    x, indices = use.operands[:2]
    g, lists = use.g, use.lists("dimension_numbers")
    start_map, collapsed = lists.get("start_index_map", ()), lists.get("collapsed_slice_dims", ())
    offsets = lists.get("offset_dims", ())
    sizes = use.sizes(2, "sizes of slices") if len(use.operands) > 2 else use.integers("slice_sizes")
    whole = all(size == (1 if axis in start_map else x.shape[axis]) for axis, size in enumerate(sizes))
    if not whole or set(collapsed) != set(start_map) or lists.get("operand_batching_dims", ()):
        use.fail("gathers slices that are not whole rows")
    vector = (lists.get("index_vector_dim") or (indices.rank,))[0]
    if vector == indices.rank:
        indices = g.unsqueeze(indices, axes=(indices.rank,))
    elif vector != indices.rank - 1:
        order = (*(axis for axis in range(indices.rank) if axis != vector), vector)
        indices = g.transpose(indices, axes=order)
    order = (*start_map, *(axis for axis in range(x.rank) if axis not in start_map))
    front = x if order == tuple(range(x.rank)) else g.transpose(x, axes=order)
    made = g.gather_nd(front, g.cast(indices, dtype=I64), mode="clamp")
    # Axes of the indices come first; `offset_dims` says where those of the slices go.
    batch, rank = indices.rank - 1, made.rank
    slices = iter(range(batch, rank))
    outer = iter(range(batch))
    places = tuple(next(slices) if axis in offsets else next(outer) for axis in range(rank))
    return [made if places == tuple(range(rank)) else g.transpose(made, axes=places)]


def _sort(use: Use) -> Sequence[Tensor]:
    """Sorts all operands by the first one."""
    g, axis = use.g, use.integer("dimension", -1)
    order = g.argsort(use.x, axis=axis, descending=_direction(use) == "GT")
    return [g.take_along_axis(each, order, axis=axis, mode="clamp") for each in use.operands]


def _direction(use: Use) -> str:
    """Returns the comparison of a body that compares two elements of the first operand. JAX brings zeros and NaNs to
    one form first, by comparisons of an element with itself and with constants."""
    body = use.record.regions[0]
    *operations, last = body.operations
    others = {number for number, _ in body.arguments[2:]}
    for operation in operations:
        if operation.name not in ("compare", "select", "constant") or others.intersection(operation.operands):
            use.fail("compares elements by more than their first operand")
    final = next((each for each in operations if last.operands[0] in [number for number, _ in each.results]), None)
    found = "" if final is None else str(final.attributes.get("comparison_direction", ""))
    direction = next((word for word in ("LT", "GT") if word in found), "")
    if not direction:
        use.fail("compares elements by neither `LT` nor `GT`")
    return direction


def _top_k(use: Use) -> Sequence[Tensor]:
    values, places = use.g.apply("top_k", [use.x], {"k": use.integer("k"), "axis": -1, "largest": True})
    return [values, use.g.cast(places, dtype=ELEMENTS[use.record.results[1][1].element])]


CONVERTERS: Converters = {"gather": _gather, "dynamic_gather": _gather, "sort": _sort, "chlo.top_k": _top_k}
