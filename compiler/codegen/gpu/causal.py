"""Finds causal masks: `select(key <= row + distance, score, low)` in the epilogue of scores."""

from __future__ import annotations

from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node, position_of, predicate_of
from ..structured.operations import iterators
from .body_values import number_of, read_body

_LEAST = -6e4
"""A score of a masked key is below this number, so that its weight is 0 in a row with a score above half of it."""
_BEFORE = {2: ("<", False), 3: ("<=", False), 4: ("<", True), 5: ("<=", True)}
"""The signed comparisons, and whether their sides are exchanged."""


@dataclass(frozen=True, slots=True)
class Causal:
    """A mask that keeps the keys of a row up to its position along `axis` plus a distance: a number, and the position
    of a captured value of the epilogue. Masked scores are `low`."""

    axis: int
    number: int
    captured: int | None
    low: float


def find_causal(op: Any) -> Causal | None:
    """Returns the mask that the epilogue of scores applies: it selects a constant far below for the keys after a
    row's own position, plus a distance."""
    (value, *_), key = read_body(op).values, len(iterators(op)) - 1
    while value.kind in ("arith.extf", "arith.select"):
        if value.kind == "arith.extf":
            (value,) = value.operands
            continue
        condition, value, other = value.operands
        low = number_of(other)
        if low is None or not low < _LEAST:
            return None
        found = _find_bound(condition, key, low)
        if found is not None:
            return found
    return None


def _find_bound(condition: Node, key: int, low: float) -> Causal | None:
    if condition.kind == "arith.andi":
        either = (_find_bound(each, key, low) for each in condition.operands)
        return next((found for found in either if found is not None), None)
    predicate = predicate_of(condition)
    if predicate not in _BEFORE:
        return None
    sign, is_exchanged = _BEFORE[predicate]
    left, right = condition.operands[::-1] if is_exchanged else condition.operands
    if position_of(left) != key:
        return None
    number, captured = (-1 if sign == "<" else 0), None
    if right.kind == "arith.addi":
        right, distance = right.operands
        constant = number_of(distance)
        if constant is not None:
            number += int(constant)
        elif distance.kind == "captured":
            captured = distance.number
        else:
            return None
    axis = position_of(right)
    return None if axis is None or axis == key else Causal(axis, number, captured, low)
