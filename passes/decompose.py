"""`decompose`: operators that are defined by others become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dialect.graph import Function, Module, Node
from ..dialect.operator import Operator
from ..dialect.ops import OPERATORS
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class Decompose(Pass):
    """Replaces every node whose operator has a decomposition by it, again and again until none is left.

    Operators named in `keep` stay, and where properties are given as `having`, all that have none of them. Scopes and
    spans of what comes in are those of what goes.
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
        builder = NodeBuilder(self.names, node)
        results = operator.decompose(builder, node.inputs, dict(node.attributes))
        return Replacement(tuple(builder.nodes), tuple(results))
