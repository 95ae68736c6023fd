"""Reverse-mode differentiation of a list of nodes, by the gradient rules of their operators.

One builder appends the nodes that compute gradients after the given nodes. Each has the scope and the span of the node
whose gradient it computes. Nodes with regions need rules, which the caller gives: `passes/autodiff` has those of
branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from .graph import Node, Value, read_values
from .operator import Builder, Decompose, Gradient, Use

Given = Sequence["Value | None"]
"""The gradients of the results of a node; None for a result that the loss does not depend on."""
RegionGradient = Callable[[Node, Given, AbstractSet[str]], Iterable[tuple[Value, Value]]]
"""`rule(node, gradients, active) -> (value, gradient) pairs`, for the active values that the node or its regions
read."""


class GradientError(Exception):
    """A node without a gradient rule, between the loss and a value whose gradient is wanted."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"`{node.op}` has no gradient")
        self.node = node


def spread(nodes: Iterable[Node], active: AbstractSet[str]) -> set[str]:
    """Returns the active names with those of all float results that depend on them."""
    found = set(active)
    for node in nodes:
        if any(value.name in found for value in read_values(node)):
            found |= {value.name for value in node.outputs if value.type.dtype.is_differentiable}
    return found


def pull_back(
    b: Builder,
    nodes: Sequence[Node],
    gradients: Mapping[Value, Value],
    wanted: Sequence[Value],
    regions: Mapping[str, RegionGradient] | None = None,
) -> list[Value | None]:
    """Returns the gradients of `wanted` for given gradients of some results; None if there is no float path to them.

    `regions` are the rules of operators with regions. Raises GradientError at a node without a rule.
    """
    active = spread(nodes, {value.name for value in wanted})
    found: dict[str, Value] = {}
    origin = b.scope, b.span

    def accumulate(value: Value, gradient: Value) -> None:
        assert gradient.type == value.type, (value, gradient)
        found[value.name] = b.add(found[value.name], gradient) if value.name in found else gradient

    for value, gradient in gradients.items():
        accumulate(value, gradient)
    for node in reversed(nodes):
        given = tuple(found.get(value.name) for value in node.outputs)
        if not any(given) or not any(value.name in active for value in read_values(node)):
            continue
        b.scope, b.span = node.scope, node.span
        if node.regions:
            if regions is None or node.op not in regions:
                raise GradientError(node)
            parts = list(regions[node.op](node, given, active))
        else:
            rule = b.operators[node.op].gradient
            if rule is None:
                raise GradientError(node)
            made = rule(b, Use(node.inputs, node.outputs, dict(node.attributes), given))
            parts = [(v, part) for v, part in zip(node.inputs, made, strict=True) if part is not None]
        for value, part in parts:
            if value.name in active and value.type.dtype.is_differentiable:
                accumulate(value, part)
    b.scope, b.span = origin
    return [found.get(value.name) for value in wanted]


def by_decomposition(decompose: Decompose) -> Gradient:
    """Returns the gradient rule of an operator, derived from its decomposition."""

    def differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
        start = len(b.nodes)
        results = decompose(b, use.inputs, use.attributes)
        nodes = tuple(b.nodes[start:])
        given = {r: g for r, g in zip(results, use.gradients, strict=True) if g is not None}
        found = pull_back(b, nodes, given, use.inputs)
        # The gradient of a value that is an operand twice is already the total: it is given once.
        first = {value: number for number, value in reversed(list(enumerate(use.inputs)))}
        return [part if first[v] == n else None for n, (v, part) in enumerate(zip(use.inputs, found, strict=True))]

    return differentiate
