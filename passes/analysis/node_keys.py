"""Keys by which nodes compare."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.graph import Node, Region
from ...dialect.ops import OPERATORS
from ...dialect.printer import format_attribute

Key = tuple[object, ...]


def node_key(node: Node, numbers: Mapping[str, int], *, ordered: bool = False) -> Key:
    """Returns a key that is equal for nodes that compute the same. `numbers` stand for the names of values.

    Values that a region defines are numbered, so that regions compare regardless of names. Attributes compare by their
    text, which distinguishes -0.0 from 0.0 and 1 from 1.0. With `ordered`, the operands of commutative operators
    compare in their order.
    """
    inputs: tuple[str | int, ...] = tuple(numbers.get(v.name, v.name) for v in node.inputs)
    if not ordered and OPERATORS[node.op].has("commutative") and len(inputs) == 2:
        inputs = tuple(sorted(inputs, key=repr))
    attributes = tuple((name, format_attribute(value)) for name, value in node.attributes)
    types = tuple(v.type for v in node.outputs)
    return node.op, inputs, attributes, types, tuple(_region_key(r, numbers, ordered) for r in node.regions)


def _region_key(region: Region, outer: Mapping[str, int], ordered: bool) -> Key:
    numbers = dict(outer)
    for argument in region.arguments:
        numbers[argument.name] = len(numbers)
    body: list[Key] = []
    for node in region.body:
        body.append(node_key(node, numbers, ordered=ordered))
        for value in node.outputs:
            numbers[value.name] = len(numbers)
    results = tuple(numbers.get(v.name, v.name) for v in region.results)
    return tuple(v.type for v in region.arguments), tuple(body), results
