"""Changes the source locations of a graph, and nothing else.

Compiler output must not depend on the folder of the source, so printed graphs have paths relative to that folder, or no
locations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from ...dialect.diagnostics import Span
from ...dialect.graph import Function, Module, Node, Parameter, Region

Change = Callable[[Span], Span | None]


def map_spans(module: Module, change: Change) -> Module:
    """Returns the same graph with other spans."""

    def of(span: Span | None) -> Span | None:
        return None if span is None else change(span)

    def map_region(region: Region) -> Region:
        return replace(region, body=tuple(map(map_node, region.body)))

    def map_node(node: Node) -> Node:
        return replace(node, regions=tuple(map(map_region, node.regions)), span=of(node.span))

    def map_function(function: Function) -> Function:
        return replace(function, body=tuple(map(map_node, function.body)), span=of(function.span))

    def map_parameter(parameter: Parameter) -> Parameter:
        formula = parameter.formula
        if formula is not None:
            parameters = tuple(map(map_parameter, formula.parameters))
            formula = replace(formula, parameters=parameters, body=tuple(map(map_node, formula.body)))
        return replace(parameter, span=of(parameter.span), formula=formula)

    return replace(
        module,
        parameters=tuple(map(map_parameter, module.parameters)),
        functions=tuple(map(map_function, module.functions)),
        states=tuple(replace(s, span=of(s.span)) for s in module.states),
    )


def without_spans(module: Module) -> Module:
    return map_spans(module, lambda span: None)


def relative_to(module: Module, file: str) -> Module:
    """Returns the module with paths relative to the folder of `file`, for spans inside that folder."""
    folder = Path(file).parent

    def shorten(span: Span) -> Span:
        path = Path(span.file)
        return replace(span, file=str(path.relative_to(folder))) if path.is_relative_to(folder) else span

    return map_spans(module, shorten)


def in_full(span: Span, file: str, sources: Collection[str]) -> Span:
    """Returns the span with the path before `relative_to` shortened it, if that is one of the sources."""
    path = str(Path(file).parent / span.file)
    return replace(span, file=path) if span.file not in sources and path in sources else span
