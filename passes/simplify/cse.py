"""`cse`: merges common subexpressions."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Region
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.printer import format_attribute
from ..manager import Context, Pass
from ..rewrite import Replacement, Rewriter

Key = tuple[object, ...]


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


def node_key(node: Node, numbers: dict[str, int]) -> Key:
    """Returns a key that is equal for nodes that compute the same.

    Values that a region defines are numbered, so that regions compare regardless of names. Attributes compare by their
    text, which distinguishes -0.0 from 0.0 and 1 from 1.0.
    """
    inputs: tuple[str | int, ...] = tuple(numbers.get(v.name, v.name) for v in node.inputs)
    if OPERATORS[node.op].has("commutative") and len(inputs) == 2:
        inputs = tuple(sorted(inputs, key=repr))
    attributes = tuple((name, format_attribute(value)) for name, value in node.attributes)
    types = tuple(v.type for v in node.outputs)
    return node.op, inputs, attributes, types, tuple(_region_key(r, numbers) for r in node.regions)


def _region_key(region: Region, outer: dict[str, int]) -> Key:
    numbers = dict(outer)
    for argument in region.arguments:
        numbers[argument.name] = len(numbers)
    body: list[Key] = []
    for node in region.body:
        body.append(node_key(node, numbers))
        for value in node.outputs:
            numbers[value.name] = len(numbers)
    results = tuple(numbers.get(v.name, v.name) for v in region.results)
    return tuple(v.type for v in region.arguments), tuple(body), results
