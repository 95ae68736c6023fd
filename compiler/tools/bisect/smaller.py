"""Derives smaller graphs from one: fewer results, fewer nodes, smaller sizes. Each is valid, but may compute other
results.

Modules have one function here. A value that becomes an argument keeps its name, so that the caller can supply its data.
This module runs no graph and selects none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ....dialect.diagnostics import DiagnosticError
from ....dialect.dims import DimError, Size, substitute
from ....dialect.graph import (
    Attribute,
    Constant,
    Function,
    Module,
    Node,
    Parameter,
    Value,
    read_values,
    substitute_values,
)
from ....dialect.operator import InferenceError
from ....dialect.ops import OPERATORS
from ....dialect.types import Array, TensorType
from ....dialect.verifier import verify
from ...readers.language.models import determined_dims
from ...validate.cut import cut_function

ChangeSize = Callable[[Size], Size]

_NO_SIZES = frozenset({"axis", "axes", "stride", "dilation", "low", "high", "start", "end"})
"""Names of integer attributes that are not sizes."""


def only_function(module: Module) -> Function:
    (function,) = module.functions
    return function


def _valid(module: Module) -> Module | None:
    """Returns the module, with results named as the language does, if it is valid and the language can express it."""
    function = only_function(module)
    if set(function.symbols()) - determined_dims(a.type for a in function.arguments):
        return None
    count = len(function.results)
    names = ("result",) if count == 1 else tuple(f"result{i}" for i in range(count))
    module = replace(module, functions=(replace(function, result_names=names),))
    try:
        verify(module)
    except DiagnosticError:
        return None
    return module


def _cut(module: Module, results: Sequence[Value], given: Sequence[Value] = ()) -> Module | None:
    return _valid(cut_function(module, only_function(module), results, given))


def _computed(function: Function) -> list[Value]:
    return [v for n in function.body if not OPERATORS[n.op].has("stored") for v in n.outputs]


# --- fewer nodes ---


def single_results(module: Module) -> Iterator[Module]:
    """Yields the graph with each value as the only result, in the order of computation."""
    f = only_function(module)
    results = [v for v in f.results if v in f.arguments] + _computed(f)
    for value in results if len(f.results) > 1 else [v for v in results if v not in f.results]:
        found = _cut(module, [value])
        if found is not None:
            yield found


def later_starts(module: Module) -> Iterator[Module]:
    """Yields for each position, the last first, the graph with all values computed before it as arguments."""
    f = only_function(module)
    for position in reversed(range(1, len(f.body))):
        given = [v for n in f.body[:position] if not OPERATORS[n.op].has("stored") for v in n.outputs]
        if given and not any(v in f.results for v in given):
            found = _cut(module, f.results, given)
            if found is not None:
                yield found


def values_as_arguments(module: Module) -> Iterator[Module]:
    """Yields the graph with each value as an argument, which removes its producers; the last value first."""
    f = only_function(module)
    for node in reversed(f.body):
        if not any(v in f.results for v in node.outputs):
            found = _cut(module, f.results, node.outputs)
            if found is not None:
                yield found


def bypassed_nodes(module: Module) -> Iterator[Module]:
    """Yields the graph with each node replaced by an operand of the same type."""
    f = only_function(module)
    for position, node in enumerate(f.body):
        for value in node.inputs:
            if len(node.outputs) == 1 and value.type == node.output.type:
                names = {node.output.name: value}
                rest = tuple(substitute_values(n, names) for n in f.body[position + 1 :])
                body = (*f.body[:position], *rest)
                results = [names.get(v.name, v) for v in f.results]
                without = replace(module, functions=(replace(f, body=body, results=tuple(results)),))
                found = _cut(without, results)
                if found is not None:
                    yield found


def made_up_parameters(module: Module) -> Iterator[Module]:
    """Yields the graph with each parameter replaced by ones, so that no checkpoint is needed for it."""
    f = only_function(module)
    for position, node in enumerate(f.body):
        if node.op == "parameter":
            dtype = node.output.type.dtype
            one: Attribute = 1.0 if dtype.is_float else True if dtype.name == "bool" else 1
            attributes = (("dtype", dtype), ("shape", node.output.type.shape), ("value", one))
            full = Node("full", (), node.outputs, attributes, (), node.scope, node.span)
            body = (*f.body[:position], full, *f.body[position + 1 :])
            found = _cut(replace(module, functions=(replace(f, body=body),)), f.results)
            if found is not None:
                yield found


def around(module: Module, core: Collection[str], reach: int) -> Module | None:
    """Returns the subgraph around the nodes that compute the values of `core`, up to `reach` edges away in both
    directions. None if there are no such nodes, or they form no function."""
    f = only_function(module)
    inside = {i for i, n in enumerate(f.body) if any(v.name in core for v in n.outputs)}
    if not inside:
        return None
    makers = {v.name: i for i, n in enumerate(f.body) for v in n.outputs}
    reads = [[makers[v.name] for v in read_values(n) if v.name in makers] for n in f.body]
    for _ in range(reach):
        inside |= {i for i, read in enumerate(reads) if inside & set(read)} | {j for i in inside for j in reads[i]}
    # Nodes without inputs are included: passes would treat arguments differently.
    inside |= {j for i in inside for j in reads[i] if OPERATORS[f.body[j].op].has("stored")}
    made = [v for i in sorted(inside) for v in f.body[i].outputs]
    read_outside = {v.name for i, n in enumerate(f.body) if i not in inside for v in read_values(n)}
    read_outside |= {v.name for v in f.results}
    results = [v for v in made if v.name in read_outside and not OPERATORS[f.body[makers[v.name]].op].has("stored")]
    given = [v for i, n in enumerate(f.body) if i not in inside for v in n.outputs]
    return _cut(module, results, given) if results else None


# --- smaller sizes ---


def written_sizes(module: Module) -> list[int]:
    """Returns the numbers in the types of arguments and parameters, the largest first."""
    types = [a.type for a in only_function(module).arguments] + [p.type for p in module.parameters]
    return sorted({s for type in types for s in type.shape if isinstance(s, int)}, reverse=True)


def smaller_values(value: int, step: int) -> list[int]:
    """Returns the candidates for a size that is a multiple of `step`."""
    tried = {0, step, 2 * step, 3 * step, value // 2 // step * step, value - step}
    return sorted(v for v in tried if 0 <= v < value)


def size_changes(module: Module) -> Iterator[ChangeSize]:
    """Yields functions that replace one number wherever it occurs as a size."""
    for size in written_sizes(module):
        for smaller in sorted({1, 2, 3, size // 2, size - size // 4, size - size // 16, size - 1}):
            if 0 < smaller < size:
                yield partial(_instead, size, smaller)


def _instead(old: int, new: int, size: Size) -> Size:
    return new if size == old else size


def fixed_dims(module: Module, dims: dict[str, int]) -> Module | None:
    """Returns the graph specialized to one set of sizes."""
    return resized(module, lambda size: substitute(size, dims)) if module.dims else None


def resized(module: Module, change: ChangeSize) -> Module | None:
    """Returns the graph with other sizes, if it is then valid; its arrays are cropped."""
    try:
        return _valid(_Resizer(change).module(module))
    except (InferenceError, DimError, AssertionError, ValueError, TypeError, IndexError):
        return None


class _Resizer:
    def __init__(self, change: ChangeSize) -> None:
        self.change = change

    def module(self, module: Module) -> Module:
        f = only_function(module)
        arguments = tuple(Value(a.name, self.type(a.type)) for a in f.arguments)
        values = {a.name: a for a in arguments}
        body = tuple(self.node(node, values) for node in f.body)
        results = tuple(values[v.name] for v in f.results)
        function = replace(f, arguments=arguments, body=body, results=results)
        return replace(
            module,
            dims=function.symbols(),
            parameters=tuple(map(self.parameter, module.parameters)),
            functions=(function,),
        )

    def parameter(self, parameter: Parameter) -> Parameter:
        return replace(parameter, type=self.type(parameter.type))

    def type(self, type: TensorType) -> TensorType:
        return TensorType(type.dtype, tuple(map(self.change, type.shape)))

    def node(self, node: Node, values: dict[str, Value]) -> Node:
        """Returns the node with other types; adds its results to `values`."""
        if node.regions:
            raise ValueError(f"{node.op} has sizes of its own")
        inputs = tuple(values[v.name] for v in node.inputs)
        attributes = tuple((n, v if n in _NO_SIZES else self.attribute(v)) for n, v in node.attributes)
        if node.op == "parameter":
            types: Sequence[TensorType] = [self.type(node.output.type)]
        else:
            types = OPERATORS[node.op].check([v.type for v in inputs], dict(attributes))
        outputs = tuple(Value(v.name, t) for v, t in zip(node.outputs, types, strict=True))
        values.update((v.name, v) for v in outputs)
        return replace(node, inputs=inputs, outputs=outputs, attributes=attributes)

    def attribute(self, value: Attribute) -> Attribute:
        if isinstance(value, tuple):
            return tuple(map(self.attribute, value))
        if isinstance(value, Constant):
            shape = [self.change(size) for size in value.type.shape]
            return value if shape == list(value.type.shape) else Constant(cropped(value.data, shape))
        if value is None or isinstance(value, (bool, float, str)) or not isinstance(value, Size):
            return value
        return self.change(value)


def cropped(array: Array, shape: Sequence[Size]) -> Array:
    """Returns the first elements along every axis. Raises ValueError if the array has too few."""
    part = array[tuple(slice(size) for size in shape)] if array.ndim else array
    if part.shape != tuple(shape):
        raise ValueError(f"{array.shape} holds no {tuple(shape)}")
    return np.ascontiguousarray(part).reshape(part.shape)
