"""Nodes that compute the same, which are differentiated once:

    %a = tanh(%x);  %b = tanh(%x)       the gradients of %a and of %b are added, and go through `tanh` together

Two gradients of one value would take all steps before it twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dialect.graph import Node, Value, substitute_values
from ..analysis.node_keys import Key, node_key


def merge_equal(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], dict[str, Value]]:
    """Returns the nodes without those that compute the same as an earlier one, and the results of the earlier ones by
    the names of the results that they replace."""
    first: dict[Key, Node] = {}
    values: dict[str, Value] = {}
    for original in nodes:
        node = substitute_values(original, values)
        earlier = first.setdefault(node_key(node, {}), node)
        if earlier is not node:
            values |= {own.name: value for own, value in zip(node.outputs, earlier.outputs, strict=True)}
    return tuple(first.values()), values
