"""The gradients of `if`, `scan` and `custom`.

A branch is differentiated branch by branch. Its values are computed again in the `if` of the gradients:

    %y = if(%c) do () { f(%x) } do () { g(%x) }     %dx = if(%c) do () { %dy * f'(%x) } do () { %dy * g'(%x) }

A loop runs backwards. It collects the carried values at the start of each iteration; an iteration of the backward loop
computes its values again from these, so a loop keeps its carried values and nothing else:

    %h, %hs = scan(%h0) do (%t, %h_t) { %n = f(%h_t, %w); yield %n, %h_t }
    %dh0, %dw = scan(%dh, 0) do (%s, %dh_s, %dw_s) {
      %t = T - 1 - %s;  %h_t = gather(%hs, %t)
      %dn_h, %dn_w = gradients of f at %h_t and %w
      yield %dn_h, %dw_s + %dn_w
    }

The gradient of `custom` is a copy of its second region.

The gradient of a tensor that is read by `gather(%x, %t)` alone is collected slice by slice. `while` has no gradient:
its number of iterations, and so the memory of its values, is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace

from ...dialect.control_flow import carried_count, collected_type, trip_count
from ...dialect.differentiate import Given, RegionGradient, pull_back, spread
from ...dialect.graph import Node, Region, Value, captured, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import I64, TensorType
from ..analysis.factors import gathered_axis
from .equal_nodes import merge_equal

Pairs = list[tuple[Value, Value]]


@dataclass(slots=True)
class RegionGradients:
    """Appends gradients to a builder. `starts` are the collected carried values of prepared loops, by the name of their
    first result."""

    b: Builder
    starts: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def rules(self) -> dict[str, RegionGradient]:
        return {"if": self.branch, "scan": self.scan, "custom": self.custom}

    def prepare(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Returns the nodes with loops that collect their carried values."""
        return tuple(self._collect_starts(node) if node.op == "scan" else node for node in nodes)

    def _collect_starts(self, node: Node) -> Node:
        (region,) = node.regions
        arguments = region.arguments[1:]
        starts = tuple(self.b.fresh(collected_type(v.type, trip_count(node))) for v in arguments)
        self.starts[node.outputs[0].name] = starts
        region = replace(region, results=(*region.results, *arguments))
        return replace(node, outputs=(*node.outputs, *starts), regions=(region,))

    # --- branches ---

    def branch(self, node: Node, given: Given, active: AbstractSet[str]) -> Pairs:
        wanted = list(dict.fromkeys(v for region in node.regions for v in _active(captured(region), active)))
        regions = tuple(self._branch_gradients(region, given, wanted) for region in node.regions)
        outputs = tuple(self.b.fresh(value.type) for value in wanted)
        self._add("if", node.inputs, outputs, regions)
        return list(zip(wanted, outputs, strict=True))

    def _branch_gradients(self, region: Region, given: Given, wanted: Sequence[Value]) -> Region:
        outside, self.b.nodes = self.b.nodes, []
        names: dict[str, Value] = {}
        body = self._copy(region, names)
        pairs = [(names.get(v.name, v), g) for v, g in zip(region.results, given, strict=True) if g is not None]
        parts = pull_back(self.b, body, self._sums(pairs), wanted, self.rules)
        results = tuple(self._zeros(v.type) if p is None else p for v, p in zip(wanted, parts, strict=True))
        made, self.b.nodes = tuple(self.b.nodes), outside
        return Region((), made, results)

    def custom(self, node: Node, given: Given, active: AbstractSet[str]) -> Pairs:
        region = node.regions[1]
        floats = [(v, g) for v, g in zip(node.outputs, given, strict=True) if v.type.dtype.is_differentiable]
        seeds = [self._zeros(v.type) if g is None else g for v, g in floats]
        outside = (*node.inputs, *node.outputs, *seeds)
        values = {inner.name: value for inner, value in zip(region.arguments, outside, strict=True)}
        self.b.nodes += copy_nodes(self.b, region.body, values)
        wanted = [v for v in node.inputs if v.type.dtype.is_differentiable]
        return [(v, values.get(g.name, g)) for v, g in zip(wanted, region.results, strict=True) if v.name in active]

    # --- loops ---

    def scan(self, node: Node, given: Given, active: AbstractSet[str]) -> Pairs:
        b, (region,), count = self.b, node.regions, trip_count(node)
        index, *arguments = region.arguments
        flows = _flowing(node, active)
        step = b.fresh(TensorType(I64))
        back = [b.fresh(arguments[i].type) for i in flows]
        collected = [(v, g) for v, g in _collected(node, given) if g is not None]

        outside, b.nodes = b.nodes, []
        last = b.subtract(b.size_value(size=count), b.scalar(1, I64))
        turn = b.subtract(last, step)
        starts = self.starts[node.outputs[0].name]
        values = {index.name: turn}
        # Only the iteration itself reads its values, so `dce` removes those that its gradients do not need.
        values |= {v.name: b.gather(s, turn, axis=0, mode="clamp") for v, s in zip(arguments, starts, strict=True)}
        body = self._copy(region, values)
        slices = _scanned_slices(body, turn, count, active)
        whole = {v.name for v, _ in slices}
        summed = [v for v in _active(captured(region), active) if v.name not in whole]
        sums = [b.fresh(v.type) for v in summed]

        pairs = [(values.get(v.name, v), b.gather(g, turn, axis=0, mode="clamp")) for v, g in collected]
        pairs += [(self._final(values, region.results[i]), g) for i, g in zip(flows, back, strict=True)]
        wanted = [values[arguments[i].name] for i in flows] + summed + [node.output for _, node in slices]
        parts = pull_back(b, body, self._sums(pairs), wanted, self.rules)
        results: list[Value] = []
        for number, (value, part) in enumerate(zip(wanted, parts, strict=True)):
            place = number - len(flows)
            if 0 <= place < len(summed):
                results.append(sums[place] if part is None else b.add(sums[place], part))
            else:
                results.append(self._zeros(value.type) if part is None else part)
        loop = Region((step, *back, *sums), tuple(b.nodes), tuple(results))
        b.nodes = outside

        first = [given[i] or self._zeros(arguments[i].type) for i in flows]
        first += [self._zeros(v.type) for v in summed]
        outputs = [b.fresh(v.type) for v in first]
        outputs += [b.fresh(collected_type(n.output.type, count)) for _, n in slices]
        self._add("scan", tuple(first), tuple(outputs), (loop,), (("carried", len(first)), ("count", count)))
        made: Pairs = [(node.inputs[i], outputs[number]) for number, i in enumerate(flows)]
        made += zip(summed, outputs[len(flows) : len(first)], strict=True)
        for (value, read), output in zip(slices, outputs[len(first) :], strict=True):
            made.append((value, self._unscanned(output, value, read)))
        return [(v, g) for v, g in made if v.name in active]

    def _final(self, values: dict[str, Value], value: Value) -> Value:
        return values.get(value.name, value)

    def _unscanned(self, stacked: Value, value: Value, read: Node) -> Value:
        """Returns the gradient of a tensor from those of its slices, which the backward loop stacked in reverse."""
        axis = gathered_axis(read)
        forward = self.b.flip(stacked, axes=(0,))
        rest = list(range(1, value.type.rank))
        return self.b.transpose(forward, axes=(*rest[:axis], 0, *rest[axis:])) if axis else forward

    # --- shared ---

    def _copy(self, region: Region, values: dict[str, Value]) -> tuple[Node, ...]:
        """Appends a copy of the body, with prepared loops, without equal nodes; `values` maps its names to those of the
        copy."""
        body, equal = merge_equal(self.prepare(copy_nodes(self.b, region.body, values)))
        values |= {name: equal.get(value.name, value) for name, value in values.items()}
        self.b.nodes += body
        return body

    def _sums(self, pairs: Iterable[tuple[Value, Value]]) -> dict[Value, Value]:
        """Returns the total gradient of each value."""
        totals: dict[Value, Value] = {}
        for value, gradient in pairs:
            totals[value] = self.b.add(totals[value], gradient) if value in totals else gradient
        return totals

    def _zeros(self, type: TensorType) -> Value:
        return self.b.full(shape=type.shape, value=0.0, dtype=type.dtype)

    def _add(
        self,
        op: str,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        regions: tuple[Region, ...],
        attributes: tuple[tuple[str, object], ...] = (),
    ) -> None:
        self.b.nodes.append(
            Node(op, inputs, outputs, attributes, regions, self.b.scope, self.b.span)  # type: ignore[arg-type]  # sizes
        )


def copy_nodes(b: Builder, nodes: Iterable[Node], values: dict[str, Value]) -> list[Node]:
    """Returns copies of nodes under fresh names. `values` maps names to values of the copy; its results are added."""

    def fresh(value: Value) -> Value:
        values[value.name] = b.fresh(value.type)
        return values[value.name]

    copies: list[Node] = []
    for node in nodes:
        inputs = tuple(values.get(v.name, v) for v in node.inputs)
        regions: list[Region] = []
        for region in node.regions:
            arguments = tuple(map(fresh, region.arguments))
            body = tuple(copy_nodes(b, region.body, values))
            regions.append(Region(arguments, body, tuple(values.get(v.name, v) for v in region.results)))
        copies.append(replace(node, inputs=inputs, outputs=tuple(map(fresh, node.outputs)), regions=tuple(regions)))
    return copies


def _active(values: Iterable[Value], active: AbstractSet[str]) -> list[Value]:
    return [v for v in values if v.name in active and v.type.dtype.is_differentiable]


def _collected(node: Node, given: Given) -> Iterable[tuple[Value, Value | None]]:
    """Returns the collected values of an iteration, and the gradients of the stacked ones. The starts of iterations,
    which are collected last, have none."""
    carried = carried_count(node)
    own = len(node.outputs) - carried
    return zip(node.regions[0].results[carried:own], given[carried:own], strict=True)


def _flowing(node: Node, active: AbstractSet[str]) -> list[int]:
    """Returns the numbers of the carried values that depend on active ones in some iteration."""
    (region,) = node.regions
    arguments = region.arguments[1:]
    flows: set[int] = {i for i, v in enumerate(node.inputs) if v.name in active}
    while True:
        names = spread(region.body, active | {arguments[i].name for i in flows})
        wider = flows | {i for i in range(len(arguments)) if region.results[i].name in names}
        wider = {i for i in wider if arguments[i].type.dtype.is_differentiable}
        if wider == flows:
            return sorted(flows)
        flows = wider


def _scanned_slices(
    body: Sequence[Node], index: Value, count: object, active: AbstractSet[str]
) -> list[tuple[Value, Node]]:
    """Returns the tensors of the surrounding function from which an iteration reads one slice, at its index, and the
    node that reads it. Together, the iterations read every slice once."""
    found: list[tuple[Value, Node]] = []
    made = {v.name for node in body for v in node.outputs}
    reads: dict[str, int] = {}
    for node in walk(body):
        for value in node.inputs:
            reads[value.name] = reads.get(value.name, 0) + 1
        for region in node.regions:
            for value in region.results:
                reads[value.name] = reads.get(value.name, 0) + 1
    for node in body:
        if not OPERATORS[node.op].has("gathering") or node.inputs[1] != index or node.inputs[0].name in made:
            continue
        value = node.inputs[0]
        whole = value.type.shape[gathered_axis(node)] == count and reads[value.name] == 1
        if whole and value.name in active and value.type.dtype.is_differentiable:
            found.append((value, node))
    return found
