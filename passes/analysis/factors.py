"""Operands of contractions: their origins, and the axes that are summed over."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.graph import Node, Parameter, Value, parameter_of
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


class Origins:
    """Finds the parameters from which values are computed. `definitions` may grow between queries."""

    def __init__(self, definitions: Mapping[str, Node], parameters: Mapping[str, Parameter]) -> None:
        self.definitions, self.parameters = definitions, parameters
        self._found: dict[str, str | None] = {}

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
