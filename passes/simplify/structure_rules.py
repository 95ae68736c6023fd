"""Rules of form: axes counted from the front, and loops that do nothing or carry invariant values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.graph import Attribute, Node, Region, Value, substitute_values
from .rules import Match, Rule, Values


def count_axes_from_the_front(m: Match) -> Values:
    # axis -1 of a matrix == axis 1; several axes are sorted; all axes of a reduction are listed
    changed: dict[str, Attribute] = {}
    for spec in m.operator.attributes:
        if spec.kind not in ("axis", "axes"):
            continue
        in_result = spec.of_result or not m.inputs
        rank = (m.node.outputs if in_result else m.inputs)[0].type.rank
        axes = m.attribute(spec.name)
        front = _from_front(axes, spec.kind, rank, m.operator.has("reduction"))
        if front != axes:
            changed[spec.name] = front
    return m.b.apply(m.node.op, m.inputs, dict(m.node.attributes) | changed) if changed else None


def _from_front(axes: Attribute, kind: str, rank: int, reduces: bool) -> Attribute:
    if axes is None:
        return tuple(range(rank)) if reduces else None
    if kind == "axis":
        return axes % rank if isinstance(axes, int) and rank else axes
    given = axes if isinstance(axes, tuple) else (axes,)
    return tuple(sorted(a % rank for a in given if isinstance(a, int) and rank))


def repeat_never(m: Match) -> Values:
    # A loop that does not run returns its initial values.
    return m.inputs if m.attribute("count") == 0 else None


def carry_what_changes(m: Match) -> Values:
    # A carried value that the body returns unchanged equals its initial value.
    region = m.node.regions[0]
    index, *arguments = region.arguments
    kept = [argument.name != result.name for argument, result in zip(arguments, region.results, strict=True)]
    if all(kept):
        return None
    initial = {a.name: v for a, v, keep in zip(arguments, m.inputs, kept, strict=True) if not keep}

    def keep(values: tuple[Value, ...] | list[Value]) -> tuple[Value, ...]:
        return tuple(value for value, chosen in zip(values, kept, strict=True) if chosen)

    results = tuple(initial.get(v.name, v) for v in keep(region.results))
    body = tuple(substitute_values(node, initial) for node in region.body)
    outputs = tuple(m.b.fresh(v.type) for v in keep(m.node.outputs))
    loop: Node = replace(
        m.node,
        inputs=keep(m.inputs),
        outputs=outputs,
        regions=(Region((index, *keep(arguments)), body, results),),
    )
    m.b.nodes.append(loop)
    changed = iter(outputs)
    return [next(changed) if chosen else value for chosen, value in zip(kept, m.inputs, strict=True)]


GENERAL: tuple[Rule, ...] = (count_axes_from_the_front,)

BY_NAME: Mapping[str, tuple[Rule, ...]] = {"repeat": (repeat_never, carry_what_changes)}
