"""The nodes of a graph, with queries for their neighbours and a search by their properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ....dialect.diagnostics import Span
from ....dialect.graph import Attribute, Node, Value
from ....dialect.operator import Operator
from ....dialect.ops import OPERATORS
from ....dialect.printer import format_node
from ....dialect.types import TensorType
from . import show
from .flow import Flow, key


@dataclass(frozen=True, slots=True, eq=False)
class GraphNode:
    """A node of a graph, with queries. Two are equal if they are the same node of one graph.

    >>> relu = example["y"]
    >>> relu.op, relu.type, relu.inputs
    ('relu', f32[B, 4], (%3: f32[B, 4],))
    >>> [node.op for node in relu.producers]
    ['add']
    """

    flow: Flow
    node: Node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphNode) and self.flow is other.flow and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return format_node(self.node)

    def _repr_html_(self) -> str:
        return show.node_page(self.node, self.flow)

    @property
    def name(self) -> str:
        """The name of its first result, which is unique in the graph."""
        return key(self.node)

    @property
    def op(self) -> str:
        """The name of its operator."""
        return self.node.op

    @property
    def operator(self) -> Operator:
        """The record of its operator: summary, operands, attributes, properties, reference."""
        return OPERATORS[self.node.op]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads, in order."""
        return self.node.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Its results, in order."""
        return self.node.outputs

    @property
    def type(self) -> TensorType:
        """The type of its first result: a dtype and a shape."""
        return self.node.outputs[0].type

    @property
    def attributes(self) -> dict[str, Attribute]:
        return dict(self.node.attributes)

    @property
    def scope(self) -> str:
        """The path of the block that contained it in the source, such as `encoder.layer.{}.attention`."""
        return self.node.scope

    @property
    def span(self) -> Span | None:
        """Its source location, if known."""
        return self.node.span

    @property
    def around(self) -> Nodes:
        """The enclosing loops and groups, the outermost first."""
        return wrap(self.flow, self.flow.around[self.name])

    @property
    def inside(self) -> Nodes:
        """The nodes of its body, if it is a loop or a group."""
        return wrap(self.flow, (n for region in self.node.regions for n in region.body))

    @property
    def producers(self) -> Nodes:
        """The nodes that compute its operands, in the order of the operands."""
        makers = self.flow.makers
        return wrap(self.flow, dict.fromkeys(makers[v.name] for v in self.inputs if v.name in makers))

    @property
    def consumers(self) -> Nodes:
        """The nodes that read its results, in order."""
        return wrap(self.flow, dict.fromkeys(n for v in self.outputs for n in self.flow.users.get(v.name, ())))


class Nodes(tuple[GraphNode, ...]):
    """Nodes in the order of the graph; a tuple with further queries.

    >>> example.nodes.find("add").names
    ('3',)
    """

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self)

    def find(
        self,
        op: str | None = None,
        *,
        name: str | None = None,
        scope: str | None = None,
        where: Callable[[GraphNode], bool] | None = None,
    ) -> Nodes:
        """Returns the nodes that match all given criteria, as `Graph.find` does."""
        return Nodes(
            node
            for node in self
            if (op is None or fnmatchcase(node.op, op))
            and (name is None or any(fnmatchcase(v.name, name) for v in node.outputs))
            and (scope is None or _is_within(node.scope, scope))
            and (where is None or where(node))
        )

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) if self else "no nodes"

    def _repr_html_(self) -> str:
        return show.node_table([node.node for node in self])


def _is_within(scope: str, pattern: str) -> bool:
    """Returns whether the scope matches the pattern, or is nested in one that does."""
    parts = scope.split(".")
    return any(fnmatchcase(".".join(parts[: n + 1]), pattern) for n in range(len(parts)))


def wrap(flow: Flow, nodes: Iterable[Node]) -> Nodes:
    return Nodes(GraphNode(flow, node) for node in nodes)
