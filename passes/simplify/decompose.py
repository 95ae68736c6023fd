"""`decompose`: replaces operators by the simpler operators that define them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Operator
from ...dialect.ops import OPERATORS
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from .check_indices import check_node, fails_outside


@dataclass(frozen=True)
class Decompose(Pass):
    """Replaces every node by the decomposition of its operator, until no operator has one.

    Every level runs it first for `composite` operators, whose parts are separate kernels.

    A check of indices precedes a node that fails for an index out of range, and a new node that does. It reports the
    replaced operator.

    Operators in `keep` are kept. If `having` lists properties, operators without any of them are kept too. New nodes
    have the scope and the span of the replaced node.
    """

    name: ClassVar[str] = "decompose"
    keep: tuple[str, ...] = ()
    having: tuple[str, ...] = ()

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Decomposer(function, context, self).run())

    def takes(self, operator: Operator) -> bool:
        wanted = not self.having or any(operator.has(p) for p in self.having)
        return wanted and operator.name not in self.keep and operator.decompose is not None


class _Decomposer(Rewriter):
    def __init__(self, function: Function, context: Context, options: Decompose) -> None:
        super().__init__(function)
        self.context, self.options = context, options

    def visit(self, node: Node) -> Replacement | None:
        operator = OPERATORS[node.op]
        if not self.options.takes(operator) or not self.context.allow(node.op, node):
            return None
        assert operator.decompose is not None, node.op
        *checks, node = check_node(self.names, node, node.op) if fails_outside(node) else (node,)
        builder = NodeBuilder(self.names, node)
        results = operator.decompose(builder, node.inputs, dict(node.attributes))
        return Replacement((*checks, *self._checked(builder.nodes, node.op)), tuple(results))

    def _checked(self, nodes: Iterable[Node], operator: str) -> Iterator[Node]:
        """Yields the nodes with checks of their indices, which report the decomposed operator."""
        for node in nodes:
            yield from check_node(self.names, node, operator) if fails_outside(node) else (node,)
