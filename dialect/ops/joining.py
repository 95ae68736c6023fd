"""Operators that join tensors along an axis, and split them: concat, stack, split."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, divide_exactly
from ..emitter import Emitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import ANY, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, read_sizes
from .support.common import format_shape, normalize_axis

_MOVEMENT = frozenset({"movement"})
MOST_PARTS = 1 << 16
"""The most results of a split."""


def _check_alike(name: str, types: Sequence[TensorType], except_axis: int | None) -> None:
    """Raises InferenceError unless the shapes agree but for one axis."""
    first = types[0]
    for number, type in enumerate(types):
        if type.rank != first.rank:
            raise InferenceError("rank-mismatch", f"`{name}` cannot join {first} and {type}", operand=number)
        for axis, (expected, size) in enumerate(zip(first.shape, type.shape, strict=True)):
            if axis != except_axis and size != expected:
                raise InferenceError(
                    "shape-mismatch",
                    f"`{name}` cannot join {first} and {type}",
                    label=f"sizes {expected} and {size} differ in axis {axis}",
                    operand=number,
                )


def _infer_concat(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    axis = normalize_axis(attributes["axis"], types[0].rank, "concat")
    _check_alike("concat", types, axis)
    shape = list(types[0].shape)
    for type in types[1:]:
        shape[axis] = shape[axis] + type.shape[axis]
    return (types[0].with_shape(shape),)


def _joined(e: Emitter, parts: Sequence[Tensor], axis: int, type: TensorType) -> Tensor:
    result = e.full(type, 0)
    start: Size = 0
    for part in parts:
        starts = tuple(start if a == axis else 0 for a in range(type.rank))
        result = e.insert(part, result, starts, (1,) * type.rank)
        start = start + part.type.shape[axis]
    return result


def _lower_concat(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    axis = normalize_axis(attributes["axis"], types[0].rank, "concat")
    return [operands[0] if len(operands) == 1 else _joined(e, operands, axis, types[0])]


def _differentiate_concat(b: Builder, use: Use) -> Sequence[Value]:
    axis = normalize_axis(use.attributes["axis"], use.gradient.type.rank, "concat")
    sizes = tuple(x.type.shape[axis] for x in use.inputs)
    return b.apply("split", [use.gradient], {"parts": sizes, "axis": axis})


concat = Operator(
    name="concat",
    summary="tensors concatenated along an axis",
    operands=(Operand("xs", ANY, variadic=True),),
    attributes=(AttributeSpec("axis", "axis", 0),),
    infer=_infer_concat,
    reference=lambda *xs, axis: np.concatenate(xs, axis),
    gradient=_differentiate_concat,
    lower=_lower_concat,
    cases=LateCases(
        lambda: (
            Case(((2, 3), (4, 3))),
            Case(((2, 3), (2, 0), (2, 5)), {"axis": 1}),
            Case(((2, 1, 3), (2, 1, 3)), {"axis": -2}),
            Case(((3,),)),
            Case(((0, 2), (0, 2))),
        )
    ),
    properties=_MOVEMENT,
)


def _stacked_axis(x: TensorType, axis: int) -> int:
    return normalize_axis(axis, x.rank + 1, "stack")


def _infer_stack(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    axis = _stacked_axis(types[0], attributes["axis"])
    _check_alike("stack", types, None)
    shape = types[0].shape
    return (types[0].with_shape((*shape[:axis], len(types), *shape[axis:])),)


def _lower_stack(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    axis = _stacked_axis(operands[0].type, attributes["axis"])
    shape: Shape = (*types[0].shape[:axis], 1, *types[0].shape[axis + 1 :])
    parts = [e.reshape(x, shape) for x in operands]
    return [parts[0] if len(parts) == 1 else _joined(e, parts, axis, types[0])]


def _differentiate_stack(b: Builder, use: Use) -> Sequence[Value]:
    axis = _stacked_axis(use.inputs[0].type, use.attributes["axis"])
    parts = b.apply("split", [use.gradient], {"parts": len(use.inputs), "axis": axis})
    return [b.squeeze(part, axes=axis) for part in parts]


stack = Operator(
    name="stack",
    summary="tensors of one shape stacked along a new axis",
    operands=(Operand("xs", ANY, variadic=True),),
    attributes=(AttributeSpec("axis", "axis", 0, of_result=True),),
    infer=_infer_stack,
    reference=lambda *xs, axis: np.stack(xs, axis),
    gradient=_differentiate_stack,
    lower=_lower_stack,
    cases=LateCases(
        lambda: (
            Case(((2, 3), (2, 3))),
            Case(((2, 3), (2, 3), (2, 3)), {"axis": 1}),
            Case(((), ()), {"axis": -1}),
            Case(((0,), (0,)), {"axis": -1}),
            Case(((4,),)),
        )
    ),
    properties=_MOVEMENT,
)


def part_sizes(size: Size, parts: Any) -> Shape:
    """Returns the sizes of the parts of an axis. Raises InferenceError if they do not add up to it."""
    if isinstance(parts, int) and not isinstance(parts, bool):
        each = divide_exactly(size, parts) if 0 < parts <= MOST_PARTS else None
        if each is None:
            raise InferenceError("shape-mismatch", f"`split` cannot split {size} into {parts} equal parts", operand=0)
        return (each,) * parts
    if not isinstance(parts, tuple) or not parts:
        raise bad_attribute("split", "parts", parts, "a number of parts or their sizes")
    sizes = read_sizes("split", "parts", parts)
    total: Size = 0
    for part in sizes:
        total = total + part
    if total != size:
        raise InferenceError(
            "shape-mismatch",
            f"`split` cannot split {size} into {format_shape(sizes)}",
            label=f"the parts add up to {total}",
            operand=0,
        )
    return sizes


def _infer_split(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    axis = normalize_axis(attributes["axis"], x.rank, "split")
    sizes = part_sizes(x.shape[axis], attributes["parts"])
    return tuple(x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _reference_split(x: Numbers, parts: Any, axis: int) -> tuple[Numbers, ...]:
    sizes = part_sizes(x.shape[axis], parts)
    ends = np.cumsum([0, *sizes])
    return tuple(np.take(x, np.arange(a, b), axis) for a, b in itertools.pairwise(ends))


def _lower_split(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "split")
    results = []
    start: Size = 0
    for type in types:
        starts = tuple(start if a == axis else 0 for a in range(type.rank))
        results.append(e.slice(x, starts, type.shape, (1,) * type.rank))
        start = start + type.shape[axis]
    return results


def _differentiate_split(b: Builder, use: Use) -> Sequence[Value]:
    parts = [
        b.full(shape=result.type.shape, value=0.0, dtype=result.type.dtype) if g is None else g
        for result, g in zip(use.outputs, use.gradients, strict=True)
    ]
    return [b.concat(*parts, axis=use.attributes["axis"])]


split = Operator(
    name="split",
    summary="x split along an axis into a number of equal parts, or into parts of the given sizes",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("parts", "any"), AttributeSpec("axis", "axis", 0)),
    infer=_infer_split,
    reference=_reference_split,
    gradient=_differentiate_split,
    lower=_lower_split,
    cases=LateCases(
        lambda: (
            Case(((6, 2),), {"parts": 3}),
            Case(((2, 7),), {"parts": (3, 0, 4), "axis": 1}),
            Case(((2, 3),), {"parts": 1, "axis": -1}),
            Case(((0, 3),), {"parts": 2}),
            Case(((1,),), {"parts": (1,)}),
        )
    ),
    properties=_MOVEMENT | {"strided"},
    results=("parts",),
)

OPERATORS = (concat, stack, split)
