"""`fuse`: groups nodes that one kernel can compute, by the properties of their operators and by their types.

Kinds take nodes in the order of `KINDS`. For the end of a transformer layer:

    h = matmul(x, w)           contraction    takes h, b and r: bias and residual are its epilogue
    b = h + bias
    r = b + residual
    n = layer_norm(r)          rows           n cannot join: it needs whole rows of r
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Region, Value, constant_of, read_values, substitute_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..manager import Context, Pass
from ..rewrite import Names, count_uses
from .fuse_attention import grow_attention, starts_attention
from .fuse_channels import grow_channels, starts_channels
from .fuse_contraction import grow_contraction, starts_contraction
from .fuse_elements import grow_elements, starts_elements
from .fuse_flow import Flow, Group, has
from .fuse_order import move_contractions_up
from .fuse_rows import grow_rows, starts_rows
from .fuse_rules import explain, moves_linearly


@dataclass(frozen=True, slots=True)
class Kind:
    """The seeds and the growth of a kind of group. With `backwards`, seeds are tried from the last node on."""

    starts: Callable[[Flow, int], bool]
    grow: Callable[[Flow, int], set[int]]
    backwards: bool = False


KINDS: Mapping[str, Kind] = {
    # contraction, rowwise operator, contraction: the scores never leave the cache
    "attention": Kind(starts_attention, grow_attention),
    # depthwise contractions in sequence, with their padding and the elementwise nodes after them
    "channels": Kind(starts_channels, grow_channels),
    # a contraction, and nodes that are elementwise in its result: bias, activation, residual
    "contraction": Kind(starts_contraction, grow_contraction),
    # reductions and normalisations of the same rows, with the elementwise nodes around them
    "rows": Kind(starts_rows, grow_rows),
    # chains of elementwise nodes
    "elements": Kind(starts_elements, grow_elements, backwards=True),
}
"""The kinds of groups, in the order in which they take nodes. A residual therefore joins the contraction before it, and
not the norm after it."""


@dataclass(frozen=True)
class Fuse(Pass):
    """Groups nodes with their users into `fusion` nodes, so that intermediate values need not be stored.

    `kinds` selects the kinds of groups, which take nodes in this order: attention (two contractions around a softmax or
    another operator on rows), channels (chains of contractions that compute each channel from one channel alone),
    contraction (with the elementwise nodes after it), rows (reductions and normalizations of the same rows), elements
    (elementwise nodes). In groups of all kinds except elements, all tensors but indices are computed with the same
    number of bits. No outside node depends on one node of a group and feeds another, and no expensive node is computed
    twice.
    Scalar constants and generators (a range, a triangle) are copied into the groups that read them. Views at the border
    of a group stay outside, where they cost nothing.

    A value with other users becomes an additional result of a group of rows or elements; groups of other kinds have one
    result. Single nodes are not grouped. Nodes with only copied uses are left to `dce`. The context receives a remark
    with the reason for each value that is still passed between two nodes.

    With `in-place`, kernels read the second operand of a contraction in any order: a transposition joins the
    contractions that sum over its last axis, in every dtype and for any number of rows. Elementwise nodes join a
    reduction before them over any axes.
    """

    name: ClassVar[str] = "fuse"
    kinds: tuple[str, ...] = tuple(KINDS)
    in_place: bool = False

    def __post_init__(self) -> None:
        if not set(self.kinds) <= KINDS.keys():
            raise ValueError(f"some of {', '.join(KINDS)}")

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Fuser(function, context, self).run())


class _Fuser:
    def __init__(self, function: Function, context: Context, options: Fuse) -> None:
        self.function, self.context = function, context
        self.kinds = [(name, kind) for name, kind in KINDS.items() if name in options.kinds]
        self.in_place = options.in_place
        self.names = Names(function)
        self.uses = count_uses(function.body, function.results)
        self.generated: dict[str, Node] = {}

    def run(self) -> Function:
        return replace(self.function, body=self.fuse(self.function.body))

    def fuse(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        flow = self.group(self.take_apart(nodes), self.context.allow)
        body = self.rebuild(flow)
        self.report(flow)
        return body

    def group(self, nodes: Sequence[Node], allow: Callable[[str, Node], bool]) -> Flow:
        flow = Flow(nodes, self.uses, self.find_generated(nodes), self.in_place)
        for name, kind in self.kinds:
            numbers = range(len(nodes))
            for number in reversed(numbers) if kind.backwards else numbers:
                if flow.is_free(number) and kind.starts(flow, number):
                    members = _trim(flow, kind.grow(flow, number))
                    assert not members or not flow.leads_back(members), (number, members)
                    if self.is_worth(flow, members) and allow(name, nodes[number]):
                        flow.take(Group(name, tuple(sorted(members))))
        return flow

    def take_apart(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """Splits a movement with several used results, outside of any group, into one node per result. Each part can
        then join the group that reads it."""
        several = {
            number
            for number, node in enumerate(nodes)
            if has(node, "strided") and sum(self.uses[v.name] > 0 for v in node.outputs) > 1
        }
        if not several:
            return nodes
        several -= self.group(nodes, lambda rule, node: True).groups.keys()
        apart: list[Node] = []
        for number, node in enumerate(nodes):
            if number not in several or not self.context.allow("apart", node):
                apart.append(node)
                continue
            used = [v for v in node.outputs if self.uses[v.name]]
            for kept in used:
                outputs = (v if v is kept else Value(self.names.fresh(v.name), v.type) for v in node.outputs)
                apart.append(replace(node, outputs=tuple(outputs)))
            self.uses.update({v.name: len(used) - 1 for v in node.inputs})
        return apart

    def find_generated(self, nodes: Sequence[Node]) -> frozenset[int]:
        """Finds values that are cheap to recompute: scalars, generators, and data movement of these."""
        found: set[int] = set()
        for number, node in enumerate(nodes):
            scalar = constant_of(node) is not None and node.output.type.rank == 0
            moved = moves_linearly(node) and all(v.name in self.generated for v in node.inputs)
            if scalar or has(node, "generator") or moved:
                found.add(number)
                self.generated.update((v.name, node) for v in node.outputs)
        return frozenset(found)

    def is_worth(self, flow: Flow, members: Collection[int]) -> bool:
        """Returns whether the group has more than one node, counting copies of values that would otherwise be
        stored."""
        copied = self.copied(flow, members)
        return bool(members) and len(members) + sum(not has(self.generated[n], "structure") for n in copied) > 1

    def copied(self, flow: Flow, members: Collection[int]) -> set[str]:
        """Returns the generated values that are copied into a group. A contraction reads its operands from memory."""
        read: dict[bool, set[str]] = {False: set(), True: set()}
        for node in (flow.nodes[m] for m in members):
            read[has(node, "contraction")] |= {v.name for v in node.inputs if v.name in self.generated}
        return read[False] - read[True]

    # --- the new body ---

    def rebuild(self, flow: Flow) -> tuple[Node, ...]:
        """Returns the nodes with each group as one fusion, at the position of its last member or before. Definitions
        precede uses."""
        units = [flow.unit(number) for number in range(len(flow.nodes))]
        waits: dict[int, set[int]] = {}
        followers: dict[int, list[int]] = {}
        for unit in dict.fromkeys(units):
            sources = {units[s][-1] for m in unit for s in flow.sources(m)} - {unit[-1]}
            waits[unit[-1]] = sources
            for source in sources:
                followers.setdefault(source, []).append(unit[-1])
        ready = [number for number, sources in waits.items() if not sources]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            number = heapq.heappop(ready)
            order.append(number)
            for follower in followers.get(number, ()):
                waits[follower].discard(number)
                if not waits[follower]:
                    heapq.heappush(ready, follower)
        assert len(order) == len(waits), "groups wait for each other"
        order = move_contractions_up(flow, order)
        return tuple(self.make(flow, units[n]) if n in flow.groups else self.descend(flow.nodes[n]) for n in order)

    def descend(self, node: Node) -> Node:
        if not node.regions or OPERATORS[node.op].has("group"):
            return node
        return replace(node, regions=tuple(replace(r, body=self.fuse(r.body)) for r in node.regions))

    def make(self, flow: Flow, members: Sequence[int]) -> Node:
        group = [flow.nodes[m] for m in members]
        made = {v.name for node in group for v in node.outputs}
        inside: dict[str, Value] = {}
        inputs: list[Value] = []
        arguments: list[Value] = []
        copies: list[Node] = []
        copied = self.copied(flow, members)

        def read(value: Value, *, copy: bool) -> None:
            if value.name in made or value.name in inside:
                return
            if copy:
                source = self.generated[value.name]
                for operand in source.inputs:
                    read(operand, copy=True)
                for output in source.outputs:
                    inside[output.name] = Value(self.names.fresh(output.name), output.type)
                outputs = tuple(inside[v.name] for v in source.outputs)
                copies.append(replace(substitute_values(source, inside), outputs=outputs))
                return
            inside[value.name] = Value(self.names.fresh(value.name), value.type)
            inputs.append(value)
            arguments.append(inside[value.name])

        for node in group:
            for value in node.inputs:
                read(value, copy=value.name in copied)
        inner = count_uses(group, ())
        results = [v for node in group for v in node.outputs if self.uses[v.name] > inner[v.name]]
        results = results or list(group[-1].outputs)
        # Results keep their names outside, so the values inside need other names.
        for value in results:
            inside[value.name] = Value(self.names.fresh(value.name), value.type)
        body = [
            replace(substitute_values(n, inside), outputs=tuple(inside.get(v.name, v) for v in n.outputs))
            for n in group
        ]
        region = Region(tuple(arguments), (*copies, *body), tuple(inside[v.name] for v in results))
        last = group[-1]
        return Node("fusion", tuple(inputs), tuple(results), (), (region,), last.scope, last.span)

    # --- remarks ---

    def report(self, flow: Flow) -> None:
        """Adds a remark for every value that one kernel stores and another one reads."""
        for number, node in enumerate(flow.nodes):
            if not node.outputs or not (node.regions or not has(node, "structure", "view")):
                continue
            for value in read_values(node):
                path = _path_to(flow, number, value)
                if path is None or flow.unit(path[0]) == flow.unit(number) or self.is_copied(flow, number, value):
                    continue
                made, read = self.used(flow.nodes[path[0]]), self.used(node)
                self.context.remark(self.function.name, made.name, read.name, explain(flow, path))

    def used(self, node: Node) -> Value:
        """Returns the first result of a node that is used, if there is one."""
        return next((v for v in node.outputs if self.uses[v.name]), node.outputs[0])

    def is_copied(self, flow: Flow, number: int, value: Value) -> bool:
        return number in flow.groups and value.name in self.copied(flow, flow.groups[number].members)


def _path_to(flow: Flow, reader: int, value: Value) -> list[int] | None:
    """Returns the path from the kernel that computes an operand of a node, through views, to the node."""
    path = [reader]
    source = flow.source(value)
    while source is not None and not (has(flow.nodes[source], "structure") and not flow.nodes[source].regions):
        path.insert(0, source)
        if not has(flow.nodes[source], "view") or source in flow.groups:
            return path
        source = flow.source(flow.nodes[source].inputs[0])
    return None


def _trim(flow: Flow, members: set[int]) -> set[int]:
    """Removes views at the border of the group."""
    while True:
        border = {
            m
            for m in members
            if has(flow.nodes[m], "view")
            and (not any(s in members for s in flow.sources(m)) or not any(r in members for r in flow.readers[m]))
        }
        if not border:
            return members
        members = members - border
