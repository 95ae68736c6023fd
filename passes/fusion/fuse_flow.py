"""A list of nodes as a graph: definitions and readers of values, existing groups, and reachability.

Nodes are known by their index in the list. This module does not decide which nodes form a group.

A group must not depend on itself:

    a = matmul(x, w)
    s = sum(a)           reads a
    y = a + s            cannot join a: s would have to run after the group and before it (`leads_back`)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from ...dialect.graph import Node, Value, read_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import PROPERTIES
from ...dialect.ops import OPERATORS
from ..rewrite import count_uses

Edge = tuple[int, int]
"""The node that computes a value, and a node that reads it."""


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes that become one fusion, by index and in order."""

    kind: str
    members: tuple[int, ...]


@dataclass
class Flow:
    """The nodes of one region. `uses` counts every use of a value in the whole function, including uses as a result.

    `generated` are the nodes whose results are cheap to recompute: groups that read them hold copies of them. `reach`
    holds for each index the last member of the groups that begin at or before it and end after it. `reasons` maps each
    examined edge to the reason why its two nodes are not in one group. With `in_place`, kernels read matrices in the
    order of memory, so that a contraction takes the transposition of its second operand.
    """

    nodes: Sequence[Node]
    uses: Mapping[str, int]
    generated: frozenset[int] = frozenset()
    in_place: bool = False
    maker: dict[str, int] = field(default_factory=dict)
    readers: list[tuple[int, ...]] = field(default_factory=list)
    leaves: list[bool] = field(default_factory=list)
    groups: dict[int, Group] = field(default_factory=dict)
    reach: list[int] = field(default_factory=list)
    reasons: dict[Edge, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.maker = {v.name: number for number, node in enumerate(self.nodes) for v in node.outputs}
        readers: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for maker in dict.fromkeys(self.maker[v.name] for v in read_values(node) if v.name in self.maker):
                readers[maker].append(number)
        self.readers = [tuple(numbers) for numbers in readers]
        self.reach = list(range(len(self.nodes)))
        # A value with more uses in the function than in this region is used outside of the region.
        local = count_uses(self.nodes, ())
        self.leaves = [any(self.uses[v.name] > local[v.name] for v in node.outputs) for node in self.nodes]

    def sources(self, number: int) -> tuple[int, ...]:
        """Returns the nodes that compute the operands of a node."""
        return tuple(dict.fromkeys(self.maker[v.name] for v in read_values(self.nodes[number]) if v.name in self.maker))

    def source(self, value: Value) -> int | None:
        return self.maker.get(value.name)

    def is_free(self, number: int) -> bool:
        """Returns whether the node can still join a group."""
        return number not in self.groups and number not in self.generated

    def stays_inside(self, number: int, members: Collection[int]) -> bool:
        """Returns whether all uses of the node's results are in members."""
        return not self.leaves[number] and all(reader in members for reader in self.readers[number])

    def refuse(self, source: int, reader: int, reason: str) -> None:
        self.reasons.setdefault((source, reader), reason)

    def take(self, group: Group) -> None:
        for number in group.members:
            assert self.is_free(number), (group, number)
            self.groups[number] = group
        # A path may enter the group at its last member and leave from its first one: see `_horizon`.
        first, last = min(group.members), max(group.members)
        self.reach[first : last + 1] = [max(last, reached) for reached in self.reach[first : last + 1]]

    def unit(self, number: int) -> tuple[int, ...]:
        """Returns the node's group, or the node alone."""
        return self.groups[number].members if number in self.groups else (number,)

    def leads_back(self, members: Collection[int]) -> bool:
        """Returns whether a path leaves the members and leads back into them, with each group as one node.

        Such a path would make a cycle through the new group.
        """
        last = self._horizon(max(members))
        # Paths start at the readers outside of the group; a group on the path is entered and left as a whole.
        pending = [r for m in sorted(members) for r in self.readers[m] if r not in members]
        seen: set[int] = set()
        while pending:
            number = pending.pop()
            if number in seen or number > last:
                continue
            unit = self.unit(number)
            seen.update(unit)
            for reader in (r for u in unit for r in self.readers[u]):
                if reader in members:
                    return True
                pending.append(reader)
        return False

    def _horizon(self, last: int) -> int:
        """Returns the index after which nothing leads back to `last`: only groups lead to earlier nodes."""
        while self.reach[last] > last:
            last = self.reach[last]
        return last


def has(node: Node, *properties: str) -> bool:
    """Returns whether the node's operator has one of the properties. A node with regions has none of its own."""
    assert PROPERTIES.issuperset(properties), properties
    return not node.regions and not OPERATORS[node.op].properties.isdisjoint(properties)
