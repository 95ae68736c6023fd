"""Operands of contractions: their origins, and the axes that are summed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...dialect.graph import Node, Parameter, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.einsum import parse_equation
from ...dialect.ops.support.layouts import FIRST

Axes = tuple[int, ...]


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
        if node.op == "parameter":
            return str(node.attribute("name"))
        if node.op == "constant":
            return ""
        if OPERATORS[node.op].has("structure") or OPERATORS[node.op].has("generator"):
            return None
        made = [self.parameter(value) for value in node.inputs]
        known = [name for name in made if name is not None]
        return max(known, key=self._bytes) if known and len(known) == len(made) else None

    def _bytes(self, name: str) -> int:
        size = self.parameters[name].type.bytes if name else 0
        assert isinstance(size, int), name
        return size


def summed_axes(node: Node) -> tuple[Axes, Axes] | None:
    """Returns the axes of the two operands that a contraction sums over, counted from 0; None if the node is not a
    contraction of two tensors."""
    axes = _AXES.get(node.op)
    found = axes(node) if axes is not None else None
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


def _matmul(node: Node) -> tuple[Axes, Axes]:
    return (-1,), (-2,)


def _all_but(value: Value, axis: int) -> Axes:
    return tuple(i for i in range(value.type.rank) if i != axis % value.type.rank)


def _convolution(node: Node) -> tuple[Axes, Axes]:
    x, weight, *_ = node.inputs
    return _all_but(x, 0), _all_but(weight, 0 if node.attribute("layout") == FIRST else -1)


def _transposed_convolution(node: Node) -> tuple[Axes, Axes]:
    x, weight, *_ = node.inputs
    return _all_but(x, 0), _all_but(weight, 1)


def _einsum(node: Node) -> tuple[Axes, Axes] | None:
    if len(node.inputs) != 2:
        return None
    equation = parse_equation(str(node.attribute("equation")), [v.type.rank for v in node.inputs])
    x, y = (tuple(i for i, name in enumerate(own) if name not in equation.result) for own in equation.operands)
    return x, y


_AXES: Mapping[str, Callable[[Node], tuple[Axes, Axes] | None]] = {
    "matmul": _matmul,
    "einsum": _einsum,
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": _transposed_convolution for rank in (1, 2, 3)},
}
"""The function of each contraction that returns the summed axes of its two operands."""
assert all(OPERATORS[name].has("contraction") for name in _AXES)
