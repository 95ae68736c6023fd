"""Groups nodes into boxes by their block in the source, such that the boxes form an acyclic graph.

A block is divided into two boxes if nodes of other blocks lie on a path between its nodes.

    attention: a, c(b)   mlp: b(a)   ->   attention {a}, mlp {b}, attention (2) {c}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....dialect.graph import Node, read_values
from ....dialect.ops import OPERATORS


def is_leaf(node: Node) -> bool:
    """Returns whether the node is a parameter or a constant."""
    return not node.regions and OPERATORS[node.op].has("structure")


def components(scope: str) -> tuple[str, ...]:
    """Splits `encoder.layer.0.attention` into `encoder`, `layer.0`, `attention`: a number belongs to its array."""
    parts: list[str] = []
    for part in filter(None, scope.split(".")):
        if parts and (part.isdigit() or part.startswith("{")):
            parts[-1] += f".{part}"
        else:
            parts.append(part)
    return tuple(parts)


@dataclass
class Group:
    """Nodes of one block, or (`block` is None) a single node. `part` numbers the groups of one block."""

    block: str | None
    part: int
    nodes: list[Node]

    @property
    def key(self) -> str:
        return f"{self.block} {self.part}" if self.part > 1 else str(self.block)

    @property
    def title(self) -> str:
        return f"{self.block} ({self.part})" if self.part > 1 else str(self.block)


def group_nodes(nodes: Sequence[Node], prefix: tuple[str, ...] | None) -> list[Group]:
    """Groups nodes by their block inside `prefix`, such that the groups are acyclic."""
    groups: list[Group] = []
    latest: dict[str, int] = {}
    parts: Counter[str] = Counter()
    maker: dict[str, int] = {}
    readers: dict[int, set[int]] = {}
    for node in nodes:
        block = _block_of(node, prefix)
        sources = {maker[v.name] for v in read_values(node) if v.name in maker}
        number = None if block is None else latest.get(block)
        if number is None or _leads_to(number, sources - {number}, readers):
            number = len(groups)
            if block is not None:
                latest[block] = number
                parts[block] += 1
            groups.append(Group(block, parts[block] if block is not None else 0, []))
        groups[number].nodes.append(node)
        maker.update((v.name, number) for v in node.outputs)
        for source in sources - {number}:
            readers.setdefault(source, set()).add(number)
    return _in_order(groups, readers)


def find_edges(groups: Sequence[Group], maker: Mapping[str, int]) -> list[tuple[int, int]]:
    """Returns the pairs of a group and a group that reads it, each pair once."""
    pairs = (
        (maker[v.name], number)
        for number, group in enumerate(groups)
        for node in group.nodes
        for v in read_values(node)
        if v.name in maker
    )
    return [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]


def find_ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the length of the longest path to each box."""
    ranks = [0] * count
    for source, reader in sorted(edges, key=lambda edge: edge[1]):
        ranks[reader] = max(ranks[reader], ranks[source] + 1)
    return ranks


def _block_of(node: Node, prefix: tuple[str, ...] | None) -> str | None:
    if prefix is None:
        return None
    parts = components(node.scope)
    return parts[len(prefix)] if len(parts) > len(prefix) and parts[: len(prefix)] == prefix else None


def _leads_to(start: int, targets: set[int], readers: Mapping[int, set[int]]) -> bool:
    pending, seen = [start] if targets else [], {start}
    while pending:
        for reader in readers.get(pending.pop(), ()):
            if reader in targets:
                return True
            if reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return False


def _in_order(groups: Sequence[Group], readers: Mapping[int, set[int]]) -> list[Group]:
    """Sorts the groups topologically, as close to the order of the text as possible."""
    waits = Counter(reader for found in readers.values() for reader in found)
    ready, order = [number for number in range(len(groups)) if not waits[number]], []
    while ready:
        ready.sort(reverse=True)
        number = ready.pop()
        order.append(groups[number])
        for reader in readers.get(number, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    assert len(order) == len(groups), "mutually dependent blocks"
    return order
