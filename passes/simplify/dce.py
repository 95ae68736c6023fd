"""`dce`: removes dead code, i.e. nodes that no result depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Region, parameters_read, read_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS, may_fail
from ..manager import Context, Pass
from ..rewrite import count_uses
from .unused_values import drop_unused, names_of, pick


@dataclass(frozen=True)
class Dce(Pass):
    """Removes unused nodes that cannot fail a call, unused values carried by loops, unused results of loops and
    branches, unused results and operands of fusions, and unused parameters of the module.

    Arguments and results of functions and dims are kept, because they are the interface to callers.
    """

    name: ClassVar[str] = "dce"

    def rewrite(self, module: Module, context: Context) -> Module:
        module = module.map_functions(lambda function: _clean_function(function, context))
        read = {name for function in module.functions for name in parameters_read(function.body)}
        kept = read | {*(state.initial for state in module.states)}
        unused = [p.name for p in module.parameters if p.name not in kept]
        gone = {name for name in unused if context.allow("parameter", _unread(name))}
        return replace(module, parameters=tuple(p for p in module.parameters if p.name not in gone))


def _unread(name: str) -> Node:
    return Node("parameter", (), (), (("name", name),))


def _clean_function(function: Function, context: Context) -> Function:
    live = names_of(function.results)
    return replace(function, body=_clean(function.body, live, context))


def _clean(nodes: Sequence[Node], live: set[str], context: Context) -> tuple[Node, ...]:
    """Returns the nodes that `live` depends on, and extends `live` by the values that they use."""
    kept: list[Node] = []
    for node in reversed(nodes):
        dead = live.isdisjoint(v.name for v in node.outputs) and not may_fail(node)
        if dead and context.allow("node", node):
            continue
        # A dead node that must stay (the rewrite limit is reached) keeps its operands alive.
        if node.regions:
            node = _clean_regions(node, live, context)
        kept.append(node)
        live |= names_of(read_values(node))
    return tuple(reversed(kept))


def _clean_regions(node: Node, live: set[str], context: Context) -> Node:
    is_group = OPERATORS[node.op].has("group")
    node = (_drop_results if is_group else drop_unused)(node, live, context)
    regions = tuple(
        Region(r.arguments, _clean(r.body, names_of(r.results) | live, context), r.results) for r in node.regions
    )
    node = replace(node, regions=regions)
    return _drop_operands(node, context) if is_group else node


def _drop_results(node: Node, live: set[str], context: Context) -> Node:
    keep = [v.name in live for v in node.outputs]
    if all(keep) or not any(keep) or not context.allow("result", node):
        return node
    region = node.regions[0]
    return replace(
        node,
        outputs=pick(node.outputs, keep),
        regions=(replace(region, results=pick(region.results, keep)),),
    )


def _drop_operands(node: Node, context: Context) -> Node:
    region = node.regions[0]
    uses = count_uses(region.body, region.results)
    keep = [uses[v.name] > 0 for v in region.arguments]
    if all(keep) or not context.allow("operand", node):
        return node
    return replace(
        node,
        inputs=pick(node.inputs, keep),
        regions=(replace(region, arguments=pick(region.arguments, keep)),),
    )
