"""Facts about quantized graphs: sources of dequantized values, known values, values that are never NaN.

    dq(q, s, z) == (q - z) * s        increases with q where s > 0
    quantize(x, s, z)                 increases with x, except for NaN, and gives z for NaN as for 0

A selection among numbers, or a movement of numbers, therefore gives the same result on their quantized values.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...dialect.graph import Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import F32, Array, DType
from ..analysis.known_values import KnownValues
from ..rewrite import constant_array


@dataclass(frozen=True, slots=True)
class Quantized:
    """The operands of a `dequantize`; a zero point of 0 counts as none."""

    q: Value
    scale: Value
    zero: Value | None

    @property
    def factors(self) -> tuple[Value, ...]:
        return (self.scale,) if self.zero is None else (self.scale, self.zero)


@dataclass(frozen=True, slots=True)
class Grid:
    """One positive scale and one zero point for a whole tensor, as numbers."""

    scale: float
    zero: int
    dtype: DType

    def encode(self, number: float) -> int:
        """Returns the quantized value of a number."""
        operands = (np.float32(number), np.float32(self.scale), np.asarray(self.zero, self.dtype.numpy))
        return int(OPERATORS["quantize"].reference(*operands, dtype=self.dtype))

    def decode(self, value: int) -> float:
        return float(np.float32(value - self.zero) * np.float32(self.scale))


@dataclass(frozen=True, slots=True)
class Bounded:
    """A node whose result is `value` clamped to the range from `low` to `high`."""

    value: Value
    low: float
    high: float


class QuantizedValues:
    """Answers queries about values by name. `definitions` may grow between queries, as long as no definition
    changes."""

    def __init__(self, definitions: Mapping[str, Node], made_of: KnownValues) -> None:
        self.definitions, self.made_of = definitions, made_of
        self._numbers: dict[str, bool] = {}

    def quantized(self, value: Value) -> Quantized | None:
        """Returns the integers from which an f32 value was dequantized, or None."""
        node = self.definitions.get(value.name)
        if node is None or node.op != "dequantize" or value.type.dtype is not F32:
            return None
        if not node.inputs[0].type.dtype.is_integer:
            return None
        q, scale, *zero = node.inputs
        return Quantized(q, scale, zero[0] if zero and self.integer(zero[0]) != 0 else None)

    def array(self, value: Value) -> Array | None:
        """Returns the elements of a constant."""
        return constant_array(self.definitions.get(value.name))

    def integer(self, value: Value) -> int | None:
        """Returns the element of an integer constant that has exactly one."""
        array = self.array(value)
        return int(array.reshape(-1)[0].item()) if array is not None and array.size == 1 else None

    def grid(self, dtype: DType, scale: Value, zero: Value | None) -> Grid | None:
        array, point = self.array(scale), 0 if zero is None else self.integer(zero)
        if scale.type.rank or array is None or point is None or (zero is not None and zero.type.rank):
            return None
        number = float(array)
        return Grid(number, point, dtype) if 1e-30 < number < 1e30 else None

    def is_same(self, x: Value, y: Value) -> bool:
        """Returns whether the two are the same value, or equal constants."""
        first, second = self.array(x), self.array(y)
        equal = first is not None and second is not None and np.array_equal(first, second)
        return x.name == y.name or equal

    def bounded(self, node: Node) -> Bounded | None:
        """Returns the operand and the bounds of a node that only clamps, if the bounds include 0."""
        if len(node.inputs) == 1 and OPERATORS[node.op].has("elementwise") and OPERATORS[node.op].decompose:
            return self._decomposed(node)
        return self._one_bound(node, self.definitions)

    def _decomposed(self, node: Node) -> Bounded | None:
        decompose = OPERATORS[node.op].decompose
        assert decompose is not None, node
        builder = Builder(OPERATORS, f"{node.output.name}.")
        (last,) = decompose(builder, node.inputs, dict(node.attributes))
        inside = {value.name: each for each in builder.nodes for value in each.outputs}
        low, high = -np.inf, np.inf
        while last.name != node.inputs[0].name:
            bound = self._one_bound(inside[last.name], inside) if last.name in inside else None
            if bound is None:
                return None
            low, high, last = max(low, bound.low), min(high, bound.high), bound.value
        return Bounded(last, low, high)

    def _one_bound(self, node: Node, definitions: Mapping[str, Node]) -> Bounded | None:
        if node.op not in ("maximum", "minimum") or node.output.type.dtype is not F32:
            return None
        for x, other in (node.inputs, node.inputs[::-1]):
            array = constant_array(definitions.get(other.name))
            if array is not None and array.size == 1 and x.type == node.output.type:
                number = float(array.reshape(-1)[0])
                low, high = (number, np.inf) if node.op == "maximum" else (-np.inf, number)
                return Bounded(x, low, high) if low <= 0 <= high else None
        return None

    def is_number(self, value: Value) -> bool:
        """Returns whether no element is NaN, provided that parameter-only values and dequantized values have none."""
        if value.name not in self._numbers:
            self._numbers[value.name] = self._is_number(value)
        return self._numbers[value.name]

    def _is_number(self, value: Value) -> bool:
        if not value.type.dtype.is_float or self.made_of.find(value) is not None:
            return True
        node = self.definitions.get(value.name)
        if node is None:
            return False
        kept = node.op in ("cast", "dequantize", "add", "subtract", "multiply")
        return (kept or _only_chooses(node)) and all(map(self.is_number, node.inputs))


def _only_chooses(node: Node) -> bool:
    operator = OPERATORS[node.op]
    return any(map(operator.has, ("extreme", "movement", "strided", "view", "idempotent")))
