"""Makes a failing graph small: fewer results, fewer nodes, smaller sizes, as long as it fails in the same way.

Whatever is tried at one time is built at one time, since starting a build costs more than a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.dims import DimError
from nacre.dialect.graph import Attribute, Function, Module, Node, Value
from nacre.dialect.operator import Builder, InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import TensorType
from nacre.dialect.verifier import verify

from .check import Failure
from .maker import Binding, Graph
from .native import Level

_AT_ONCE = 24
Rewrite = Callable[[Graph], Iterator[Graph]]
Check = Callable[[Sequence[Graph], Level], list[Failure]]


@dataclass(frozen=True)
class Shrunk:
    graph: Graph
    failure: Failure


def _rebuilt(graph: Graph, body: Sequence[Node], results: Sequence[Value], arguments: Sequence[Value]) -> Graph | None:
    """A valid graph of what of the body is needed, or None."""
    needed = {v.name for v in results}
    kept: list[Node] = []
    for node in reversed(body):
        if any(v.name in needed for v in node.outputs):
            kept.append(node)
            needed |= {v.name for v in node.inputs}
    used = tuple(a for a in arguments if a.name in needed)
    symbols = {s for a in used for s in a.type.symbols()}
    # A dim is known from the arguments that are left, or from one that stands for it.
    inner = {s for n in kept for v in n.outputs for s in v.type.symbols()} - symbols
    used += tuple(a for a in arguments if a not in used and inner & set(a.type.symbols()))
    function = replace(graph.function, arguments=used, body=tuple(reversed(kept)), results=tuple(results))
    names = {str(n.attribute("name")) for n in kept if n.op == "parameter"}
    dims = function.symbols()
    module = Module(graph.module.name, dims, tuple(p for p in graph.module.parameters if p.name in names), (function,))
    try:
        verify(module)
    except DiagnosticError:
        return None
    bindings = tuple({k: v for k, v in b.items() if k in {s.name for s in dims}} for b in graph.bindings)
    return replace(graph, module=module, bindings=bindings)


def fewer_results(graph: Graph) -> Iterator[Graph]:
    """Each value alone as the result, those that are computed first before the others."""
    f = graph.function
    candidates = [(v,) for v in f.results] if len(f.results) > 1 else []
    candidates += [(v,) for n in f.body for v in n.outputs if v not in f.results and n.op not in _SOURCES]
    for results in candidates:
        found = _rebuilt(graph, f.body, results, f.arguments)
        if found is not None:
            yield found


_SOURCES = frozenset({"parameter", "constant"})


def cut_values(graph: Graph) -> Iterator[Graph]:
    """Each value as an argument, so that what computes it goes; the last ones save most."""
    f = graph.function
    for place in reversed(range(len(f.body))):
        node = f.body[place]
        if any(v in f.results for v in node.outputs):
            continue
        body = (*f.body[:place], *f.body[place + 1 :])
        found = _rebuilt(graph, body, f.results, (*f.arguments, *node.outputs))
        if found is not None:
            yield found


def bypass(graph: Graph) -> Iterator[Graph]:
    """Each node replaced by an operand of the same type."""
    f = graph.function
    for place, node in enumerate(f.body):
        for value in node.inputs:
            if len(node.outputs) == 1 and value.type == node.output.type:
                names = {node.output.name: value}
                rest = [replace(n, inputs=tuple(names.get(v.name, v) for v in n.inputs)) for n in f.body[place + 1 :]]
                results = [names.get(v.name, v) for v in f.results]
                found = _rebuilt(graph, (*f.body[:place], *rest), results, f.arguments)
                if found is not None:
                    yield found


def fewer_bindings(graph: Graph) -> Iterator[Graph]:
    if len(graph.bindings) > 1:
        yield from (replace(graph, bindings=(b,)) for b in graph.bindings)


def smaller_dims(graph: Graph) -> Iterator[Graph]:
    """Smaller values of the dims."""
    (binding,) = graph.bindings if len(graph.bindings) == 1 else (None,)
    if binding is None:
        return
    for symbol in graph.module.dims:
        value, step = binding[symbol.name], symbol.multiple
        for smaller in sorted({0, step, 2 * step, 3 * step, value // 2 // step * step, value - step}):
            if symbol.low <= smaller < value:
                yield replace(graph, bindings=({**binding, symbol.name: smaller},))


def smaller_sizes(graph: Graph) -> Iterator[Graph]:
    """One number instead of another wherever it stands, in types and attributes, if the graph is valid then."""
    sizes = {s for a in graph.function.arguments for s in a.type.shape if isinstance(s, int)}
    sizes |= {s for p in graph.module.parameters for s in p.type.shape if isinstance(s, int)}
    for size in sorted(sizes, reverse=True):
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 < smaller < size:
                found = _resized(graph, size, smaller)
                if found is not None:
                    yield found


def _resized(graph: Graph, old: int, new: int) -> Graph | None:
    def size(value: Any) -> Any:
        return new if isinstance(value, int) and not isinstance(value, bool) and value == old else value

    def attribute(name: str, value: Attribute) -> Attribute:
        if name in ("axis", "axes", "stride", "dilation", "low", "high"):
            return value
        return tuple(attribute("", v) for v in value) if isinstance(value, tuple) else size(value)

    def type_of(type: TensorType) -> TensorType:
        return TensorType(type.dtype, tuple(map(size, type.shape)))

    f = graph.function
    arguments = tuple(Value(a.name, type_of(a.type)) for a in f.arguments)
    values = {a.name: a for a in arguments}
    b = Builder(OPERATORS)
    try:
        for node in f.body:
            inputs = [values[v.name] for v in node.inputs]
            if node.op == "constant":
                return None
            if node.op == "parameter":
                outputs: tuple[Value, ...] = tuple(Value(v.name, type_of(v.type)) for v in node.outputs)
                b.nodes.append(replace(node, outputs=outputs))
            else:
                given = {k: attribute(k, v) for k, v in node.attributes}
                types = OPERATORS[node.op].check([v.type for v in inputs], given)
                outputs = tuple(Value(v.name, t) for v, t in zip(node.outputs, types, strict=True))
                b.nodes.append(replace(node, inputs=tuple(inputs), outputs=outputs, attributes=tuple(given.items())))
            values |= {v.name: v for v in outputs}
    except (InferenceError, DimError, AssertionError, ValueError, TypeError):
        return None
    parameters = tuple(replace(p, type=type_of(p.type)) for p in graph.module.parameters)
    results = tuple(values[v.name] for v in f.results)
    function = Function(f.name, arguments, tuple(b.nodes), results)
    module = replace(graph.module, parameters=parameters, functions=(function,))
    limits = {name: size(limit) for name, limit in graph.limits.items()}
    try:
        verify(module)
    except (DiagnosticError, AssertionError):
        return None
    return replace(graph, module=module, limits=limits)


REWRITES: tuple[Rewrite, ...] = (fewer_bindings, fewer_results, cut_values, bypass, smaller_dims, smaller_sizes)


def weigh(graph: Graph) -> tuple[int, int]:
    """What shrinking makes less: nodes and results, then sizes."""
    binding: Binding = graph.bindings[0]
    sizes = sum(sum(v.type.concrete(binding)) for n in graph.function.body for v in n.outputs)
    sizes += sum(sum(v.type.concrete(binding)) for v in graph.function.arguments)
    return len(graph.function.body) + len(graph.function.results) + len(graph.bindings), sizes


def shrink(graph: Graph, failure: Failure, check: Check, *, seconds: float = 120.0) -> Shrunk:
    """The smallest graph that was found within the time, and how it fails."""
    best, level = Shrunk(graph, failure), failure.level
    end = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for rewrite in REWRITES:
            found = _try(best, rewrite, level, check)
            while found is not None:
                best, progress = found, True
                if time.monotonic() > end:
                    return best
                found = _try(best, rewrite, level, check)
    return best


def _try(best: Shrunk, rewrite: Rewrite, level: Level, check: Check) -> Shrunk | None:
    """The smallest of the graphs that a rewrite gives and that fail in the same way."""
    lighter = sorted((g for g in rewrite(best.graph) if weigh(g) < weigh(best.graph)), key=weigh)
    for start in range(0, len(lighter), _AT_ONCE):
        batch = lighter[start : start + _AT_ONCE]
        named = [_renamed(g, f"{g.name.split('_')[0]}_{i}") for i, g in enumerate(batch)]
        failures = check(named, level)
        for graph in named:
            same = [f for f in failures if f.name == graph.name and f.kind == best.failure.kind]
            if same:
                return Shrunk(graph, same[0])
    return None


def _renamed(graph: Graph, name: str) -> Graph:
    """The function under another name: several versions of it stand in one module."""
    function = replace(graph.function, name=name)
    return replace(graph, module=replace(graph.module, functions=(function,)))
