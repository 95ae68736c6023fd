"""Reductions over axes whose bodies are single operations, and `argmax` and `argmin`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....dialect.ops.support.common import integer_range
from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.records import BlockRecord, OperationRecord
from ..writing.use import Converters, Use

REDUCERS: Mapping[str, tuple[str, str]] = {
    "add": ("sum", "add"), "multiply": ("prod", "multiply"), "maximum": ("max", "maximum"),
    "minimum": ("min", "minimum"), "and": ("all", "logical_and"), "or": ("any", "logical_or"),
}  # fmt: skip
"""The reduction, and the operator that combines it with the initial value."""


def reducer(use: Use, body: BlockRecord) -> str:
    """Returns the name of the only operation of a body, applied to its two arguments, which it returns."""
    *operations, last = body.operations
    names = {number for number, _ in body.arguments}
    if len(operations) != 1 or set(operations[0].operands) != names or operations[0].name not in REDUCERS:
        listed = ", ".join(f"`{operation.name}`" for operation in operations)
        use.fail(f"combines elements by {listed}; single operations {', '.join(REDUCERS)} are supported")
    if last.operands[0] != operations[0].results[0][0]:
        use.fail(f"combines elements by `{operations[0].name}`, but returns something else")
    return operations[0].name


def is_neutral(name: str, x: Tensor, start: Tensor) -> bool:
    """Returns whether an initial value changes nothing."""
    if start.array is None:
        return False
    value = start.array.reshape(-1)[0]
    if name in ("add", "or"):
        return not value
    if name in ("multiply", "and"):
        return bool(value == 1)
    if x.dtype.is_float:
        return bool(value == (-np.inf if name == "maximum" else np.inf))
    if x.dtype == BOOL:
        return False
    lowest, highest = integer_range(x.dtype)
    return bool(value == (lowest if name == "maximum" else highest))


def _reduce(use: Use) -> Sequence[Tensor]:
    g, count = use.g, len(use.operands) // 2
    if count == 2:
        return _extreme_with_index(use)
    if count != 1:
        use.fail(f"reduces {count} tensors together")
    x, start = use.operands
    axes = use.integers("dimensions")
    name = reducer(use, use.record.regions[0])
    if not axes:
        return [x]
    is_truth = x.dtype == BOOL
    over = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(name, name) if is_truth else name
    if over in ("and", "or") and not is_truth:
        use.fail("combines integers by a bitwise operation")
    reduction, combine = REDUCERS[over]
    total = g.apply(reduction, [x], {"axis": axes})[0]
    return [total if is_neutral(name, x, start) else g.apply(combine, [total, start], {})[0]]


def _extreme_with_index(use: Use) -> Sequence[Tensor]:
    """Returns the greatest or least element along an axis and its index: the reduction of two tensors that JAX writes
    for `argmax` and `argmin`. Of equal elements, the first one counts; a NaN counts as greatest and as least."""
    g = use.g
    x, indices, start, first = use.operands
    axes, axis_of_indices = use.integers("dimensions"), _axis_of_iota(use, indices)
    direction = _direction(use, use.record.regions[0])
    name = "maximum" if direction == "GT" else "minimum"
    if len(axes) != 1 or axis_of_indices != axes[0]:
        use.fail("reduces two tensors together, and the second is not the index along the axis")
    if not is_neutral(name, x, start) or first.array is None or first.array.item() != 0:
        use.fail("reduces two tensors together, with initial values that may be results")
    index = g.apply("argmax" if direction == "GT" else "argmin", [x], {"axis": axes[0], "keepdims": True})[0]
    extreme = g.take_along_axis(x, index, axis=axes[0], mode="clamp")
    return [g.squeeze(extreme, axes=axes), g.cast(g.squeeze(index, axes=axes), dtype=indices.dtype)]


def _axis_of_iota(use: Use, x: Tensor) -> int | None:
    """Returns the axis whose index is each element of a tensor, if it is known."""
    if x.array is not None:
        found = [axis for axis in range(x.rank) if np.array_equal(x.array, np.indices(x.array.shape)[axis])]
        return found[0] if found else None
    nodes = {output: node for node in use.g.builder.nodes for output in node.outputs}
    node = None if x.value is None else nodes.get(x.value)
    if node is None or node.op != "iota":
        return None
    axis = node.attribute("axis")
    assert isinstance(axis, int), axis
    return axis


def _direction(use: Use, body: BlockRecord) -> str:
    """Returns whether a body takes the greater (`GT`) or the lesser (`LT`) of its elements a and b, where NaN may count
    as either:

    (a > b or a != a) ? a : b
    (a > b or a != a or a == b and i < j) ? i : j
    """
    (a, _), (i, _), (b, _), (j, _) = body.arguments
    *operations, last = body.operations
    made = {operation.results[0][0]: operation for operation in operations}
    found = [_meaning(number, made) for number in last.operands]
    tie = ("and", frozenset({("compare", "EQ", a, b), ("compare", "LT", i, j)}))
    for direction in ("GT", "LT"):
        better = ("compare", direction, a, b)
        for first in ({better, ("compare", "NE", a, a)}, {better}):
            greater = ("or", frozenset(first)) if len(first) > 1 else better
            if found == [("select", "", greater, a, b), ("select", "", ("or", frozenset({*first, tie})), i, j)]:
                return direction
    use.fail("reduces two tensors together by other operations than those of `argmax` and `argmin`")


def _meaning(number: int, made: Mapping[int, OperationRecord]) -> Any:
    """Returns the expression of a value: its own number if it is an argument. Operands of `and` and `or` have no order,
    and those of a nested `or` belong to the outer one."""
    operation = made.get(number)
    if operation is None:
        return number
    operands = [_meaning(each, made) for each in operation.operands]
    if operation.name in ("and", "or"):
        parts: set[Any] = set()
        for each in operands:
            is_nested = isinstance(each, tuple) and each[0] == operation.name
            parts |= each[1] if is_nested else {each}
        return operation.name, frozenset(parts)
    return operation.name, operation.word("comparison_direction"), *operands


CONVERTERS: Converters = {"reduce": _reduce}
