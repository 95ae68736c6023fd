"""`cse`: merges common subexpressions."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Region
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..analysis.node_keys import Key, node_key
from ..manager import Context, Pass
from ..rewrite import Replacement, Rewriter


@dataclass(frozen=True)
class Cse(Pass):
    """Merges nodes of one operator with the same operands, attributes and regions.

    Assumes that operators have no effects; equal checks are merged as well. The first node stays, in the same region or
    in one around it. The operands of commutative operators are compared without their order.
    """

    name: ClassVar[str] = "cse"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Merger(function, context).run())


class _Merger(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.scopes: list[dict[Key, Node]] = [{}]

    def walk_region(self, region: Region, node: Node) -> Region:
        around = self.scopes
        # A group uses no outer values, not even results of nodes without operands.
        self.scopes = [{}] if OPERATORS[node.op].has("group") else [*around, {}]
        walked = super().walk_region(region, node)
        self.scopes = around
        return walked

    def visit(self, node: Node) -> Replacement | None:
        key = node_key(node, {})
        for scope in self.scopes:
            if key in scope:
                return Replacement((), scope[key].outputs) if self.context.allow("merge", node) else None
        self.scopes[-1][key] = node
        return None
