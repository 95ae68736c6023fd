"""Values of loops and branches that nothing needs: carried values, collected and chosen results.

`dce` drops them from the node and from its regions; the nodes that compute them are then dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...dialect.control_flow import carries_values, condition_of
from ...dialect.graph import Node, Region, Value, read_values
from ...dialect.ops import may_fail
from ..manager import Context

T = TypeVar("T")


def names_of(values: Iterable[Value]) -> set[str]:
    return {v.name for v in values}


def pick(items: Sequence[T], keep: Sequence[bool]) -> tuple[T, ...]:
    return tuple(item for item, kept in zip(items, keep, strict=True) if kept)


def dependencies(nodes: Sequence[Node], live: set[str]) -> set[str]:
    """Returns every name that the computation of `live` reads."""
    needed = set(live)
    for node in reversed(nodes):
        if not needed.isdisjoint(v.name for v in node.outputs) or may_fail(node):
            needed |= names_of(read_values(node))
    return needed


def drop_unused(node: Node, live: set[str], context: Context) -> Node:
    """Returns a loop or a branch without the results that nothing needs."""
    keep = _needed(node, live)
    if all(keep) or not context.allow("unused", node):
        return node
    outputs = pick(node.outputs, keep)
    if not carries_values(node):
        assert not any(region.arguments for region in node.regions), node
        regions = tuple(replace(r, results=pick(r.results, keep)) for r in node.regions)
        return replace(node, outputs=outputs, regions=regions)
    count = len(node.inputs)
    carried = keep[:count]
    inputs = pick(node.inputs, carried)
    if condition_of(node) is not None:
        condition, body = node.regions
        body = Region(pick(body.arguments, carried), body.body, pick(body.results, carried))
        condition = replace(condition, arguments=pick(condition.arguments, carried))
        return replace(node, inputs=inputs, outputs=outputs, regions=(condition, body))
    (body,) = node.regions
    index, *arguments = body.arguments
    body = Region((index, *pick(arguments, carried)), body.body, pick(body.results, keep))
    attributes = tuple((name, sum(carried) if name == "carried" else value) for name, value in node.attributes)
    return replace(node, inputs=inputs, outputs=outputs, attributes=attributes, regions=(body,))


def _needed(node: Node, live: set[str]) -> list[bool]:
    """Returns which results are needed. A carried value is needed if the result of the loop is used, or if a region
    computes something needed from it."""
    keep = [v.name in live for v in node.outputs]
    if not carries_values(node):
        return keep
    count, condition = len(node.inputs), condition_of(node)
    arguments = [region.arguments[-count:] if count else () for region in node.regions]
    body = node.regions[-1]
    always = set() if condition is None else dependencies(condition.body, names_of(condition.results))
    while True:
        needed = always | dependencies(body.body, names_of(pick(body.results, keep)))
        wider = [kept or any(a[i].name in needed for a in arguments) for i, kept in enumerate(keep[:count])]
        if wider == keep[:count]:
            return keep
        keep = [*wider, *keep[count:]]
