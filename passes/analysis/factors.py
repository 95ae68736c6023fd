"""Operands of contractions: their origins, and the axes that are summed over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...dialect.diagnostics import Span
from ...dialect.graph import Function, Module, Node, Parameter, Value, parameter_of, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Axes
from ...dialect.ops import OPERATORS


@dataclass(frozen=True, slots=True)
class Factor:
    """The operand `number` of a contraction. Elements along `axes` are summed together, so one scale holds for all of
    them. `parameter` is the path of the largest parameter that the operand is computed from; None if it is computed in
    a call."""

    number: int
    value: Value
    axes: Axes
    parameter: str | None

    @property
    def is_weight(self) -> bool:
        return self.parameter is not None


NOT_TRAINED: Mapping[str, str] = MappingProxyType({})


class Origins:
    """Finds the parameters from which values are computed. `definitions` may grow between queries. `trained` has the
    paths of parameters that are states, by the names of their values; without it, such a value is computed in a
    call."""

    def __init__(
        self,
        definitions: Mapping[str, Node],
        parameters: Mapping[str, Parameter],
        trained: Mapping[str, str] = NOT_TRAINED,
    ) -> None:
        self.definitions, self.parameters = definitions, parameters
        self._found: dict[str, str | None] = dict(trained)

    def parameter(self, value: Value) -> str | None:
        """Returns the path of the largest parameter that a value is computed from: empty if only constants determine
        it, None if it is computed in a call."""
        if value.name not in self._found:
            node = self.definitions.get(value.name)
            self._found[value.name] = None if node is None else self._of(node)
        return self._found[value.name]

    def is_known(self, node: Node) -> bool:
        """Returns whether parameters and constants alone determine the results of the node."""
        return all(self.parameter(value) is not None for value in node.inputs)

    def _of(self, node: Node) -> str | None:
        name, operator = parameter_of(node), OPERATORS[node.op]
        if name is not None:
            return name
        if operator.has("stored"):
            return ""
        if operator.has("structure") or operator.has("generator"):
            return None
        made = [self.parameter(value) for value in node.inputs]
        known = [name for name in made if name is not None]
        return max(known, key=self._bytes) if known and len(known) == len(made) else None

    def _bytes(self, name: str) -> int:
        size = self.parameters[name].type.bytes if name else 0
        assert isinstance(size, int), name
        return size


def is_cast(node: Node) -> bool:
    """Returns whether the node gives the numbers of its only operand in another dtype, without a scale."""
    return OPERATORS[node.op].has("conversion") and len(node.inputs) == 1


def summed_axes(node: Node) -> tuple[Axes, Axes] | None:
    """Returns the axes of the two operands that a contraction sums over, counted from 0; None if the node is not a
    contraction of two tensors."""
    find = OPERATORS[node.op].summed_axes
    found = None if find is None else find([v.type for v in node.inputs], dict(node.attributes))
    if found is None:
        return None
    x, y = (
        tuple(axis % value.type.rank for axis in summed) for value, summed in zip(node.inputs[:2], found, strict=True)
    )
    return x, y


def factors_of(node: Node, origins: Origins) -> tuple[Factor, ...]:
    """Returns the two operands that a contraction multiplies; none if the node is not a contraction of two tensors."""
    return tuple(
        Factor(number, node.inputs[number], summed, origins.parameter(node.inputs[number]))
        for number, summed in enumerate(summed_axes(node) or ())
    )


def trained_parameters(function: Function, module: Module) -> Mapping[str, str]:
    """Returns the paths of the parameters that are states of a function, by the names of their values before the
    call."""
    trained = {state.name for state in module.states if state.initial == state.name}
    values = zip(function.states, function.state_arguments, strict=True)
    return {value.name: path for path, value in values if path in trained}


Occurrence = tuple[str, Span | None]
"""A scope and a span: an operation of a block instance. The gradients of a node have those of the node."""


def occurrence_of(node: Node) -> Occurrence:
    return node.scope, node.span


def trained_products(function: Function, module: Module) -> Mapping[Occurrence, str]:
    """Returns the paths of trained parameters, by the operations that multiply them.

    The gradient of such a parameter is a product of two values that a call computes, in the same operation.
    """
    trained = trained_parameters(function, module)
    nodes = list(walk(function.body)) if trained else []
    origins = Origins({v.name: node for node in nodes for v in node.outputs}, module.parameter_index, trained)
    found: dict[Occurrence, str] = {}
    for node in nodes:
        for factor in factors_of(node, origins):
            if factor.parameter is not None and factor.parameter in trained.values() and node.span is not None:
                found.setdefault(occurrence_of(node), factor.parameter)
    return found


def table_of(node: Node, origins: Origins) -> Factor | None:
    """Returns the table whose slices a node reads by index. Each row of the table has its own scale."""
    if not OPERATORS[node.op].has("gathering"):
        return None
    table = node.inputs[0]
    parameter = origins.parameter(table)
    if not parameter:
        return None
    axis = gathered_axis(node)
    return Factor(0, table, tuple(i for i in range(table.type.rank) if i != axis), parameter)


def gathered_axis(node: Node) -> int:
    axis = dict(node.attributes).get("axis", 0)
    assert isinstance(axis, int), node
    return axis % node.inputs[0].type.rank
