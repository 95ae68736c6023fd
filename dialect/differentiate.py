"""Reverse-mode differentiation of a list of nodes, by the gradient rules of their operators.

One builder appends the nodes that compute gradients after the given nodes. Nodes with regions are refused: a pass must
unroll a loop, or differentiate it as a whole, first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .graph import Node, Value
from .operator import Builder, Decompose, Gradient, Use


def pull_back(
    b: Builder, nodes: Sequence[Node], gradients: Mapping[Value, Value], wanted: Sequence[Value]
) -> list[Value | None]:
    """Returns the gradients of `wanted` for given gradients of some results; None if there is no float path to them."""
    active = {value.name for value in wanted}
    for node in nodes:
        if any(value.name in active for value in node.inputs):
            active |= {value.name for value in node.outputs if value.type.dtype.is_differentiable}
    found: dict[str, Value] = {}

    def accumulate(value: Value, gradient: Value) -> None:
        assert gradient.type == value.type, (value, gradient)
        found[value.name] = b.add(found[value.name], gradient) if value.name in found else gradient

    for value, gradient in gradients.items():
        accumulate(value, gradient)
    for node in reversed(nodes):
        given = tuple(found.get(value.name) for value in node.outputs)
        if not any(given) or not any(value.name in active for value in node.inputs):
            continue
        assert not node.regions, f"{node.op} cannot be differentiated node by node"
        rule = b.operators[node.op].gradient
        if rule is None:
            continue
        parts = rule(b, Use(node.inputs, node.outputs, dict(node.attributes), given))
        for value, part in zip(node.inputs, parts, strict=True):
            if part is not None and value.name in active and value.type.dtype.is_differentiable:
                accumulate(value, part)
    return [found.get(value.name) for value in wanted]


def by_decomposition(decompose: Decompose) -> Gradient:
    """Returns the gradient rule of an operator, derived from its decomposition."""

    def differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
        start = len(b.nodes)
        results = decompose(b, use.inputs, use.attributes)
        nodes = tuple(b.nodes[start:])
        given = {r: g for r, g in zip(results, use.gradients, strict=True) if g is not None}
        return pull_back(b, nodes, given, use.inputs)

    return differentiate
