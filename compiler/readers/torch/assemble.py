"""Converts a program to a model: its arguments and parameters, the nodes, the results and the states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Function, Module, Parameter, State, Value, result_of_state
from ....dialect.verifier import verify
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..writing.identifiers import identifier, unique
from ..writing.tensors import Tensor, known
from .program import Program, Stored
from .sizes import Sizes
from .walk import MISSING, Walk
from .writing.arrays import DTYPES, to_array
from .writing.use import scalar


def assemble(program: Program, file: str, weights: WeightSource | None = None) -> SourceModel:
    """Converts a program. Raises DiagnosticError with all errors."""
    graph = program.graph_module.graph
    walk = Walk(file, Sizes(program.names, program.ranges))
    walk.list_nodes(graph)
    walk.check_supported(graph)
    sources = {file: walk.listing}
    entry = identifier(program.name) or "model"
    arguments, states = _place_inputs(program, walk)
    walk.errors.raise_if_any(sources)
    walk.sizes.bound = True
    walk.run(graph)
    results = _results(program, walk)
    walk.errors.raise_if_any(sources)
    function = _function(entry, arguments, states, results, program, walk)
    records = tuple(State(name, value.type, name) for name, value in states.items())
    module = Module(entry, function.symbols(), tuple(walk.writer.parameters.values()), (function,), records)
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {**sources, **error.sources}) from None
    stored = open_arrays(walk.writer.arrays) if walk.writer.arrays else None
    return SourceModel(module, file, {entry: stored if weights is None else weights}, sources=sources)


def _place_inputs(program: Program, walk: Walk) -> tuple[list[Value], dict[str, Value]]:
    """Assigns tensors to the placeholders. Returns the arguments, and the states by name."""
    arguments: list[Value] = []
    states: dict[str, Value] = {}
    taken: set[str] = set()
    shared: dict[Any, Tensor] = {}
    for node in program.graph_module.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(program.graph_module, node.target)
            walk.found[node] = _weight(Stored(node.target, tensor), shared, walk)
        if node.op != "placeholder":
            continue
        if node.name in program.fixed:
            walk.found[node] = program.fixed[node.name]
        elif node.name in program.stored:
            stored = program.stored[node.name]
            held = _weight(stored, {} if stored.name in program.written else shared, walk)
            if stored.name in program.written:
                states[stored.name] = Value(unique(f"state_{identifier(stored.name)}", taken), held.type)
                _keep(walk, stored.name, held)
                held = Tensor(held.type, states[stored.name])
            walk.found[node] = held
        else:
            walk.found[node] = _argument(node, arguments, taken, walk)
    return arguments, states


def _keep(walk: Walk, name: str, held: Tensor) -> None:
    """Adds a parameter that no node reads: the initial value of a state."""
    assert held.array is not None, name
    walk.writer.parameters[name] = Parameter(name, held.type)
    walk.writer.arrays[name] = held.array


def _argument(node: Any, arguments: list[Value], taken: set[str], walk: Walk) -> Any:
    described = node.meta.get("val")
    if type(described).__name__ == "SymInt" or isinstance(described, int):
        return walk.sizes.of(described)  # a size that the shapes of other arguments give
    if not hasattr(described, "dtype"):
        message = f"the argument `{node.name}` is a {type(described).__name__}; an entry takes tensors"
        walk.errors.report(Diagnostic("unsupported-type", message, walk.spans[node]))
        return MISSING
    try:
        found = walk.type_of(described, node)
    except DiagnosticError as error:
        walk.errors.report(error.diagnostics[0])
        return MISSING
    value = Value(unique(identifier(node.name) or "input", taken), found)
    arguments.append(value)
    return Tensor(found, value)


def _weight(stored: Stored, shared: dict[Any, Tensor], walk: Walk) -> Tensor:
    """Returns a stored tensor; tensors that share their memory are one parameter."""
    tensor = stored.tensor
    if str(tensor.dtype) not in DTYPES or str(tensor.layout) != "torch.strided":
        message = f"the parameter `{stored.name}` is {tensor.dtype}, {tensor.layout}, which is not supported"
        walk.errors.report(Diagnostic("unsupported-dtype", message))
        return known(np.zeros(tuple(tensor.shape), np.float32))
    key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
    if not tensor.numel() or key not in shared:
        shared[key] = known(to_array(tensor), DTYPES[str(tensor.dtype)], stored.name)
    return shared[key]


def _results(program: Program, walk: Walk) -> dict[str, Tensor]:
    """Returns the results by name, and after them the new values of states."""
    found: dict[str, Tensor] = {}
    taken: set[str] = set()
    for name, node in program.results:
        held = walk.found.get(node, MISSING) if type(node).__name__ == "Node" else node
        if held is not MISSING:
            word = unique(identifier(name) or "output", taken)
            found[word] = scalar(held)
            described = node.meta.get("val") if type(node).__name__ == "Node" else None
            for axis, count in walk.bounds.counts_of(described).items():
                found[unique(f"{word}_size" if axis == 0 else f"{word}_size_{axis}", taken)] = count
    for name, node in program.written.items():
        held = walk.found.get(node, MISSING)
        if isinstance(held, Tensor):
            found[result_of_state(name)] = held
    return found


def _function(
    entry: str,
    arguments: list[Value],
    states: Mapping[str, Value],
    results: Mapping[str, Tensor],
    program: Program,
    walk: Walk,
) -> Function:
    order = [name for name in states if result_of_state(name) in results]
    plain = [name for name in results if name not in {result_of_state(state) for state in states}]
    names = (*plain, *(result_of_state(name) for name in order))
    if not plain and not order:
        raise DiagnosticError([Diagnostic("no-result", f"`{program.name}` returns no tensor")])
    values = tuple(walk.writer.value(results[name]) for name in names)
    body = (*walk.writer.prologue, *walk.writer.builder.nodes)
    inputs = (*arguments, *(states[name] for name in order))
    return Function(entry, inputs, body, values, names, states=tuple(order))
