"""Lowers nodes of control flow to loops and branches around the calls of their regions: see `schedule`.

It assigns memory to carried and collected values, and places the copies between them. The protocol `Lowering` is the
lowering of the function, which also lowers the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...dialect.control_flow import carried_count, trip_count
from ...dialect.dims import Size
from ...dialect.graph import Node, Region, Value
from .lowered import LoweredCall, Tensor
from .nodes import Computed, Source
from .schedule import Branch, Item, Loop, While
from .storage import Sliced

Items = tuple[Item[LoweredCall, Tensor], ...]


class Lowering(Protocol):
    """The interface of the lowering of a function to control flow. `sources` maps names of values to their sources;
    `slices` maps tensors to the slices of larger tensors that hold them; `counts` maps the index of a loop, by name, to
    the number of iterations."""

    sources: dict[str, Source]
    slices: dict[str, Sliced[Computed]]
    counts: dict[str, Size]

    def declare(self, value: Value) -> None:
        """Assigns separate memory to a value, under its name."""

    def lower_body(self, region: Region) -> None:
        """Appends the items of a region."""

    def inside(self, write: Callable[[], None]) -> Items:
        """Returns the items that `write` appends."""

    def add(self, item: Item[LoweredCall, Tensor]) -> None: ...

    def copy(self, source: Value, target: Value, *, is_move: bool) -> None:
        """Appends a call that copies a value into the memory of another."""

    def in_memory(self, value: Value) -> Tensor:
        """Returns the tensor of a value. A constant that is part of the text of kernels is stored in memory first."""


def lower_control_flow(lowering: Lowering, node: Node) -> None:
    _LOWERINGS[node.op](lowering, node)


def _lower_scan(lowering: Lowering, node: Node) -> None:
    (region,) = node.regions
    carried = carried_count(node)
    index, *arguments = region.arguments
    lowering.declare(index)
    lowering.counts[index.name] = trip_count(node)
    _begin(lowering, node, [arguments])
    for result in node.outputs[carried:]:
        lowering.declare(result)

    def write() -> None:
        lowering.lower_body(region)
        for slice, result in zip(region.results[carried:], node.outputs[carried:], strict=True):
            _collect(lowering, slice, result, index)
        _carry(lowering, region.results[:carried], node.outputs[:carried])

    body = lowering.inside(write)
    lowering.add(Loop(index.name, Computed(index.name), trip_count(node), body, node.span))


def _lower_while(lowering: Lowering, node: Node) -> None:
    condition, region = node.regions
    _begin(lowering, node, [condition.arguments, region.arguments])
    (test,) = condition.results
    tests: list[Tensor] = []

    def write_condition() -> None:
        lowering.lower_body(condition)
        tests.append(lowering.in_memory(test))

    def write_body() -> None:
        lowering.lower_body(region)
        _carry(lowering, region.results, node.outputs)

    before = lowering.inside(write_condition)
    lowering.add(While(before, tests[0], lowering.inside(write_body), node.span))


def _lower_if(lowering: Lowering, node: Node) -> None:
    test = lowering.in_memory(node.inputs[0])
    for result in node.outputs:
        lowering.declare(result)

    def write(region: Region) -> Callable[[], None]:
        def inside() -> None:
            lowering.lower_body(region)
            _carry(lowering, region.results, node.outputs)

        return inside

    then, otherwise = (lowering.inside(write(region)) for region in node.regions)
    lowering.add(Branch(test, then, otherwise))


def _begin(lowering: Lowering, node: Node, arguments: Sequence[Sequence[Value]]) -> None:
    """Copies the initial values into the memory of the carried values, which the arguments of regions refer to."""
    for initial, result in zip(node.inputs, node.outputs, strict=False):
        lowering.declare(result)
        lowering.copy(initial, result, is_move=True)
    for values in arguments:
        for argument, result in zip(values, node.outputs, strict=False):
            lowering.sources[argument.name] = Computed(result.name)


def _carry(lowering: Lowering, results: Sequence[Value], targets: Sequence[Value]) -> None:
    """Copies the values of the next iteration into the memory of the carried values, as if simultaneously."""
    names = {target.name for target in targets}
    moved: list[tuple[Value, Value]] = []
    for result, target in zip(results, targets, strict=True):
        source = lowering.sources[result.name]
        if source == Computed(target.name):
            continue
        if isinstance(source, Computed) and source.name in names:
            # h, c = c, h: the first copy would overwrite the value that the second one reads.
            kept = Value(f"{target.name}.next", result.type)
            lowering.declare(kept)
            lowering.copy(result, kept, is_move=False)
            result = kept
        moved.append((result, target))
    for result, target in moved:
        lowering.copy(result, target, is_move=True)


def _collect(lowering: Lowering, slice: Value, result: Value, index: Value) -> None:
    """Copies a value of an iteration into its slice of a collected result."""
    target = Value(f"{result.name}.slice", slice.type)
    lowering.slices[target.name] = Sliced(Computed(result.name), index.name, slice.type.bytes)
    lowering.sources[target.name] = Computed(target.name)
    lowering.copy(slice, target, is_move=True)


_LOWERINGS: dict[str, Callable[[Lowering, Node], None]] = {
    "scan": _lower_scan,
    "while": _lower_while,
    "if": _lower_if,
}
