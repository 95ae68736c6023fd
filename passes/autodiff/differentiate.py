"""Gradients of a loss in a whole graph.

Gradients are part of the graph from the moment at which a model is read: a reader calls `append_gradients` for a
training entry, and every later stage takes an ordinary graph. This is not a pass of a pipeline, since a pass keeps the
results of a function, and since the update of a parameter, which reads its gradient, is written in the language.

`with_gradients` adds the gradients of an entry to its results. It is for tests and tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from ...dialect.differentiate import pull_back
from ...dialect.graph import Module, Node, Value, parameter_of, read_values
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import TensorType
from ..manager import Context
from ..rewrite import Names
from ..simplify.unroll_repeat import UnrollRepeat
from ..simplify.unused_values import dependencies, names_of
from .equal_nodes import merge_equal
from .region_gradients import RegionGradients

RESULT = "gradient"


class GradientBuilder(Builder):
    """Writes the nodes of gradients; `name` returns a free name for a stem."""

    def __init__(self, name: Callable[[str], str]) -> None:
        super().__init__(OPERATORS)
        self._name = name

    def fresh(self, type: TensorType) -> Value:
        return Value(self._name(RESULT), type)


def append_gradients(
    nodes: Sequence[Node], loss: Value, wanted: Sequence[Value], name: Callable[[str], str]
) -> tuple[tuple[Node, ...], list[Value | None]]:
    """Returns the nodes followed by those that compute the gradients of a scalar loss, and the gradients; None for a
    value that the loss does not depend on, and for one that is equal to an earlier one, which has the gradient of both.
    Nodes that no wanted gradient needs are not among them.

    Assumes that there is no `repeat`. Raises GradientError at a node without a gradient.
    """
    assert loss.type.rank == 0, loss
    b = GradientBuilder(name)
    regions = RegionGradients(b)
    forward = regions.prepare(nodes)
    one = b.scalar(1.0, loss.type.dtype)
    unique, equal = merge_equal(forward)
    gradients = pull_back(b, unique, {equal.get(loss.name, loss): one}, wanted, regions.rules)
    needed = dependencies(b.nodes, {g.name for g in gradients if g is not None})
    backward = tuple(node for node in b.nodes if not needed.isdisjoint(names_of(node.outputs)))
    return (*_without_unused_starts(forward, backward, regions), *backward), gradients


def _without_unused_starts(
    forward: Sequence[Node], backward: Sequence[Node], regions: RegionGradients
) -> tuple[Node, ...]:
    """Returns the nodes without collected starts of loops that have no gradient."""
    read = {value.name for node in backward for value in read_values(node)}
    result: list[Node] = []
    for node in forward:
        starts = regions.starts.get(node.outputs[0].name, ()) if node.outputs else ()
        if starts and read.isdisjoint(names_of(starts)):
            (region,) = node.regions
            own = len(node.outputs) - len(starts)
            region = replace(region, results=region.results[: len(region.results) - len(starts)])
            node = replace(node, outputs=node.outputs[:own], regions=(region,))
        result.append(node)
    return tuple(result)


def with_gradients(module: Module, entry: str, wanted: Sequence[str], loss: int = 0) -> Module:
    """Returns the module with the gradients of a scalar result as further results of an entry, in the order of
    `wanted`: names of arguments and of parameters. A value that the loss does not depend on has the gradient 0."""
    module = UnrollRepeat().run(module, Context())
    function = module.function(entry)
    names = Names(function)
    readers: dict[str, list[Value]] = {argument.name: [argument] for argument in function.arguments}
    for node in function.body:
        name = parameter_of(node)
        if name is not None:
            readers.setdefault(name, []).append(node.output)
    values = [value for each in wanted for value in readers[each]]
    body, found = append_gradients(function.body, function.results[loss], values, names.fresh)
    gradients = dict(zip((value.name for value in values), found, strict=True))
    b = GradientBuilder(names.fresh)
    results = [_total(b, [gradients[v.name] for v in readers[each]], readers[each][0]) for each in wanted]
    count = len(function.outputs)
    named = function.result_names
    if named:
        added = (f"{RESULT}_{number}" for number in range(len(results)))
        named = (*named[:count], *added, *named[count:])
    changed = replace(
        function,
        body=(*body, *b.nodes),
        results=(*function.outputs, *results, *function.state_results),
        result_names=named,
    )
    return module.map_functions(lambda each: changed if each.name == entry else each)


def _total(b: GradientBuilder, gradients: Sequence[Value | None], value: Value) -> Value:
    """Returns the sum of the gradients of all nodes that read a value."""
    known = [gradient for gradient in gradients if gradient is not None]
    return reduce(b.add, known) if known else b.full(shape=value.type.shape, value=0.0, dtype=value.type.dtype)
