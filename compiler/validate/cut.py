"""Extracts a part of a function as a separate function, which computes some values from arguments or other values.

The nodes are unchanged. Sizes that do not follow from the shapes of the arguments must be passed to the interpreter:
the part may have only an argument of shape `[B*T, 64]`, unless it must be callable as an entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...dialect.control_flow import CONTROL_FLOW, walk_control
from ...dialect.dims import Poly, Symbol, symbols
from ...dialect.graph import Attribute, Function, Module, Node, Value, parameters_read, read_values, walk
from ..readers.language.models import determined_dims


def cut_function(
    module: Module,
    function: Function,
    results: Sequence[Value],
    given: Sequence[Value] = (),
    name: str = "",
    *,
    is_entry: bool = False,
) -> Module:
    """Returns a module with one function that computes `results` as `function` does, from the values of `given` and the
    arguments that it needs. It keeps the function's name by default, and only the parameters that it reads. The
    arguments of an entry determine all of its dims."""
    cut = {v.name for v in given}
    needed = {v.name for v in results}
    body: list[Node] = []
    for node in reversed(function.body):
        if any(v.name in needed and v.name not in cut for v in node.outputs):
            body.append(node)
            needed |= {v.name for v in read_values(node)}
    # A node may read a value twice.
    candidates = list(dict.fromkeys([*given, *(v for v in function.arguments if v.name not in cut)]))
    arguments = [v for v in candidates if v.name in needed]
    # An unused argument may be the only one that determines a dim.
    missing = {s for node in walk(body) for s in _symbols(node)} - {s for v in arguments for s in v.type.symbols()}
    for value in candidates:
        if missing & set(value.type.symbols()) and value not in arguments:
            arguments.append(value)
            missing -= set(value.type.symbols())
    if is_entry:
        sizes = {s for node in walk(body) for s in _symbols(node)} | {s for v in arguments for s in v.type.symbols()}
        missing = sizes - determined_dims(v.type for v in arguments)
        for value in candidates:
            if missing & set(value.type.symbols()) and value not in arguments:
                arguments.append(value)
                missing = sizes - determined_dims(v.type for v in arguments)
    made = replace(
        function,
        name=name or function.name,
        arguments=tuple(arguments),
        body=tuple(reversed(body)),
        results=tuple(results),
        result_names=tuple(v.name for v in results),
        states=(),
    )
    read = set(parameters_read(body))
    parameters = tuple(p for p in module.parameters if p.name in read)
    return Module(module.name, made.symbols(), parameters, (made,))


def flatten(function: Function) -> Function:
    """Returns a function of the nodes of all regions of control flow, from which single nodes can be cut: arguments of
    regions and results of loops and branches are its arguments."""
    nodes = list(walk_control(function.body))
    control = [node for node in nodes if node.op in CONTROL_FLOW]
    regions = (region for node in control for region in node.regions)
    arguments = (*(v for r in regions for v in r.arguments), *(v for node in control for v in node.outputs))
    body = tuple(node for node in nodes if node.op not in CONTROL_FLOW)
    return replace(function, arguments=(*function.arguments, *arguments), body=body)


def _symbols(node: Node) -> Iterator[Symbol]:
    """Yields the dims in a node's types and attributes."""
    for value in node.outputs:
        yield from value.type.symbols()
    for _, attribute in node.attributes:
        yield from _symbols_of(attribute)


def _symbols_of(attribute: Attribute) -> Iterator[Symbol]:
    if isinstance(attribute, Poly):
        yield from symbols(attribute)
    elif isinstance(attribute, tuple):
        for each in attribute:
            yield from _symbols_of(each)
