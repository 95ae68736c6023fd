"""Finds causal masks: `select(key <= row + distance, score, low)` in the epilogue of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.operations import captured_by, iterators

_LEAST = {"f16": -6e4, "bf16": -1e38, "f32": -1e38}
"""A score of a masked key is below this number."""
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
    block = op.regions[0].blocks[0]
    captured = captured_by(block)
    value = list(block.operations)[-1].operation.operands[0]
    key = len(iterators(op)) - 1
    while not isinstance(value.owner, ir.Block):
        owner = value.owner
        if owner.name == "arith.extf":
            value = owner.operands[0]
        elif owner.name == "arith.select":
            condition, value, other = owner.operands
            low = constant_of(other)
            if low is None or not low < _LEAST.get(str(other.type), -float("inf")):
                return None
            found = _find_bound(condition, key, captured, low)
            if found is not None:
                return found
        else:
            return None
    return None


def _find_bound(condition: Any, key: int, captured: Sequence[Any], low: float) -> Causal | None:
    owner = condition.owner
    if isinstance(owner, ir.Block):
        return None
    if owner.name == "arith.andi":
        either = (_find_bound(each, key, captured, low) for each in owner.operands)
        return next((found for found in either if found is not None), None)
    if owner.name != "arith.cmpi":
        return None
    predicate = ir.IntegerAttr(owner.attributes["predicate"]).value
    if predicate not in _BEFORE:
        return None
    sign, is_exchanged = _BEFORE[predicate]
    left, right = reversed(list(owner.operands)) if is_exchanged else owner.operands
    if position_of(left) != key:
        return None
    number, position = (-1 if sign == "<" else 0), None
    if not isinstance(right.owner, ir.Block) and right.owner.name == "arith.addi":
        right, distance = right.owner.operands
        constant = constant_of(distance)
        if constant is not None:
            number += int(constant)
        elif distance in captured:
            position = list(captured).index(distance)
        else:
            return None
    axis = position_of(right)
    return None if axis is None or axis == key else Causal(axis, number, position, low)


def position_of(value: Any) -> int | None:
    """Returns the loop that a number is the position of."""
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.name == "arith.index_cast":
        owner = owner.operands[0].owner
    if isinstance(owner, ir.Block) or owner.name != "linalg.index":
        return None
    return int(ir.IntegerAttr(owner.attributes["dim"]).value)


def constant_of(value: Any) -> float | None:
    """Returns the number that a value is in every call."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    if str(value.type)[0] in "fb":
        return float(ir.FloatAttr(attribute).value)
    return ir.IntegerAttr(attribute).value if str(value.type) in ("i64", "i32", "index") else None
