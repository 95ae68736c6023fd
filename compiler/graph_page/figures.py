"""What the nodes of a graph cost, at some sizes of its dims: operations, and bytes that are read and written."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ...dialect.dims import Size, add, evaluate, format_size, multiply
from ...dialect.graph import Function, Node
from ..graphs.figures import is_free
from ..lower.cost import count_bytes, count_operations


@dataclass(frozen=True, slots=True)
class Amount:
    """A formula of the dims, and its value."""

    formula: str
    value: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one node costs, a loop as often as it runs. What is inside a kernel moves no bytes of its own."""

    flops: Amount
    bytes: Amount | None


@dataclass
class CostCounter:
    """Counts graphs that have most of their nodes in common: what was counted once is remembered."""

    dims: Mapping[str, int]
    flops: dict[Hashable, Size] = field(default_factory=dict)
    moved: dict[Node, Size] = field(default_factory=dict)
    amounts: dict[Size, Amount] = field(default_factory=dict)

    def count(self, function: Function) -> dict[str, Cost]:
        """By the name of the first result of a node, those inside others included."""
        costs: dict[str, Cost] = {}
        self._count(function.body, costs, fused=False)
        return costs

    def _count(self, nodes: Sequence[Node], costs: dict[str, Cost], fused: bool) -> tuple[Size, Size]:
        """Adds what the nodes cost; gives the operations of all of them, and the bytes that they move."""
        makers = {v.name: node for node in nodes for v in node.outputs}
        all_flops: Size = 0
        all_moved: Size = 0
        for node in (node for node in nodes if node.outputs):
            flops = self._operations(node) if not node.regions else 0
            inside: Size = 0
            for region in node.regions:
                flops, inside = self._count(region.body, costs, fused=node.op == "fusion")
            if node.op == "repeat":
                count = node.attribute("count")
                assert isinstance(count, int), node
                flops, moved = multiply(count, flops), multiply(count, inside)
            else:
                moved = self._moved(node, makers)
            all_flops, all_moved = add(all_flops, flops), add(all_moved, moved)
            costs[node.outputs[0].name] = Cost(self._amount(flops), None if fused else self._amount(moved))
        return all_flops, all_moved

    def _moved(self, node: Node, makers: Mapping[str, Node]) -> Size:
        if node not in self.moved:
            self.moved[node] = 0 if is_free(node) else count_bytes(node, makers)
        return self.moved[node]

    def _operations(self, node: Node) -> Size:
        types = tuple(v.type for v in (*node.inputs, *node.outputs))
        key = (node.op, len(node.inputs), types, node.attributes)
        if key not in self.flops:
            self.flops[key] = count_operations([node])
        return self.flops[key]

    def _amount(self, size: Size) -> Amount:
        if size not in self.amounts:
            self.amounts[size] = Amount(format_size(size), evaluate(size, self.dims))
        return self.amounts[size]
