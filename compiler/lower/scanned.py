"""Scanned inputs: a slice that moves with the index of a loop is read where it is, if its elements are consecutive.

    %x_1 = gather(%x, %t) {axis = 0, mode = "clamp"}      %x: f32[T, B, H] in a scan of count T

The slice begins `4*B*H` bytes further in each iteration, so no kernel copies it. A slice along an inner axis is not
consecutive; a kernel reads it by its index.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.dims import Size, at_least
from ...dialect.graph import Node
from ...dialect.ops.support.index_modes import FAILING_MODES
from .nodes import Inline, Source, Stored
from .storage import Sliced


def scanned_slice(node: Node, sources: Mapping[str, Source], counts: Mapping[str, Size]) -> Sliced[Stored] | None:
    """Returns the storage of a slice that moves with a loop; None for other nodes. `counts` are the numbers of
    iterations by the names of the indices of loops."""
    if node.op != "gather" or node.attribute("mode") in FAILING_MODES:
        return None
    x, index = node.inputs
    base, axis = sources[x.name], node.attribute("axis")
    assert isinstance(axis, int), node
    axis %= x.type.rank
    if index.name not in counts or isinstance(base, Inline) or any(size != 1 for size in x.type.shape[:axis]):
        return None
    # An index after the end would read the last slice.
    if not at_least(x.type.shape[axis], counts[index.name]):
        return None
    return Sliced(base, index.name, x.type.with_shape(x.type.shape[axis + 1 :]).bytes)
