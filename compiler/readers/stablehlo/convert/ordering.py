"""Sorts."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.records import ELEMENTS
from ..writing.use import Converters, Use


def _sort(use: Use) -> Sequence[Tensor]:
    """Sorts all operands by the first one."""
    g, axis = use.g, use.integer("dimension", -1)
    order = g.argsort(use.x, axis=axis, descending=_direction(use) == "GT")
    return [g.take_along_axis(each, order, axis=axis, mode="clamp") for each in use.operands]


def _direction(use: Use) -> str:
    """Returns the direction of a comparator that compares elements of the first operand. In the comparator, JAX first
    canonicalizes zeros and NaNs, by comparing an element with itself and with constants."""
    body = use.record.regions[0]
    *operations, last = body.operations
    others = {number for number, _ in body.arguments[2:]}
    for operation in operations:
        if operation.name not in ("compare", "select", "constant") or others.intersection(operation.operands):
            use.fail("compares more than the elements of the first operand")
    final = next((each for each in operations if last.operands[0] in [number for number, _ in each.results]), None)
    direction = "" if final is None else final.word("comparison_direction")
    if direction not in ("LT", "GT"):
        use.fail("compares elements by neither `LT` nor `GT`")
    return direction


def _top_k(use: Use) -> Sequence[Tensor]:
    values, indices = use.g.apply("top_k", [use.x], {"k": use.integer("k"), "axis": -1, "largest": True})
    return [values, use.g.cast(indices, dtype=ELEMENTS[use.record.results[1][1].element])]


CONVERTERS: Converters = {"sort": _sort, "chlo.top_k": _top_k}
