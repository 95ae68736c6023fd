"""Grows a contraction's group: its epilogue, and movements of its operands.

The epilogue is elementwise in the contraction's result: a bias, an activation, a residual. Every tensor of the epilogue
has the result's shape, possibly with permuted axes, and its other operands broadcast to that shape. Such an operand is
computed in the group if it is cheap and has no other reader, as with dequantized values. The epilogue may end with a
node that puts the result into a frame of constants. A reduction stays outside, since a tile of a contraction does not
hold whole rows.

    y = matmul(x, w)          the contraction
    h = gelu(y + bias)        the epilogue, on the sums in registers
    r = h + residual          the epilogue; `residual` is read from memory
    n = layer_norm(r)         not in the group: it needs whole rows of r
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...dialect.graph import Node
from ...dialect.types import DType
from .fuse_attention import add_movements_before
from .fuse_flow import Flow, has
from .fuse_rules import (
    BEHIND_CONTRACTION,
    MOST_MEMBERS,
    MOVES,
    NO_KIND,
    OTHER_SHAPE,
    OTHER_TYPE,
    SEQUENTIAL,
    TAKEN,
    TOO_LARGE,
    USED_TWICE,
    fits_type,
    follows,
    is_cheap,
    is_elementwise,
    keeps_last_axis,
    puts_in_frame,
)


def starts_contraction(flow: Flow, number: int) -> bool:
    node = flow.nodes[number]
    return has(node, "contraction") and not has(node, "attention") and len(node.outputs) == 1


def grow_contraction(flow: Flow, number: int) -> set[int]:
    """Returns the group of a contraction; the contraction alone if nothing joins it."""
    node = flow.nodes[number]
    dtype = node.output.type.dtype
    if not fits_type(flow, node, dtype):
        return set()
    members = _epilogue(flow, number, dtype)
    _add_cheap_operands(flow, members, dtype)
    add_movements_before(flow, members, dtype)
    return members


def _epilogue(flow: Flow, contraction: int, dtype: DType) -> set[int]:
    """Returns the nodes of the epilogue of a contraction."""

    def obstacle(reached: Collection[int], number: int) -> str | None:
        framed = any(source in reached and puts_in_frame(flow.nodes[source]) for source in flow.sources(number))
        return MOVES if framed else _obstacle(flow, reached, number, dtype)

    return grow_behind(flow, contraction, obstacle)


def grow_behind(flow: Flow, first: int, obstacle: Callable[[Collection[int], int], str | None]) -> set[int]:
    """Returns the largest set of the first node and nodes after it in which only one node, the last, has readers
    outside. `obstacle` returns the reason why a node that reads reached nodes cannot join, or None."""
    reached = [first]
    pending = set(flow.readers[first])
    while pending:
        number = min(pending)
        pending.discard(number)
        reason = TOO_LARGE if len(reached) >= MOST_MEMBERS else obstacle(reached, number)
        if reason is not None:
            for source in flow.sources(number):
                if source in reached:
                    flow.refuse(source, number, reason)
            continue
        reached.append(number)
        pending.update(flow.readers[number])
    for last in reversed(reached):
        members = _leading_to(flow, reached, last)
        if all(flow.stays_inside(m, members) for m in members if m != last):
            break
    for number in reached:
        if number not in members:
            for source in flow.sources(number):
                if source in members:
                    flow.refuse(source, number, USED_TWICE)
    return members


def _obstacle(flow: Flow, reached: Collection[int], number: int, dtype: DType) -> str | None:
    """Returns the reason why a node that reads members cannot be part of the epilogue; None if it can."""
    node = flow.nodes[number]
    given = [v for v in node.inputs if flow.source(v) in reached]
    if not flow.is_free(number):
        return TAKEN
    if has(node, "reduction", "rowwise"):
        return BEHIND_CONTRACTION
    if has(node, "view") or keeps_last_axis(node) or puts_in_frame(node):
        return None
    if has(node, "sequential"):
        return SEQUENTIAL
    if not is_elementwise(node) or not follows(node, given):
        return MOVES if has(node, "movement") else NO_KIND
    if any(v.type.shape != node.output.type.shape for v in given):
        return OTHER_SHAPE
    if not fits_type(flow, node, dtype):
        return OTHER_TYPE
    return None


def _add_cheap_operands(flow: Flow, members: set[int], dtype: DType) -> None:
    """Adds nodes that widen smaller operands, such as quantized values, for the epilogue alone."""
    pending = {s for m in members if not has(flow.nodes[m], "contraction") for s in flow.sources(m)} - members
    while pending:
        number = max(pending)
        pending.discard(number)
        node = flow.nodes[number]
        if not flow.is_free(number) or not is_elementwise(node) or not is_cheap(node) or not _widens(node):
            continue
        if not fits_type(flow, node, dtype) or not flow.stays_inside(number, members):
            continue
        if not flow.leads_back({*members, number}):
            members.add(number)
            pending.update(flow.sources(number))


def _widens(node: Node) -> bool:
    """Returns whether an elementwise node reads fewer bytes than it writes."""
    result = node.output.type
    return sum(v.type.dtype.bits for v in node.inputs if v.type.shape == result.shape) < result.dtype.bits


def _leading_to(flow: Flow, reached: Collection[int], last: int) -> set[int]:
    """Returns the nodes on a path to the last one."""
    members = {last}
    for number in sorted(reached, reverse=True):
        if any(reader in members for reader in flow.readers[number]) and number < last:
            members.add(number)
    return members
