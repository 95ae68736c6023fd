"""Grows a group of elementwise nodes, together with the movements of their operands.

The group grows from a node towards its operands. A node joins if all its uses are in the group, so that nothing is
computed twice; a node that is broadcast inside the group joins if it is cheap. A linear movement joins too. Above a
linear movement only movements join, except that any node may join above a permutation. Views stay outside. A node whose
elements the group computes once each may also have uses elsewhere: it becomes an additional result, up to
`MOST_RESULTS`.

    a = exp(x)            joins: only b reads it
    b = a + y             joins, if `y` is a row that is broadcast
    c = transpose(b)      a permutation: the group may continue above it
    z = c * w             the node that the group grows from

A permutation that moves the last axis costs several times as much as reading in order. The kernel permutes each tensor
that it reads or writes above it. So nothing joins above such a permutation where that would be more than one tensor, as
with `y` of the shape of `x` in the example: `b` is then computed in order, and permuted once.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from ...dialect.dims import product
from ...dialect.graph import Node
from .fuse_flow import Flow, has
from .fuse_rules import (
    CIRCLE,
    COSTLY,
    MOST_MEMBERS,
    MOVES,
    TOO_LARGE,
    TURNED,
    USED_TWICE,
    explain,
    is_cheap,
    keeps_last_axis,
    permutes,
    puts_in_frame,
)

MOST_RESULTS = 4
"""The most results of a group. Writing to more buffers at the same time gains nothing."""
_SAME, _AGAIN, _MOVED = range(3)
"""The use of a node: each element once; each element several times; or only a part, or out of order."""


def starts_elements(flow: Flow, number: int) -> bool:
    node = flow.nodes[number]
    return (has(node, "elementwise") and len(node.outputs) == 1) or permutes(node) or puts_in_frame(node)


def grow_elements(flow: Flow, number: int) -> set[int]:
    """Returns the group that computes the result of an elementwise node, of a permutation or of a frame of
    constants."""
    members = _grow(flow, number, MOST_RESULTS)
    # The last member may have closed a cycle through nodes that others read.
    return _grow(flow, number, 1) if flow.leads_back(members) else members


def _grow(flow: Flow, root: int, most_results: int) -> set[int]:
    """Grows the group again with more permutations closed, until each open one has a single tensor to permute."""
    closed: set[int] = set()
    while True:
        members = _Elements(flow, root, most_results, closed).grow()
        dear = {m for m in members - closed if _turns(flow.nodes[m]) and _count_reads(flow, m, members) > 1}
        if not dear:
            return members
        closed |= dear


def _turns(node: Node) -> bool:
    return permutes(node) and not keeps_last_axis(node)


def _count_reads(flow: Flow, permutation: int, members: Collection[int]) -> int:
    """Returns the number of tensors of the permutation's size that the members above it read from memory."""
    size = product(flow.nodes[permutation].output.type.shape)
    above, pending, read = {permutation}, [permutation], set[str]()
    while pending:
        for value in flow.nodes[pending.pop()].inputs:
            source = flow.source(value)
            if source is None or source not in members:
                if product(value.type.shape) == size:
                    read.add(value.name)
            elif source not in above:
                above.add(source)
                pending.append(source)
    return len(read)


class _Elements:
    """Grows a group from the node `root`. Above the permutations `closed`, no elementwise node joins."""

    def __init__(self, flow: Flow, root: int, most_results: int, closed: Collection[int]) -> None:
        self.flow, self.root, self.most_results, self.closed = flow, root, most_results, closed
        self.members: set[int] = set()
        self.uses: dict[int, int] = {root: _SAME}
        self.turned: set[int] = set()
        """The nodes whose elements the group computes in an order in which their last axis is not the last."""
        self.results = 1

    def grow(self) -> set[int]:
        # The last candidate comes first: all its readers are then known.
        candidates = [-self.root]
        while candidates:
            number = -heapq.heappop(candidates)
            if number in self.members or not self.flow.is_free(number):
                continue
            reason = None if number == self.root else self.obstacle(number)
            if reason is not None:
                self.refuse(number, reason)
                continue
            self.members.add(number)
            node = self.flow.nodes[number]
            turned = number in self.turned or _turns(node)
            for source in self.flow.sources(number):
                if turned:
                    self.turned.add(source)
                use = max(self.uses[number], self.use(source, node))
                self.uses[source] = max(use, self.uses.get(source, _SAME))
                heapq.heappush(candidates, -source)
        return self.members

    def refuse(self, number: int, reason: str) -> None:
        for reader in self.flow.readers[number]:
            if reader in self.members:
                self.flow.refuse(number, reader, reason)

    def obstacle(self, number: int) -> str | None:
        """Returns the reason why a node above the members cannot join; None if it can."""
        if len(self.members) >= MOST_MEMBERS:
            return TOO_LARGE
        flow, node = self.flow, self.flow.nodes[number]
        inside = flow.stays_inside(number, self.members)
        if has(node, "strided"):
            return None if inside else USED_TWICE
        if not has(node, "elementwise"):
            return explain(flow, [number, next(r for r in flow.readers[number] if r in self.members)])
        use = self.uses[number]
        if use == _MOVED:
            return MOVES
        if any(reader in self.closed for reader in flow.readers[number]):
            return TURNED
        if use == _AGAIN and not is_cheap(node):
            return COSTLY
        if inside:
            return None
        if use != _SAME or number in self.turned or self.results == self.most_results:
            return USED_TWICE
        if flow.leads_back({*self.members, number}):
            return CIRCLE
        self.results += 1
        return None

    def use(self, source: int, reader: Node) -> int:
        """Returns the kind of use that a node makes of a source's result."""
        if has(reader, "elementwise"):
            shapes = {v.type.shape for v in reader.inputs if self.flow.source(v) == source}
            return _SAME if shapes == {reader.output.type.shape} else _AGAIN
        return _SAME if permutes(reader) or puts_in_frame(reader) else _MOVED
