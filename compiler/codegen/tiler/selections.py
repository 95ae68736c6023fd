"""Selections and conversions inside of contractions: a mask of values is applied where the contraction reads them.

    masked[j, c] = select(j < n, v[j, c], 0)                  a separate op, which only the contraction reads
    y[i, c]      = sum of w[i, j] * masked[j, c] over j
    ->
    y[i, c]      = sum of w[i, j] * select(j < n, v[j, c], 0)

The masked values are never in memory. The same holds for numbers of fewer bits, such as those of a cache in f16. Where
the sum ends at n, as in `bounded.py`, `drop_selection` removes the selection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.emitter import Index
from ..structured.body_nodes import Node
from ..structured.positions import plain
from .pages import move
from .structure import Access, Kernel, Op

WIDENED, ROUNDED = "arith.extf", "arith.truncf"
"""Conversions between floats."""
WIDENINGS = (WIDENED, "arith.sitofp")
"""These operations convert numbers of fewer bits, and are exact."""


def take_selections(kernel: Kernel) -> None:
    """Moves selections and conversions of values in memory into the contractions that read them."""
    sums = [op for op in kernel.ops if op.product is not None]
    for op in sums:
        for number, access in reversed(list(enumerate(op.reads))):
            source = access.tensor.op
            if source is not None and _is_taken(source, len(sums) > 1) and _is_read_once(kernel, source):
                positions = positions_of(source, access)
                if positions is not None:
                    _take(op, number, source, positions)
                    kernel.ops.remove(source)


def without(node: Node, *conversions: str) -> Node:
    """Returns the value that such conversions convert."""
    while node.kind in conversions:
        (node,) = node.operands
    return node


def drop_selection(op: Op, value: Node) -> Node:
    """Replaces a selection, which may be widened, in the body of an op by the value that it selects. Returns what then
    stands in place of `value`."""
    selection = without(value, WIDENED)
    return _rebuild(op, op.reads, {id(selection): selection.operands[1]})[id(value)]


def replace_node(op: Op, node: Node, other: Node) -> None:
    """Replaces a node in the body of an op by another one."""
    _rebuild(op, op.reads, {id(node): other})


def _is_taken(op: Op, several: bool) -> bool:
    """Returns whether an op selects elements of memory, or converts them in a kernel of `several` sums, which reads a
    part of them."""
    in_memory = all(access.tensor.op is None for access in op.reads)
    body = op.body
    widens = several and body.kind in WIDENINGS and body.operands[0].kind == "read"
    return not op.reduced and op.carried is None and (widens or body.kind == "arith.select") and in_memory


def _is_read_once(kernel: Kernel, source: Op) -> bool:
    if any(tensor.op is source for tensor in kernel.written):
        return False
    reads = sum(access.tensor.op is source for op in kernel.ops for access in op.reads)
    others = [op.start for op in kernel.ops] + [n.tensor for op in kernel.ops for n in op.body.walk()]
    return reads == 1 and not any(tensor is not None and tensor.op is source for tensor in others)


def positions_of(source: Op, access: Access) -> Mapping[int, Index] | None:
    """Returns the index of each loop of an op at a read of its result, in terms of the reader's loops."""
    axes, positions = access.tensor.axes, dict[int, Index]()
    assert axes is not None, access
    for computed, axis in zip(source.map, axes, strict=True):
        loop = plain(computed)
        position = Index(()) if axis is None else access.index[axis]
        if loop is None or not isinstance(position, Index):
            return None
        positions[loop] = position
    if len(positions) != len(source.loops):
        return None
    needed = {n.number for n in source.body.walk() if n.kind == "index"}
    movable = all(plain(positions[loop]) is not None for loop in needed)
    simple = all(move(p, positions) is not None for read in source.reads for p in read.index)
    known = all(n.kind != "extract" for n in source.body.walk())
    return positions if movable and simple and known else None


def _take(op: Op, number: int, source: Op, positions: Mapping[int, Index]) -> None:
    """Replaces a read of an op by the op's body."""
    made: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if id(node) not in made:
            moved = replace(node, operands=tuple(copy(operand) for operand in node.operands))
            if node.kind == "read":
                moved.number = len(op.reads) + node.number
            elif node.kind == "index":
                loop = plain(positions[node.number])
                assert loop is not None, node
                moved.number = loop
            made[id(node)] = moved
        return made[id(node)]

    further = []
    for read in source.reads:
        moved = (move(p, positions) for p in read.index)
        further.append(replace(read, index=tuple(p for p in moved if p is not None)))
    body = copy(source.body)
    old = [n for n in op.body.walk() if n.kind == "read" and n.number == number]
    _rebuild(op, (*op.reads, *further), {id(node): body for node in old})


def _rebuild(op: Op, reads: tuple[Access, ...], replaced: Mapping[int, Node]) -> dict[int, Node]:
    """Replaces nodes of a body, and drops the reads that are then unused. Returns the new nodes by the identity of the
    old ones."""
    made: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if id(node) not in made:
            other = replaced.get(id(node))
            if other is not None:
                made[id(node)] = copy(other)
            else:
                made[id(node)] = replace(node, operands=tuple(copy(operand) for operand in node.operands))
        return made[id(node)]

    op.body = copy(op.body)
    used = sorted({n.number for n in op.body.walk() if n.kind == "read"})
    for node in op.body.walk():
        if node.kind == "read":
            node.number = used.index(node.number)
    op.reads = tuple(reads[number] for number in used)
    for derived in ("combination", "product", "factors", "scaled", "composed"):
        op.__dict__.pop(derived, None)
    return made
