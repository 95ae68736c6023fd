"""`fuse-elementwise`: what is computed element by element, one thing after another, becomes one group."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..dialect.graph import Function, Module, Node, Region, Value, substitute_values
from ..dialect.ops import OPERATORS
from .manager import Context, Pass
from .rewrite import Names, count_uses


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Puts elementwise nodes into a `fusion` with the one node that uses them, so that nothing between is stored.

    A group has one result: the node that others use, or that is a result itself. Going up from it, a node joins if it
    is elementwise and all its uses are in the group; so nothing is computed twice, and no node outside stands between
    two of the group. Constants of rank 0 are copied into the group, since they cost nothing there. Broadcasting inside
    a group is admitted. Leaves nodes that would be alone as they are, and the constants to `dce`.
    """

    name: ClassVar[str] = "fuse-elementwise"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Fuser(function, context).run())


class _Fuser:
    def __init__(self, function: Function, context: Context) -> None:
        self.function, self.context = function, context
        self.names = Names(function)
        self.uses = count_uses(function.body, function.results)
        self.scalars: dict[str, Node] = {}

    def run(self) -> Function:
        return replace(self.function, body=self.fuse(self.function.body))

    def fuse(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        for node in nodes:
            if node.op == "constant" and node.output.type.rank == 0:
                self.scalars[node.output.name] = node
        place = {v.name: number for number, node in enumerate(nodes) for v in node.outputs}
        taken: set[int] = set()
        fused: dict[int, Node] = {}
        for number in reversed(range(len(nodes))):
            if number in taken or not _is_elementwise(nodes[number]):
                continue
            group = self.grow(nodes, number, place)
            if len(group) > 1 and self.context.allow("fuse", nodes[number]):
                taken |= group
                fused[number] = self.make([nodes[i] for i in sorted(group)])
        body: list[Node] = []
        for number, node in enumerate(nodes):
            if number in fused:
                body.append(fused[number])
            elif number not in taken:
                body.append(self.descend(node))
        return tuple(body)

    def descend(self, node: Node) -> Node:
        if not node.regions or node.op == "fusion":
            return node
        return replace(node, regions=tuple(replace(r, body=self.fuse(r.body)) for r in node.regions))

    def grow(self, nodes: Sequence[Node], root: int, place: dict[str, int]) -> set[int]:
        """The numbers of the group above a root. The last candidate comes first: by then all its users are known."""
        group: set[int] = set()
        inside: Counter[str] = Counter()
        candidates = [-root]
        while candidates:
            number = -heapq.heappop(candidates)
            node = nodes[number]
            joins = number == root or (
                _is_elementwise(node) and all(inside[v.name] == self.uses[v.name] for v in node.outputs)
            )
            if number in group or not joins:
                continue
            group.add(number)
            for value in node.inputs:
                inside[value.name] += 1
                if value.name in place:
                    heapq.heappush(candidates, -place[value.name])
        return group

    def make(self, group: Sequence[Node]) -> Node:
        root = group[-1]
        inner: dict[str, Value] = {}
        inputs: list[Value] = []
        arguments: list[Value] = []
        constants: list[Node] = []
        made = {v.name for node in group for v in node.outputs}
        for value in (v for node in group for v in node.inputs):
            if value.name in made or value.name in inner:
                continue
            inner[value.name] = Value(self.names.fresh(value.name), value.type)
            if value.name in self.scalars:
                constants.append(replace(self.scalars[value.name], outputs=(inner[value.name],)))
            else:
                inputs.append(value)
                arguments.append(inner[value.name])
        # The result keeps its name outside, so it needs another one inside.
        for value in root.outputs:
            inner[value.name] = Value(self.names.fresh(value.name), value.type)
        body = [substitute_values(node, inner) for node in group]
        results = tuple(inner[v.name] for v in root.outputs)
        body[-1] = replace(body[-1], outputs=results)
        region = Region(tuple(arguments), (*constants, *body), results)
        return Node("fusion", tuple(inputs), root.outputs, (), (region,), root.scope, root.span)


def _is_elementwise(node: Node) -> bool:
    return OPERATORS[node.op].has("elementwise") and not node.regions
