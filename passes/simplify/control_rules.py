"""Rules of loops and branches at call time: choices that are known, loops that do not run, values that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ...dialect.control_flow import trip_count
from ...dialect.dims import bounds
from ...dialect.graph import Node, Region, Value, substitute_values
from .rules import Match, Rule, Values

T = TypeVar("T")
GENERAL: tuple[Rule, ...] = ()


def choose_known(m: Match) -> Values:
    # if true { a } else { b } == a
    condition = m.array(m.inputs[0])
    if condition is None:
        return None
    region = m.node.regions[0 if condition.item() else 1]
    m.b.nodes += region.body
    return region.results


def scan_never(m: Match) -> Values:
    # A scan without iterations returns its initial values; its collected results are empty.
    if bounds(trip_count(m.node))[1] > 0:
        return None
    collected = m.node.outputs[len(m.inputs) :]
    empty = [m.b.full(shape=v.type.shape, value=_zero(v), dtype=v.type.dtype) for v in collected]
    return [*m.inputs, *empty]


def _zero(value: Value) -> float | int | bool:
    dtype = value.type.dtype
    return 0.0 if dtype.is_float else False if dtype.name == "bool" else 0


def carry_what_changes(m: Match) -> Values:
    # A carried value that the body returns unchanged equals its initial value.
    count = len(m.inputs)
    body = m.node.regions[-1]
    arguments = body.arguments[len(body.arguments) - count :]
    kept = [a.name != r.name for a, r in zip(arguments, body.results[:count], strict=True)]
    if all(kept):
        return None

    def pick(values: Sequence[T]) -> tuple[T, ...]:
        return tuple(value for value, chosen in zip(values, kept, strict=True) if chosen)

    regions: list[Region] = []
    for region in m.node.regions:
        first = len(region.arguments) - count
        carried = region.arguments[first:]
        initial = {a.name: v for a, v, chosen in zip(carried, m.inputs, kept, strict=True) if not chosen}
        results = region.results if region is not body else (*pick(region.results[:count]), *region.results[count:])
        regions.append(
            Region(
                (*region.arguments[:first], *pick(carried)),
                tuple(substitute_values(node, initial) for node in region.body),
                tuple(initial.get(v.name, v) for v in results),
            )
        )
    outputs = tuple(m.b.fresh(v.type) for v in (*pick(m.node.outputs[:count]), *m.node.outputs[count:]))
    attributes = tuple((name, sum(kept) if name == "carried" else value) for name, value in m.node.attributes)
    loop: Node = replace(m.node, inputs=pick(m.inputs), outputs=outputs, attributes=attributes, regions=tuple(regions))
    m.b.nodes.append(loop)
    changed = iter(outputs)
    carried_out = [next(changed) if chosen else value for chosen, value in zip(kept, m.inputs, strict=True)]
    return [*carried_out, *changed]


BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    "if": (choose_known,),
    "scan": (scan_never, carry_what_changes),
    "while": (carry_what_changes,),
}
