"""Makes a failing graph small, as long as it fails in the same way.

Whatever is tried at one time is built at one time, since starting a build costs more than a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nacre.compiler.tools.bisect import smaller
from nacre.compiler.tools.bisect.search import Search, Way
from nacre.dialect.graph import Module

from .check import Failure
from .maker import Graph
from .native import Level

_AT_ONCE = 24
Check = Callable[[Sequence[Graph], Level], list[Failure]]


@dataclass(frozen=True)
class Shrunk:
    graph: Graph
    failure: Failure


def _with_module(graph: Graph, module: Module) -> Graph:
    """A part of the graph: dims that it does not have lose their values."""
    names = {s.name for s in module.dims}
    bindings = tuple({k: v for k, v in b.items() if k in names} for b in graph.bindings)
    return replace(graph, module=module, bindings=bindings)


def _parts(make: Callable[[Module], Iterator[Module]]) -> Callable[[Graph], Iterator[Graph]]:
    return lambda graph: (_with_module(graph, module) for module in make(graph.module))


def _fewer_bindings(graph: Graph) -> Iterator[Graph]:
    if len(graph.bindings) > 1:
        yield from (replace(graph, bindings=(b,)) for b in graph.bindings)


def _smaller_dims(graph: Graph) -> Iterator[Graph]:
    if len(graph.bindings) == 1:
        (binding,) = graph.bindings
        for symbol in graph.module.dims:
            for less in smaller.smaller_values(binding[symbol.name], symbol.multiple):
                if symbol.low <= less:
                    yield replace(graph, bindings=({**binding, symbol.name: less},))


def _smaller_sizes(graph: Graph) -> Iterator[Graph]:
    for change in smaller.size_changes(graph.module):
        module = smaller.resized(graph.module, change)
        if module is not None:
            limits = {
                name: replace(limit, size=change(limit.size), window=change(limit.window))
                for name, limit in graph.limits.items()
            }
            yield replace(graph, module=module, limits=limits)


WAYS: tuple[Way[Graph], ...] = (
    Way("fewer sizes", _fewer_bindings),
    Way("one result", _parts(smaller.single_results)),
    Way("fewer nodes", _parts(smaller.values_as_arguments)),
    Way("nodes left out", _parts(smaller.bypassed_nodes)),
    Way("smaller dims", _smaller_dims),
    Way("smaller sizes", _smaller_sizes),
)


def weigh(graph: Graph) -> tuple[int, int]:
    """What shrinking makes less: nodes and results, then sizes."""
    binding = graph.bindings[0]
    sizes = sum(sum(v.type.concrete(binding)) for n in graph.function.body for v in n.outputs)
    sizes += sum(sum(v.type.concrete(binding)) for v in graph.function.arguments)
    return len(graph.function.body) + len(graph.function.results) + len(graph.bindings), sizes


def shrink(graph: Graph, failure: Failure, check: Check, *, attempts: int = 200) -> Shrunk:
    """The smallest graph that was found within the attempts, and how it fails."""
    failures = {id(graph): failure}

    def find(graphs: Sequence[Graph]) -> Graph | None:
        """The first of the graphs that fails in the same way, under a name of its own: they stand in one module."""
        named = [_renamed(g, f"{g.name.split('_')[0]}_{i}") for i, g in enumerate(graphs)]
        found = {f.name: f for f in check(named, failure.level) if f.kind == failure.kind}
        for each in named:
            if each.name in found:
                failures[id(each)] = found[each.name]
                return each
        return None

    small = Search(weigh, find, attempts, _AT_ONCE).run(graph, WAYS)
    return Shrunk(small, failures[id(small)])


def _renamed(graph: Graph, name: str) -> Graph:
    """The function under another name: several versions of it stand in one module."""
    function = replace(graph.function, name=name)
    return replace(graph, module=replace(graph.module, functions=(function,)))
