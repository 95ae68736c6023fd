"""Sorts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .....dialect.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, U8, U16, U32, U64, DType
from ...writing.tensors import Tensor
from ..writing.items import Item
from ..writing.records import ELEMENTS, OperationRecord, decode_array
from ..writing.use import Converters, Use

_UNSIGNED: Mapping[DType, DType] = {F64: U64, F32: U32, BF16: U16, F16: U16, F8E4M3: U8, F8E5M2: U8}
"""The integers with the bits of a float."""


@dataclass(frozen=True, slots=True)
class _Key:
    """An operand by whose elements a sort orders. In a `total` order, -0 is below 0, and a NaN with a sign below all
    other numbers."""

    operand: int
    descending: bool
    total: bool


def _sort(use: Use) -> Sequence[Tensor]:
    """Sorts all operands by the keys: stable sorts by one key after another, the last key first."""
    g, axis = use.g, use.integer("dimension", -1)
    order: Tensor | None = None
    for key in reversed(_keys(use)):
        x = use.operands[key.operand]
        x = _in_total_order(use, x) if key.total and x.dtype.is_float else x
        moved = x if order is None else g.take_along_axis(x, order, axis=axis, mode="clamp")
        step = g.argsort(moved, axis=axis, descending=key.descending)
        order = step if order is None else g.take_along_axis(order, step, axis=axis, mode="clamp")
    assert order is not None
    return [g.take_along_axis(each, order, axis=axis, mode="clamp") for each in use.operands]


def _in_total_order(use: Use, x: Tensor) -> Tensor:
    """Returns integers in the total order of floats: their bits, all inverted in negative numbers."""
    g = use.g
    bits = g.bitcast(x, dtype=_UNSIGNED[x.dtype])
    sign = g.like(1 << (x.dtype.bits - 1), bits)
    return g.where(g.less(bits, sign), g.bitwise_or(bits, sign), g.bitwise_not(bits))


def _keys(use: Use) -> list[_Key]:
    """Returns the keys of a comparator: `a0 < b0`, or `a0 < b0 or a0 == b0 and REST`; REST compares other operands."""
    body = use.record.regions[0]
    *operations, last = body.operations
    comparator = _Comparator(
        {number: position for position, (number, _) in enumerate(body.arguments)},
        {operation.results[0][0]: operation for operation in operations},
        use.around,
    )
    keys = comparator.keys(last.operands[0])
    if keys is None:
        use.fail("compares elements by neither `LT` nor `GT` of one operand after another")
    return keys


@dataclass(frozen=True, slots=True)
class _Comparator:
    """The body of a sort: the positions of its arguments, a0, b0, a1, b1, ..., the operations that give values, and the
    values around it."""

    arguments: Mapping[int, int]
    made: Mapping[int, OperationRecord]
    around: Mapping[int, Item]

    def keys(self, number: int) -> list[_Key] | None:
        """Returns the keys that a value compares; None if it compares anything else."""
        operation = self.made.get(number)
        if operation is None or operation.name != "or":
            key = self.key(number)
            return None if key is None else [key]
        for first, second in (operation.operands, reversed(operation.operands)):
            key, both = self.key(first), self.made.get(second)
            if key is None or both is None or both.name != "and":
                continue
            for equal, rest in (both.operands, reversed(both.operands)):
                if self.compared(equal) == ("EQ", key.operand, key.total):
                    later = self.keys(rest)
                    return None if later is None else [key, *later]
        return None

    def key(self, number: int) -> _Key | None:
        match self.compared(number):
            case "LT" | "GT" as direction, operand, total:
                return _Key(operand, direction == "GT", total)
        return None

    def compared(self, number: int) -> tuple[str, int, bool] | None:
        """Returns the direction of a comparison of a with b, their operand, and whether the order is total; None for
        any other value."""
        operation = self.made.get(number)
        if operation is None or operation.name != "compare":
            return None
        left, right = (self.element(each) for each in operation.operands)
        if left is None or right is None or left[0] // 2 != right[0] // 2 or left[0] == right[0] or left[1] != right[1]:
            return None
        # Canonical numbers have no -0, and one NaN only, which is above all others in any order.
        total = operation.word("compare_type") == "TOTALORDER" and not left[1]
        direction = operation.word("comparison_direction")
        return direction if left[0] < right[0] else _SWAPPED.get(direction, direction), left[0] // 2, total

    def element(self, number: int) -> tuple[int, bool] | None:
        """Returns the position of the argument that a value is, and whether it is canonical; None for another value.
        JAX compares canonical numbers: `x != x ? NaN : x == 0 ? 0 : x`."""
        if number in self.arguments:
            return self.arguments[number], False
        without_nan = self.replaced(number, "NE", None)
        if without_nan is None:
            return None
        x, rest = without_nan
        return (self.arguments[x], True) if self.replaced(rest, "EQ", 0.0) == (x, x) else None

    def replaced(self, number: int, direction: str, constant: float | None) -> tuple[int, int] | None:
        """Returns x and y of `x DIRECTION constant ? constant : y`, where x is an argument; without a constant, x is
        compared with itself, and replaced by NaN."""
        operation = self.made.get(number)
        if operation is None or operation.name != "select":
            return None
        condition, value, rest = operation.operands
        comparison = self.made.get(condition)
        if comparison is None or comparison.name != "compare":
            return None
        x, other = comparison.operands
        compares = other == x if constant is None else self.constant(other) == constant
        new = self.constant(value)
        is_new = new is not None and (math.isnan(new) if constant is None else new == constant)
        is_read = x in self.arguments and comparison.word("comparison_direction") == direction
        return (x, rest) if compares and is_new and is_read else None

    def constant(self, number: int) -> float | None:
        operation, outer = self.made.get(number), self.around.get(number)
        if operation is not None and operation.name == "constant":
            return float(decode_array(operation.attributes["value"]).reshape(-1)[0])
        if operation is None and isinstance(outer, Tensor) and outer.array is not None and outer.array.size == 1:
            return float(outer.array.reshape(-1)[0])
        return None


_SWAPPED = {"LT": "GT", "GT": "LT"}


def _top_k(use: Use) -> Sequence[Tensor]:
    values, indices = use.g.apply("top_k", [use.x], {"k": use.integer("k"), "axis": -1, "largest": True})
    return [values, use.g.cast(indices, dtype=ELEMENTS[use.record.results[1][1].element])]


CONVERTERS: Converters = {"sort": _sort, "chlo.top_k": _top_k}
