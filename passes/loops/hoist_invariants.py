"""`hoist-invariants`: moves computations that are equal in all iterations out of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ...dialect.control_flow import CONTROL_FLOW
from ...dialect.graph import Module, Node, Region
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS, may_fail
from ...dialect.ops.support.index_modes import FAILING_MODES
from ..manager import Context, Pass


@dataclass(frozen=True)
class HoistInvariants(Pass):
    """Moves nodes of a loop that use neither its index nor a carried value to the code before the loop.

        scan(...) do (%t, %h) {              %w2 = transpose(%w)
          %w2 = transpose(%w)         ->     scan(...) do (%t, %h) {
          %y = matmul(%h, %w2)                 %y = matmul(%h, %w2)

    Assumes that `check-indices` has run: a node that can fail a call stays, since the loop may not run at all. Nodes
    stay on their side of an `if`, and a nested loop moves as a whole or not at all.
    """

    name: ClassVar[str] = "hoist-invariants"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: replace(function, body=_hoist(function.body, context)))


def _hoist(nodes: Sequence[Node], context: Context) -> tuple[Node, ...]:
    """Returns the nodes, with invariant ones of loops before these."""
    result: list[Node] = []
    for node in nodes:
        if node.op in CONTROL_FLOW:
            regions = [replace(region, body=_hoist(region.body, context)) for region in node.regions]
            if CONTROL_FLOW[node.op].repeats:
                for number, region in enumerate(regions):
                    hoisted, regions[number] = _split(region, context)
                    result += hoisted
            node = replace(node, regions=tuple(regions))
        result.append(node)
    return tuple(result)


def _split(region: Region, context: Context) -> tuple[list[Node], Region]:
    """Returns the invariant nodes of a region, and the region without them."""
    varying = {value.name for value in region.arguments}
    hoisted: list[Node] = []
    kept: list[Node] = []
    for node in region.body:
        is_invariant = varying.isdisjoint(value.name for value in node.inputs)
        if is_invariant and _may_move(node) and context.allow("invariant", node):
            hoisted.append(node)
        else:
            kept.append(node)
            varying |= {value.name for value in node.outputs}
    return hoisted, replace(region, body=tuple(kept))


def _may_move(node: Node) -> bool:
    if node.regions or may_fail(node):
        return False
    return OPERATORS[node.op].addresses is None or dict(node.attributes).get("mode") not in FAILING_MODES
