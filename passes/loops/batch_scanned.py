"""`batch-scanned`: computes contractions of scanned slices for all iterations at once, before the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from ...dialect.control_flow import CONTROL_FLOW, trip_count
from ...dialect.dims import Shape, Size, at_least, multiply, product, static_size
from ...dialect.graph import Attribute, Function, Module, Node, Region, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import without_diagonals
from ...dialect.ops.support.index_modes import FAILING_MODES
from ..analysis.factors import gathered_axis
from ..manager import Context, Pass
from ..rewrite import Names, NodeBuilder


@dataclass(frozen=True)
class BatchScanned(Pass):
    """Moves contractions of a scanned slice and a matrix that is equal in all iterations out of a `scan`, together with
    the elementwise nodes around them.

        scan() {count = T} do (%t) {                     %y = matmul(%x, %w)       f32[T, B, H] @ f32[H, K]
          %x_t = gather(%x, %t) {axis = 0}        ->     scan() {count = T} do (%t) {
          %y_t = matmul(%x_t, %w)                          %y_t = gather(%y, %t) {axis = 0}

    One contraction of T*B rows reads the matrix once, where T contractions of B rows read it T times. The results of
    all iterations need memory at once. A slice along another axis than the first becomes a slice along the first axis
    of a transposed tensor, whose elements are consecutive, so that no kernel copies it.

    Assumes that `check-indices` and `hoist-invariants` have run. Leaves unused nodes to `dce`.
    """

    name: ClassVar[str] = "batch-scanned"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Batcher(function, context).run())


class _Batcher:
    def __init__(self, function: Function, context: Context) -> None:
        self.function, self.context, self.names = function, context, Names(function)

    def run(self) -> Function:
        return replace(self.function, body=self.walk(self.function.body))

    def walk(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            if node.op in CONTROL_FLOW:
                node = replace(node, regions=tuple(replace(r, body=self.walk(r.body)) for r in node.regions))
            if node.op == "scan":
                before, node = _Scan(node, self.names, self.context).run()
                result += before
            result.append(node)
        return tuple(result)


class _Scan:
    """One loop. `whole` maps a value of the body to a tensor outside that holds its values in all iterations, stacked
    along the first axis; `rows` maps results of contractions, and of elementwise nodes after them, to the same as a
    matrix. A product of T*B rows is faster than T products of B rows."""

    def __init__(self, node: Node, names: Names, context: Context) -> None:
        self.node, self.names, self.context = node, names, context
        self.region: Region = node.regions[0]
        self.index, self.count = self.region.arguments[0], trip_count(node)
        self.inside = {v.name for v in self.region.arguments} | {v.name for n in self.region.body for v in n.outputs}
        self.before: list[Node] = []
        self.whole: dict[str, Value] = {}
        self.rows: dict[str, Value] = {}

    def run(self) -> tuple[list[Node], Node]:
        moved = self.moved()
        body: list[Node] = []
        for node in self.region.body:
            axis = self.scanned_axis(node)
            if axis is not None and self.is_turned(node, axis) and self.context.allow("turn", node):
                self.turn(node, axis)
                node = self.slice(node)
            elif node.outputs[0].name in moved and self.is_ready(node) and self.context.allow("batch", node):
                self.batch(node)
                node = self.slice(node)
            body.append(node)
        return self.before, replace(self.node, regions=(replace(self.region, body=tuple(body)),))

    # --- the nodes that move ---

    def scanned_axis(self, node: Node) -> int | None:
        """Returns the axis of an outer tensor along which the node reads one slice per iteration; None otherwise."""
        if not OPERATORS[node.op].has("gathering") or node.inputs[1] != self.index:
            return None
        if node.inputs[0].name in self.inside or node.attribute("mode") in FAILING_MODES:
            return None
        axis = gathered_axis(node)
        return axis if at_least(node.inputs[0].type.shape[axis], self.count) else None

    def moved(self) -> set[str]:
        """Returns the results of the nodes that move: contractions, and elementwise nodes and views that lead to one
        or follow one."""
        batched: dict[str, Node] = {}
        scanned = {n.output.name for n in self.region.body if self.scanned_axis(n) is not None}
        for node in self.region.body:
            if self.can_batch(node, scanned | batched.keys()):
                batched[node.output.name] = node
        follows: set[str] = set()
        for name, node in batched.items():
            if OPERATORS[node.op].has("contraction") or any(v.name in follows for v in node.inputs):
                follows.add(name)
        leads: set[str] = set()
        for name, node in reversed(batched.items()):
            if name in leads or (name in follows and OPERATORS[node.op].has("contraction")):
                leads |= {v.name for v in node.inputs if v.name in batched}
        return follows | leads

    def can_batch(self, node: Node, scanned: set[str]) -> bool:
        if not any(v.name in scanned for v in node.inputs) or (node.op not in _BATCHED and not _is_elementwise(node)):
            return False
        if any(v.name in self.inside and v.name not in scanned for v in node.inputs):
            return False
        if node.op == "matmul":
            x, weight = node.inputs
            return x.name in scanned and x.type.rank >= 2 and weight.type.rank == 2 and weight.name not in scanned
        # The first axis of a whole tensor must not meet an axis of another operand.
        rank = max(v.type.rank for v in node.inputs)
        return all(v.type.rank == rank for v in node.inputs if v.name in scanned)

    # --- the nodes outside ---

    def batch(self, node: Node) -> None:
        b = NodeBuilder(self.names, node)
        rows: list[Value] = []
        if node.op == "matmul":
            rows = [self.rows_of(node.inputs[0]), node.inputs[1]]
        elif self.acts_on_rows(node):
            rows = [self.rows.get(v.name, v) for v in node.inputs]
        if rows:
            # Rows of all iterations are no longer the rows of one matrix.
            self.rows[node.output.name] = b.apply(node.op, rows, without_diagonals(dict(node.attributes)))[0]
            self.before += b.nodes
            return
        inputs = [self.whole_of(v) for v in node.inputs]
        attributes = _BATCHED[node.op](dict(node.attributes), self.count) if node.op in _BATCHED else None
        (value,) = b.apply(node.op, inputs, dict(node.attributes) if attributes is None else attributes)
        self.before += b.nodes
        self.whole[node.output.name] = value

    def acts_on_rows(self, node: Node) -> bool:
        """Returns whether an elementwise node combines rows of the same number with scalars and vectors."""
        others = [v for v in node.inputs if v.name not in self.rows]
        leading = {v.type.shape[:-1] for v in node.inputs if v.name in self.rows}
        if not _is_elementwise(node) or len(leading) != 1:
            return False
        return all(v.name not in self.inside and v.type.rank < 2 for v in others)

    def is_ready(self, node: Node) -> bool:
        return all(v.name not in self.inside or self.maker_axis(v) is not None or self.is_moved(v) for v in node.inputs)

    def is_moved(self, value: Value) -> bool:
        return value.name in self.whole or value.name in self.rows

    def maker_axis(self, value: Value) -> int | None:
        maker = next((n for n in self.region.body if value in n.outputs), None)
        return None if maker is None else self.scanned_axis(maker)

    def whole_of(self, value: Value) -> Value:
        if value.name not in self.inside:
            return value
        if value.name in self.rows and value.name not in self.whole:
            self.whole[value.name] = self.reshaped(self.rows[value.name], (self.count, *value.type.shape))
        if value.name not in self.whole:
            maker = next(n for n in self.region.body if value in n.outputs)
            axis = self.scanned_axis(maker)
            assert axis is not None, maker
            self.turn(maker, axis)
        return self.whole[value.name]

    def rows_of(self, value: Value) -> Value:
        if value.name not in self.rows:
            shape = value.type.shape
            flat = (multiply(self.count, product(shape[:-1])), shape[-1])
            self.rows[value.name] = self.reshaped(self.whole_of(value), flat)
        return self.rows[value.name]

    def reshaped(self, value: Value, shape: Shape) -> Value:
        maker = next(n for n in (*self.before, self.node) if value in n.outputs or n is self.node)
        b = NodeBuilder(self.names, maker)
        reshaped = b.reshape(value, shape=shape)
        self.before += b.nodes
        return reshaped

    def is_turned(self, node: Node, axis: int) -> bool:
        """Returns whether the slice is along another axis than the first."""
        return any(size != 1 for size in node.inputs[0].type.shape[:axis])

    def turn(self, node: Node, axis: int) -> None:
        """Moves the scanned axis to the front: writes the transposed tensor, whose slices are consecutive."""
        if node.output.name in self.whole:
            return
        b, x = NodeBuilder(self.names, node), node.inputs[0]
        rank = x.type.rank
        if x.type.shape[axis] != self.count:
            stops = tuple(self.count if a == axis else None for a in range(rank))
            x = b.slice(x, starts=(None,) * rank, stops=stops, steps=(1,) * rank)
        if axis:
            x = b.transpose(x, axes=(axis, *(a for a in range(rank) if a != axis)))
        self.before += b.nodes
        self.whole[node.output.name] = x

    def slice(self, node: Node) -> Node:
        attributes: tuple[tuple[str, Attribute], ...] = (("axis", 0), ("mode", "clamp"))
        inputs = (self.whole_of(node.output), self.index)
        return replace(node, op="gather", inputs=inputs, attributes=attributes)


def _is_elementwise(node: Node) -> bool:
    return OPERATORS[node.op].has("elementwise") and len(node.outputs) == 1 and not node.regions


def _shifted(name: str) -> Callable[[Mapping[str, Attribute], Size], dict[str, Attribute]]:
    """Returns the change of an attribute that lists axes, or of one axis, counted from the front."""

    def change(attributes: Mapping[str, Attribute], count: Size) -> dict[str, Attribute]:
        axes = attributes[name]
        given = axes if isinstance(axes, tuple) else (axes,)
        moved = tuple(a + 1 if isinstance(a, int) and a >= 0 else a for a in given)
        return {**attributes, name: moved}

    return change


def _reshaped(attributes: Mapping[str, Attribute], count: Size) -> dict[str, Attribute]:
    shape = attributes["shape"]
    assert isinstance(shape, tuple), shape
    return {**attributes, "shape": (count, *shape)}


def _turned(attributes: Mapping[str, Attribute], count: Size) -> dict[str, Attribute]:
    axes = attributes["axes"]
    assert isinstance(axes, tuple), axes
    return {**attributes, "axes": (0, *(static_size(a) + 1 for a in axes))}


_BATCHED: Mapping[str, Callable[[Mapping[str, Attribute], Size], dict[str, Attribute]]] = {
    "matmul": lambda attributes, count: dict(attributes),
    "reshape": _reshaped,
    "unsqueeze": _shifted("axes"),
    "squeeze": _shifted("axes"),
    "transpose": _turned,
}
"""The operators besides elementwise ones that move, with the attributes for a tensor of all iterations."""
