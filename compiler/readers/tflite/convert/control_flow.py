"""`IF` and `WHILE` as regions of the graph."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _if(use: Use) -> Sequence[Tensor]:
    condition, g = use.input(0), use.g
    given = use.inputs[1:]
    numbers = use.integer("then"), use.integer("else")
    if condition.array is not None:
        return use.run_graph(numbers[0] if bool(condition.array.reshape(-1)[0]) else numbers[1], given)
    condition = g.reshape(condition, shape=()) if condition.rank else condition
    regions = [g.region([], lambda _, n=n: use.run_graph(n, given)) for n in numbers]  # type: ignore[misc]  # its default
    types = [[value.type for value in region.results] for region in regions]
    if types[0] != types[1]:
        use.fail("has branches whose results differ in type", code="data-dependent")
    return g.control("if", [condition], {}, regions, types[0])


def _while(use: Use) -> Sequence[Tensor]:
    carried, g = use.inputs, use.g
    types = [tensor.type for tensor in carried]
    condition = g.region(types, lambda arguments: _scalar(use, use.run_graph(use.integer("condition"), arguments)))
    body = g.region(types, lambda arguments: use.run_graph(use.integer("body"), arguments))
    if [value.type for value in body.results] != types:
        use.fail("carries values that change their type", code="data-dependent")
    return g.control("while", carried, {}, [condition, body], types)


def _scalar(use: Use, found: Sequence[Tensor]) -> list[Tensor]:
    if len(found) != 1:
        use.fail(f"has a condition of {len(found)} results", code="wrong-operands")
    return [use.g.reshape(found[0], shape=()) if found[0].rank else found[0]]


CONVERTERS: Converters = {"IF": _if, "WHILE": _while}
