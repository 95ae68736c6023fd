"""Counts the costs of the nodes of a graph at sizes of its dims: operations, and bytes read and written."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ....dialect.control_flow import trip_count
from ....dialect.dims import Size, add, evaluate, format_size, multiply
from ....dialect.graph import Function, Node
from ....dialect.ops import OPERATORS
from ...lower.cost import count_bytes, count_operations
from ..explorer.node_costs import is_free


@dataclass(frozen=True, slots=True)
class Amount:
    """A formula of the dims, and its value."""

    formula: str
    value: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a node; for a loop, of all iterations. Nodes inside a kernel have no bytes of their own."""

    flops: Amount
    bytes: Amount | None


@dataclass
class CostCounter:
    """Counts the costs of graphs that share most of their nodes: counted nodes are cached."""

    dims: Mapping[str, int]
    flops: dict[Hashable, Size] = field(default_factory=dict)
    moved: dict[Node, Size] = field(default_factory=dict)
    amounts: dict[Size, Amount] = field(default_factory=dict)

    def count(self, function: Function) -> dict[str, Cost]:
        """Returns the cost of each node, nested ones included, by the name of its first result."""
        costs: dict[str, Cost] = {}
        self._count(function.body, costs, fused=False)
        return costs

    def _count(self, nodes: Sequence[Node], costs: dict[str, Cost], fused: bool) -> tuple[Size, Size]:
        """Adds the costs of the nodes; returns their total operations and bytes."""
        makers = {v.name: node for node in nodes for v in node.outputs}
        all_flops: Size = 0
        all_moved: Size = 0
        for node in (node for node in nodes if node.outputs):
            is_group = OPERATORS[node.op].has("group")
            flops = self._operations(node) if not node.regions else 0
            inside: Size = 0
            for region in node.regions:
                counted = self._count(region.body, costs, fused=is_group)
                flops, inside = add(flops, counted[0]), add(inside, counted[1])
            if node.regions and not is_group:
                times = trip_count(node)
                flops, moved = multiply(times, flops), multiply(times, inside)
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
