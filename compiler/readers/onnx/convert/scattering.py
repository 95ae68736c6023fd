"""Writing elements by index."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I64
from ...writing.ordered_updates import update_in_order
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use

_REDUCTIONS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _scatter_elements(use: Use) -> Sequence[Tensor]:
    x, indices, updates, g = use.input(0), use.input(1), use.input(2), use.g
    axis, reduction = use.axis(x.rank, 0), use.string("reduction", "none")
    if indices.rank != x.rank:
        use.fail(f"takes indices of the rank of the operand, not {indices.type} for {x.type}", code="rank-mismatch")
    if reduction == "none" and indices.shape[:axis] + indices.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]:
        return [g.scatter(x, indices, updates, axis=axis)]
    # Other axes of the indices may be shorter than those of x: rows of indices name whole positions.
    columns = []
    for number in range(x.rank):
        if number == axis:
            positions = g.cast(indices, dtype=I64)
        else:
            line = g.iota(shape=(indices.shape[number],))
            shape = (*(1,) * number, indices.shape[number], *(1,) * (x.rank - number - 1))
            positions = g.broadcast_to(g.reshape(line, shape=shape), shape=indices.shape)
        columns.append(positions)
    return [_scattered(use, x, g.stack(*columns, axis=-1), updates, reduction)]


def _scatter_nd(use: Use) -> Sequence[Tensor]:
    return [_scattered(use, use.input(0), use.input(1), use.input(2), use.string("reduction", "none"))]


def _scattered(use: Use, x: Tensor, indices: Tensor, updates: Tensor, reduction: str) -> Tensor:
    g = use.g
    if reduction == "none":
        return g.scatter_nd(x, indices, updates)
    if reduction == "add":
        return g.scatter_nd_add(x, indices, updates)
    operator = _REDUCTIONS.get(reduction)
    if operator is None:
        use.fail(f"has the reduction {reduction!r}", code="bad-attribute")
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not depth:
        use.fail(f"has indices of length {depth}", code="data-dependent")
    return update_in_order(g, x, indices, updates, lambda old, new: g.apply(operator, [old, new], {})[0])


CONVERTERS: Converters = {
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
