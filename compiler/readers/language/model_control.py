"""Loops and branches of a graph as model text: `scan`, `while` and `if`.

A name in a body is new, except for carried ones, which the last line of the body assigns together:

    all = scan t in 0..T with h = h0 {
      v = tanh(h @ w)
      h = v
    } collect v

The condition of a `while` is an expression in the language and a region in the graph. Unless it is a carried value, its
nodes are written before the loop and at the end of the body, and their result is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ....dialect.control_flow import carried_count, trip_count
from ....dialect.dims import bounds
from ....dialect.graph import Node, Region, Value
from ....dialect.types import I64
from .model_text import Expression, Names, Words, flattened, not_expressible


class Body(Protocol):
    """The interface of a function's writer to loops and branches: the expression of each value by name, unused names,
    and the lines of the text."""

    texts: dict[str, Expression]
    names: Names
    lines: list[str]
    words: Words

    def nodes(self, nodes: Sequence[Node]) -> None: ...


def _name(body: Body, values: Sequence[Value]) -> list[str]:
    return [body.names.give(flattened(value.name)) for value in values]


def _bind(body: Body, values: Sequence[Value], names: Sequence[str]) -> None:
    body.texts |= {v.name: Expression(name) for v, name in zip(values, names, strict=True)}


def _expressions(body: Body, values: Sequence[Value]) -> list[str]:
    return [body.texts[value.name].expression for value in values]


def _named(body: Body, values: Sequence[Value], assigned: Sequence[str]) -> list[str]:
    """Returns the expressions with new names for values whose names are in `assigned`, which are about to get other
    values."""
    found: list[str] = []
    for value, text in zip(values, _expressions(body, values), strict=True):
        if text in assigned:
            name = body.names.give(flattened(value.name))
            body.lines.append(f"{name} = {text}")
            text = name
        found.append(text)
    return found


def _assign(body: Body, names: Sequence[str], expressions: Sequence[str]) -> None:
    pairs = [(name, text) for name, text in zip(names, expressions, strict=True) if name != text]
    if pairs:
        body.lines.append(f"{', '.join(name for name, _ in pairs)} = {', '.join(text for _, text in pairs)}")


def _carries(names: Sequence[str], expressions: Sequence[str]) -> str:
    pairs = ", ".join(f"{name} = {text}" for name, text in zip(names, expressions, strict=True))
    return f" with {pairs}" if pairs else ""


def write_scan(body: Body, node: Node) -> None:
    (region,) = node.regions
    carried, count = carried_count(node), trip_count(node)
    if bounds(count)[0] < 0:
        raise not_expressible(f"a `scan` over {body.words.size(count)} iterations, which may be negative", node.span)
    index, *arguments = region.arguments
    variable = body.names.give(flattened(index.name, "t"))
    names, results = _name(body, arguments), _name(body, node.outputs[carried:])
    head = f"scan {variable} in 0..{body.words.size(count)}{_carries(names, _expressions(body, node.inputs))} {{"
    body.lines.append(f"{', '.join(results)} = {head}" if results else head)
    body.texts[index.name] = Expression(f"cast({variable}, {I64})", variable, variable)
    _bind(body, arguments, names)
    body.nodes(region.body)
    slices = _named(body, region.results[carried:], names)
    _assign(body, names, _expressions(body, region.results[:carried]))
    body.lines.append(f"}} collect {', '.join(slices)}" if slices else "}")
    _bind(body, node.outputs, [*names, *results])


def write_while(body: Body, node: Node) -> None:
    condition, region = node.regions
    names = _name(body, region.arguments)
    initial = _expressions(body, node.inputs)
    test = condition.results[0]
    if not condition.body and test in condition.arguments:
        goes_on = names[condition.arguments.index(test)]
        body.lines.append(f"while {goes_on}{_carries(names, initial)} {{")
        _bind(body, region.arguments, names)
        body.nodes(region.body)
        _assign(body, names, _expressions(body, region.results))
    else:
        goes_on = body.names.give("goes_on")
        first = _test(body, condition, initial)
        body.lines.append(f"while {goes_on}{_carries([*names, goes_on], [*initial, first])} {{")
        _bind(body, region.arguments, names)
        body.nodes(region.body)
        after = _expressions(body, region.results)
        _assign(body, [*names, goes_on], [*after, _test(body, condition, after)])
    body.lines.append("}")
    _bind(body, node.outputs, names)


def _test(body: Body, condition: Region, values: Sequence[str]) -> str:
    """Writes the nodes of a condition on some values of its arguments; returns its result."""
    _bind(body, condition.arguments, values)
    body.nodes(condition.body)
    return body.texts[condition.results[0].name].expression


def write_if(body: Body, node: Node) -> None:
    results = _name(body, node.outputs)
    if not results:
        return
    head = f"{', '.join(results)} = if {body.texts[node.inputs[0].name].expression} {{"
    for region, line in zip(node.regions, (head, "} else {"), strict=True):
        body.lines.append(line)
        body.nodes(region.body)
        values = ", ".join(_expressions(body, region.results))
        body.lines.append(values if len(results) == 1 else f"({values})")
    body.lines.append("}")
    _bind(body, node.outputs, results)


WRITERS: Mapping[str, Callable[[Body, Node], None]] = {"scan": write_scan, "while": write_while, "if": write_if}
