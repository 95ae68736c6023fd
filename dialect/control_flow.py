"""Operators with regions that run zero, one or many times: `scan`, `while`, `if` and `custom`.

A region reads values of the surrounding function by name. This table holds the types and the meaning of each operator;
the verifier and the interpreter read it. Lowering and passes ask `CONTROL_FLOW` whether a node belongs here.

    %h, %c, %all = scan(%h0, %c0) {carried = 2, count = T} : f32[B, H], f32[B, H], f32[T, B, H]
      do (%t: i64, %h_1: f32[B, H], %c_1: f32[B, H]) {
        ...
        yield %h_2, %c_2, %h_2        the next carried values, then one slice of each collected result
      }

    %x = while(%x0) : f32[N]
      do (%x_1: f32[N]) { ... yield %goes_on }     a bool scalar
      do (%x_2: f32[N]) { ... yield %x_3 }

    %y = if(%condition) : f32[N]
      do () { ... yield %then }
      do () { ... yield %otherwise }

    %y = custom(%x) {name = "Swish"} : f32[N]
      do (%x_1: f32[N]) { ... yield %y_1 }                               the results
      do (%x_2: f32[N], %y_2: f32[N], %dy: f32[N]) { ... yield %dx }     the gradients of the float operands

The second region of `custom` is a gradient written by hand. It receives the operands, the results, and the gradients of
the float results. It runs only in a training step, where differentiation copies it; `inline-custom` leaves the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from .dims import Size
from .graph import Attribute, Node, Region, Value
from .lazy_dataclass import dataclass
from .types import BOOL, I64, Array, TensorType

Types = tuple[TensorType, ...]
Expectation = tuple[str, Types, Types]
"""A name of some values of a node, their types, and the types that they must have."""
RunRegion = Callable[[Region, Sequence[Array]], list[Array]]
SizeOf = Callable[[Attribute], int]

_CONDITION = (TensorType(BOOL),)


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """An operator with regions. `regions` names them; `expectations` lists the types of a node with as many regions;
    `run` computes the results, where `run_region` runs a region once and `size_of` evaluates a size. `repeats` says
    whether regions may run more than once, `is_bounded` whether the dims bound how often, and `is_choice` whether one
    region runs and the others do not."""

    name: str
    regions: tuple[str, ...]
    repeats: bool
    is_bounded: bool
    expectations: Callable[[Node], Iterable[Expectation]]
    run: Callable[[Node, Sequence[Array], RunRegion, SizeOf], list[Array]]
    is_choice: bool = False


def carries_values(node: Node) -> bool:
    """Returns whether the node is a loop, whose regions receive carried values as their last arguments."""
    flow = CONTROL_FLOW.get(node.op)
    return bool(node.regions) if flow is None else flow.repeats


def condition_of(node: Node) -> Region | None:
    """Returns the region that computes the condition of a loop, if it has one."""
    flow = CONTROL_FLOW.get(node.op)
    return dict(zip(flow.regions, node.regions, strict=True)).get("condition") if flow is not None else None


def is_choice(node: Node) -> bool:
    """Returns whether one region of the node runs and the others do not."""
    return node.op in CONTROL_FLOW and CONTROL_FLOW[node.op].is_choice


def walk_control(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields every node that is not inside a fusion or a `repeat`: control flow, and the nodes of its regions after
    it."""
    for node in nodes:
        yield node
        if node.op in CONTROL_FLOW:
            for region in node.regions:
                yield from walk_control(region.body)


def called_regions(node: Node) -> tuple[Region, ...]:
    """Returns the regions that a call of the node may run: all but the gradient of `custom`."""
    return node.regions[:1] if node.op == "custom" else node.regions


def types_of(values: Iterable[Value]) -> Types:
    return tuple(value.type for value in values)


def carried_count(node: Node) -> int:
    """Returns the number of carried values of a `scan`: the first results of the node and of its region."""
    count = node.attribute("carried")
    assert isinstance(count, int), node
    return count


def trip_count(node: Node) -> Size:
    """Returns how often the regions of a node run in a row: the number of iterations of a `scan` or a `repeat`, where a
    negative one means none, and 1 for other nodes. No dim bounds the iterations of a `while`; they count as one."""
    count = dict(node.attributes).get("count", 1)
    assert not isinstance(count, (bool, float, str, tuple)) and count is not None, node
    return count  # type: ignore[return-value]  # the verifier admits sizes only


def collected_type(slice: TensorType, count: Size) -> TensorType:
    """Returns the type of the slices of all iterations, stacked along a leading axis."""
    return slice.with_shape((count, *slice.shape))


def _expect_scan(node: Node) -> Iterable[Expectation]:
    (region,) = node.regions
    carried, count = carried_count(node), trip_count(node)
    initial = types_of(node.inputs)
    yield "arguments", types_of(region.arguments), (TensorType(I64), *initial)
    yield "carried values", types_of(region.results)[:carried], initial
    collected = tuple(collected_type(v.type, count) for v in region.results[carried:])
    yield "results", types_of(node.outputs), (*initial, *collected)


def _run_scan(node: Node, inputs: Sequence[Array], run_region: RunRegion, size_of: SizeOf) -> list[Array]:
    (region,) = node.regions
    carried = carried_count(node)
    values = list(inputs)
    slices: list[list[Array]] = [[] for _ in region.results[carried:]]
    for index in range(size_of(trip_count(node))):
        results = run_region(region, [np.asarray(np.int64(index)), *values])
        values = results[:carried]
        for made, slice in zip(slices, results[carried:], strict=True):
            made.append(slice)
    shapes = [tuple(map(size_of, v.type.shape)) for v in node.outputs[carried:]]
    return values + [np.stack(made) if made else np.zeros(shape) for made, shape in zip(slices, shapes, strict=True)]


def _expect_while(node: Node) -> Iterable[Expectation]:
    condition, body = node.regions
    initial = types_of(node.inputs)
    yield "arguments", types_of(condition.arguments), initial
    yield "conditions", types_of(condition.results), _CONDITION
    yield "arguments", types_of(body.arguments), initial
    yield "carried values", types_of(body.results), initial
    yield "results", types_of(node.outputs), initial


def _run_while(node: Node, inputs: Sequence[Array], run_region: RunRegion, size_of: SizeOf) -> list[Array]:
    condition, body = node.regions
    values = list(inputs)
    while bool(run_region(condition, values)[0]):
        values = run_region(body, values)
    return values


def _expect_if(node: Node) -> Iterable[Expectation]:
    yield "conditions", types_of(node.inputs), _CONDITION
    for region in node.regions:
        yield "arguments", types_of(region.arguments), ()
        yield "results", types_of(region.results), types_of(node.outputs)


def _run_if(node: Node, inputs: Sequence[Array], run_region: RunRegion, size_of: SizeOf) -> list[Array]:
    then, otherwise = node.regions
    return run_region(then if bool(inputs[0]) else otherwise, ())


def _float_types(values: Iterable[Value]) -> Types:
    return tuple(value.type for value in values if value.type.dtype.is_differentiable)


def _expect_custom(node: Node) -> Iterable[Expectation]:
    forward, gradient = node.regions
    operands, results = types_of(node.inputs), types_of(node.outputs)
    yield "arguments", types_of(forward.arguments), operands
    yield "results", types_of(forward.results), results
    yield "arguments", types_of(gradient.arguments), (*operands, *results, *_float_types(node.outputs))
    yield "gradients", types_of(gradient.results), _float_types(node.inputs)


def _run_custom(node: Node, inputs: Sequence[Array], run_region: RunRegion, size_of: SizeOf) -> list[Array]:
    return run_region(node.regions[0], inputs)


CONTROL_FLOW: Mapping[str, ControlFlow] = {
    each.name: each
    for each in (
        ControlFlow("scan", ("body",), True, True, _expect_scan, _run_scan),
        ControlFlow("while", ("condition", "body"), True, False, _expect_while, _run_while),
        ControlFlow("if", ("then", "otherwise"), False, True, _expect_if, _run_if, is_choice=True),
        ControlFlow("custom", ("forward", "gradient"), False, True, _expect_custom, _run_custom),
    )
}
