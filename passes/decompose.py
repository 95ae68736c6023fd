"""`decompose`: operators that are defined by others become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dialect.graph import Function, Module, Node
from ..dialect.ops import OPERATORS
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class Decompose(Pass):
    """Replaces every node whose operator has a decomposition by it, again and again until none is left.

    Operators named in `keep` stay. Scopes and spans of what comes in are those of what goes.
    """

    name: ClassVar[str] = "decompose"
    keep: tuple[str, ...] = ()

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Decomposer(function, context, self.keep).run())


class _Decomposer(Rewriter):
    def __init__(self, function: Function, context: Context, keep: tuple[str, ...]) -> None:
        super().__init__(function)
        self.context, self.keep = context, keep

    def visit(self, node: Node) -> Replacement | None:
        decompose = OPERATORS[node.op].decompose
        if decompose is None or node.op in self.keep or not self.context.allow(node.op, node):
            return None
        builder = NodeBuilder(self.names, node)
        results = decompose(builder, node.inputs, dict(node.attributes))
        return Replacement(tuple(builder.nodes), tuple(results))
