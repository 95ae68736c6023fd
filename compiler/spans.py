"""Changes where a graph says that it comes from, and nothing else.

What is compiled must not depend on the folder that the source lies in, so its text is printed with paths that begin
there, or without any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from ..dialect.diagnostics import Span
from ..dialect.graph import Function, Module, Node, Region

Change = Callable[[Span], Span | None]


def map_spans(module: Module, change: Change) -> Module:
    """The same graph with other spans."""

    def of(span: Span | None) -> Span | None:
        return None if span is None else change(span)

    def map_region(region: Region) -> Region:
        return replace(region, body=tuple(map(map_node, region.body)))

    def map_node(node: Node) -> Node:
        return replace(node, regions=tuple(map(map_region, node.regions)), span=of(node.span))

    def map_function(function: Function) -> Function:
        return replace(function, body=tuple(map(map_node, function.body)), span=of(function.span))

    return replace(
        module,
        parameters=tuple(replace(p, span=of(p.span)) for p in module.parameters),
        functions=tuple(map(map_function, module.functions)),
    )


def without_spans(module: Module) -> Module:
    return map_spans(module, lambda span: None)


def relative_to(module: Module, file: str) -> Module:
    """The module with paths that begin in the folder of `file`, where they lie in it."""
    folder = Path(file).parent

    def shorten(span: Span) -> Span:
        path = Path(span.file)
        return replace(span, file=str(path.relative_to(folder))) if path.is_relative_to(folder) else span

    return map_spans(module, shorten)


def in_full(span: Span, file: str, sources: Collection[str]) -> Span:
    """The span with the path that `relative_to` shortened, if that is one of the sources."""
    path = str(Path(file).parent / span.file)
    return replace(span, file=path) if span.file not in sources and path in sources else span
