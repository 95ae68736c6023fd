"""`unroll-repeat`: replaces a loop by copies of its body."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ...dialect.graph import Function, Module, Node, Region, fill_braces, walk
from ...dialect.lazy_dataclass import dataclass
from ..analysis.parameters import make_parameters_single
from ..manager import Context, Pass
from ..rewrite import Replacement, Rewriter, clone, constant_node

MOST_NODES = 200_000


@dataclass(frozen=True)
class UnrollRepeat(Pass):
    """Replaces every `repeat` with at most `limit` iterations (by default all) by one copy of its body per iteration.

    The index is a constant in each copy. If none of its loops is left, a numbered parameter `layer.{}.weight` becomes
    single parameters such as `layer.0.weight`; the braces in scopes are replaced in the same way. An index that is
    computed from it becomes a constant in `fold-constants`. Loops stay once a function has grown by 200,000 nodes
    (`MOST_NODES`).
    """

    name: ClassVar[str] = "unroll-repeat"
    limit: int | None = None

    def rewrite(self, module: Module, context: Context) -> Module:
        unrolled = module.map_functions(lambda function: _Unroller(function, context, self.limit).run())
        return make_parameters_single(unrolled, context)


class _Unroller(Rewriter):
    def __init__(self, function: Function, context: Context, limit: int | None) -> None:
        super().__init__(function)
        self.context, self.limit, self.made = context, limit, 0

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "repeat":
            return None
        count = node.attribute("count")
        assert isinstance(count, int)
        made = self.made + count * sum(1 for _ in walk([node]))
        too_much = made > MOST_NODES or (self.limit is not None and count > self.limit)
        if too_much or not self.context.allow("unroll", node):
            return None
        self.made = made
        region = node.regions[0]
        index, *arguments = region.arguments
        carried = node.inputs
        nodes: list[Node] = []
        for number in range(count):
            values = {v.name: c for v, c in zip(arguments, carried, strict=True)}
            values[index.name] = replace(index, name=self.names.fresh(index.name))
            nodes.append(constant_node(values[index.name], np.asarray(np.int64(number)), node))
            body = [fill_scope(inner, node.scope, number) for inner in region.body]
            nodes += clone(body, self.names, values)
            carried = tuple(values.get(v.name, v) for v in region.results)
        return Replacement(tuple(nodes), carried)


def fill_scope(node: Node, around: str, number: int) -> Node:
    """Returns a node of a loop in scope `around` with the loop's braces filled in its scope, and in the scopes inside
    it.

    The loop's braces are the first ones after its own scope. An inner loop without braces there has scopes that do not
    depend on the outer loop.
    """
    filled = node.scope
    if node.scope.startswith(around):
        filled = around + fill_braces(node.scope[len(around) :], [number])
    if node.op == "repeat" and filled == node.scope:
        return node
    regions = tuple(
        Region(r.arguments, tuple(fill_scope(inner, around, number) for inner in r.body), r.results)
        for r in node.regions
    )
    return replace(node, scope=filled, regions=regions)
