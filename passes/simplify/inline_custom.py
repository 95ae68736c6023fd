"""`inline-custom`: replaces a block with a custom gradient by its nodes."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ..manager import Context, Pass
from ..rewrite import Replacement, Rewriter, clone


@dataclass(frozen=True)
class InlineCustom(Pass):
    """Replaces every `custom` by the nodes of its first region.

    Gradients are in the graph before the first pass runs, so the second region has no reader.
    """

    name: ClassVar[str] = "inline-custom"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Inliner(function, context).run())


class _Inliner(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "custom" or not self.context.allow("custom", node):
            return None
        region = node.regions[0]
        values = {v.name: given for v, given in zip(region.arguments, node.inputs, strict=True)}
        nodes = clone(region.body, self.names, values)
        return Replacement(tuple(nodes), tuple(values.get(v.name, v) for v in region.results))
