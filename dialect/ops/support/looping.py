"""Loops in decompositions and gradients: a `scan` whose body a builder writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...control_flow import collected_type
from ...dims import Size
from ...graph import Node, Region, Value
from ...operator import Builder
from ...types import I64, TensorType

Step = Callable[[Value, Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]
"""`step(index, carried) -> (carried, collected)`, which adds its nodes to the builder."""


def scan(b: Builder, initial: Sequence[Value], count: Size, step: Step) -> tuple[Value, ...]:
    """Adds a `scan` and returns its results: the last carried values, and the stacked collected ones."""
    arguments = (b.fresh(TensorType(I64)), *(b.fresh(value.type) for value in initial))
    outer, b.nodes = b.nodes, []
    try:
        carried, collected = step(arguments[0], arguments[1:])
        region = Region(arguments, tuple(b.nodes), (*carried, *collected))
    finally:
        b.nodes = outer
    types = [*(value.type for value in initial), *(collected_type(value.type, count) for value in collected)]
    outputs = tuple(map(b.fresh, types))
    attributes = (("carried", len(initial)), ("count", count))
    b.nodes.append(Node("scan", tuple(initial), outputs, attributes, (region,), b.scope, b.span))
    return outputs
