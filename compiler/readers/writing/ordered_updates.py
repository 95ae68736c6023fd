"""Updates that are combined with the elements of a tensor one after another, because their positions may repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....dialect.types import I64
from .graph_writer import GraphWriter
from .tensors import Tensor, known

Combine: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Returns new elements from old elements and an update of the same shape."""


def update_in_order(
    g: GraphWriter, x: Tensor, rows: Tensor, updates: Tensor, combine: Combine, mode: str = "error"
) -> Tensor:
    """Returns x with the updates, which a loop combines with its elements.

    rows: the positions [..., depth] along the first `depth` axes of x, a constant number.
    updates: [..., *rest], where `rest` are the sizes of the other axes of x.
    mode: `error`, or `drop` to skip positions out of range.
    """
    depth = rows.shape[-1]
    assert isinstance(depth, int) and depth, rows
    count = rows.type.elements // depth
    flat_rows = g.reshape(rows, shape=(count, depth))
    flat_updates = g.reshape(updates, shape=(count, *x.shape[depth:]))

    def body(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, total = arguments
        row = g.gather(flat_rows, step, axis=0)
        new = combine(g.gather_nd(total, row, mode=mode), g.gather(flat_updates, step, axis=0))
        return [g.scatter_nd(total, g.unsqueeze(row, axes=(0,)), g.unsqueeze(new, axes=(0,)), mode=mode)]

    region = g.region([known(0, I64).type, x.type], body)
    return g.control("scan", [x], {"carried": 1, "count": count}, [region], [x.type])[0]
