"""The interface of rewrite rules. A rule is a function named as its algebra; tables hold them by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ...dialect.graph import Attribute, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Operator
from ...dialect.ops import OPERATORS
from ...dialect.types import Array, DType, TensorType
from ..rewrite import NodeBuilder, constant_array

Values = Value | Sequence[Value] | None
"""The result of a rule: values for the node's results, or None if the rule does not apply."""


@dataclass(frozen=True, slots=True)
class Match:
    """A node, the definitions of the values that it uses, and a builder for its replacement."""

    node: Node
    b: NodeBuilder
    definitions: Mapping[str, Node]

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.node.op]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.node.inputs

    @property
    def type(self) -> TensorType:
        """The type of the only result."""
        return self.node.output.type

    @property
    def dtype(self) -> DType:
        return self.node.inputs[0].type.dtype

    def attribute(self, name: str) -> Attribute:
        return self.node.attribute(name)

    def definition(self, value: Value, *operators: str) -> Node | None:
        """Returns the node that computes the value, if it is one of these operators (or any, if none is named)."""
        node = self.definitions.get(value.name)
        return node if node is not None and (not operators or node.op in operators) else None

    def array(self, value: Value) -> Array | None:
        """Returns the data of a constant value."""
        return constant_array(self.definitions.get(value.name))

    def is_filled(self, value: Value, number: float | int | bool) -> bool:
        """Returns whether the value is a constant (of any shape) whose elements all equal this number, including the
        sign of zero."""
        array = self.array(value)
        if array is None or array.size == 0:
            return False
        same = array == np.asarray(number).astype(array.dtype)
        if value.type.dtype.is_float:
            same = same & (np.signbit(array) == np.signbit(number))
        return bool(np.all(same))

    def filled(self, number: float | int | bool) -> Value:
        """Returns the node's result where all its elements are one number."""
        scalar = self.b.scalar(number, self.type.dtype)
        return scalar if self.type.rank == 0 else self.b.broadcast_to(scalar, shape=self.type.shape)

    def same(self, value: Value) -> Value | None:
        """Returns the value, if it has the type of the result."""
        return value if value.type == self.type else None


class Rule(Protocol):
    @property
    def __name__(self) -> str: ...

    def __call__(self, m: Match, /) -> Values: ...


def results_of(values: Value | Sequence[Value]) -> tuple[Value, ...]:
    return (values,) if isinstance(values, Value) else tuple(values)
