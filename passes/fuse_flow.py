"""A list of nodes as a graph: who makes and who reads each value, what is a group already, what leads where.

Nodes are known by their number in the list. This module decides nothing about what belongs together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..dialect.graph import Node, Value, captured
from ..dialect.ops import OPERATORS
from .rewrite import count_uses

Edge = tuple[int, int]
"""The node that makes a value, and one that reads it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that become one fusion, by number and in order."""

    kind: str
    members: tuple[int, ...]


@dataclass
class Flow:
    """The nodes of one region. `uses` counts every use of a value in the whole function, also as a result.

    `generated` are the nodes whose results cost nothing to make again: groups that read them hold copies of them.
    `reach` holds for each number the last member of the groups that begin at or before it and end behind it.
    `reasons` says why the nodes at the ends of an edge are not in one group, for edges that were looked at.
    """

    nodes: Sequence[Node]
    uses: Mapping[str, int]
    generated: frozenset[int] = frozenset()
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
        local = count_uses(self.nodes, ())
        self.leaves = [any(self.uses[v.name] > local[v.name] for v in node.outputs) for node in self.nodes]

    def sources(self, number: int) -> tuple[int, ...]:
        """The nodes that make what a node reads."""
        return tuple(dict.fromkeys(self.maker[v.name] for v in read_values(self.nodes[number]) if v.name in self.maker))

    def source(self, value: Value) -> int | None:
        return self.maker.get(value.name)

    def is_free(self, number: int) -> bool:
        """Can the node still become part of a group?"""
        return number not in self.groups and number not in self.generated

    def stays_inside(self, number: int, members: Collection[int]) -> bool:
        """Are all uses of the node's results those of members?"""
        return not self.leaves[number] and all(reader in members for reader in self.readers[number])

    def refuse(self, source: int, reader: int, reason: str) -> None:
        self.reasons.setdefault((source, reader), reason)

    def take(self, group: Group) -> None:
        for number in group.members:
            assert self.is_free(number), (group, number)
            self.groups[number] = group
        first, last = min(group.members), max(group.members)
        self.reach[first : last + 1] = [max(last, reached) for reached in self.reach[first : last + 1]]

    def unit(self, number: int) -> tuple[int, ...]:
        """The node's group, or it alone."""
        return self.groups[number].members if number in self.groups else (number,)

    def leads_back(self, members: Collection[int]) -> bool:
        """Is there a way out of the members and back into them, groups taken as one node each?

        It would make a circle of the group and what stands between.
        """
        last = self._horizon(max(members))
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
        """The number behind which nothing leads back to `last`: only groups lead to what stands before them."""
        while self.reach[last] > last:
            last = self.reach[last]
        return last


def read_values(node: Node) -> tuple[Value, ...]:
    """The operands of a node, and what its regions use of what stands around them."""
    return (*node.inputs, *(v for region in node.regions for v in captured(region)))


def has(node: Node, *properties: str) -> bool:
    """Has the node's operator one of the properties? What holds a region has none of its own."""
    operator = OPERATORS[node.op]
    return not node.regions and any(operator.has(p) for p in properties)
