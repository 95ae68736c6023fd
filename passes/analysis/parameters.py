"""Numbered parameters of loops: a pattern becomes single parameters once every index is a constant."""

from __future__ import annotations

from dataclasses import replace

from ...dialect.graph import Function, Module, Node, Parameter, Region, parameter_of, walk
from ..manager import Context
from ..rewrite import constant_array


def make_parameters_single(module: Module, context: Context) -> Module:
    """Replaces `layer.{}.weight` by `layer.0.weight` and so on where all its uses in the module have constant indices.

    A pattern with one other use stays whole, so that no tensor of the checkpoint is held under two names.
    """
    indices: dict[str, set[tuple[int, ...]] | None] = {}
    first: dict[str, Node] = {}
    for function in module.functions:
        constants = _constant_scalars(function)
        for node in walk(function.body):
            name = parameter_of(node)
            if name is not None and node.inputs:
                index = tuple(constants.get(v.name) for v in node.inputs)
                known = indices.setdefault(name, set())
                first.setdefault(name, node)
                if known is not None and all(i is not None for i in index):
                    known.add(tuple(i for i in index if i is not None))
                else:
                    indices[name] = None
    single = {
        name: sorted(found)
        for name, found in indices.items()
        if found is not None and context.allow("single-parameter", first[name])
    }
    if not single:
        return module
    parameters: list[Parameter] = []
    for parameter in module.parameters:
        chosen = single.get(parameter.name)
        parameters += [parameter] if chosen is None else [parameter.at(index) for index in chosen]
    changed = module.map_functions(lambda function: _use_single(function, module, set(single)))
    return replace(changed, parameters=tuple(parameters))


def _constant_scalars(function: Function) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in walk(function.body):
        array = constant_array(node)
        if array is not None and array.ndim == 0 and node.output.type.dtype.is_integer:
            found[node.output.name] = int(array)
    return found


def _use_single(function: Function, module: Module, names: set[str]) -> Function:
    constants = _constant_scalars(function)

    def change(node: Node) -> Node:
        if node.regions:
            return replace(
                node, regions=tuple(Region(r.arguments, tuple(map(change, r.body)), r.results) for r in node.regions)
            )
        name = parameter_of(node)
        if name is None or name not in names:
            return node
        name = module.parameter_index[name].at(constants[v.name] for v in node.inputs).name
        return replace(node, inputs=(), attributes=(("name", name),))

    return replace(function, body=tuple(map(change, function.body)))
