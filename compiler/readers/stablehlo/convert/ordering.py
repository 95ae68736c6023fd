"""Sorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...writing.tensors import Tensor
from ..writing.records import ELEMENTS, OperationRecord
from ..writing.use import Converters, Use


@dataclass(frozen=True, slots=True)
class _Key:
    """An operand by whose elements a sort orders."""

    operand: int
    descending: bool


def _sort(use: Use) -> Sequence[Tensor]:
    """Sorts all operands by the keys: stable sorts by one key after another, the last key first."""
    g, axis = use.g, use.integer("dimension", -1)
    order: Tensor | None = None
    for key in reversed(_keys(use)):
        x = use.operands[key.operand]
        moved = x if order is None else g.take_along_axis(x, order, axis=axis, mode="clamp")
        step = g.argsort(moved, axis=axis, descending=key.descending)
        order = step if order is None else g.take_along_axis(order, step, axis=axis, mode="clamp")
    assert order is not None
    return [g.take_along_axis(each, order, axis=axis, mode="clamp") for each in use.operands]


def _keys(use: Use) -> list[_Key]:
    """Returns the keys of a comparator: `a0 < b0`, or `a0 < b0 or a0 == b0 and REST`; REST compares other operands."""
    body = use.record.regions[0]
    *operations, last = body.operations
    comparator = _Comparator(
        {number: position for position, (number, _) in enumerate(body.arguments)},
        {operation.results[0][0]: operation for operation in operations},
    )
    keys = comparator.keys(last.operands[0])
    if keys is None:
        use.fail("compares elements by neither `LT` nor `GT` of one operand after another")
    return keys


@dataclass(frozen=True, slots=True)
class _Comparator:
    """The body of a sort: the positions of its arguments, a0, b0, a1, b1, ..., and the operations that give values."""

    arguments: Mapping[int, int]
    made: Mapping[int, OperationRecord]

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
                if self.compared(equal) == ("EQ", key.operand):
                    later = self.keys(rest)
                    return None if later is None else [key, *later]
        return None

    def key(self, number: int) -> _Key | None:
        found = self.compared(number)
        return _Key(found[1], found[0] == "GT") if found is not None and found[0] in ("LT", "GT") else None

    def compared(self, number: int) -> tuple[str, int] | None:
        """Returns the direction of a comparison of a with b, and their operand; None for any other value."""
        operation = self.made.get(number)
        if operation is None or operation.name != "compare":
            return None
        origins = [self.origins(each) for each in operation.operands]
        if any(len(each) != 1 for each in origins):
            return None
        left, right = (next(iter(each)) for each in origins)
        if left == right or left // 2 != right // 2:
            return None
        direction = operation.word("comparison_direction")
        return direction if left < right else _SWAPPED.get(direction, direction), left // 2

    def origins(self, number: int) -> set[int]:
        """Returns the positions of the arguments of which a value is selected. JAX first canonicalizes zeros and NaNs,
        by comparing an element with itself and with constants."""
        if number in self.arguments:
            return {self.arguments[number]}
        operation = self.made.get(number)
        if operation is None or operation.name == "constant":
            return set()
        if operation.name not in ("compare", "select"):
            return set(self.arguments.values())
        return {origin for each in operation.operands for origin in self.origins(each)}


_SWAPPED = {"LT": "GT", "GT": "LT"}


def _top_k(use: Use) -> Sequence[Tensor]:
    values, indices = use.g.apply("top_k", [use.x], {"k": use.integer("k"), "axis": -1, "largest": True})
    return [values, use.g.cast(indices, dtype=ELEMENTS[use.record.results[1][1].element])]


CONVERTERS: Converters = {"sort": _sort, "chlo.top_k": _top_k}
