"""Operators that copy elements to other positions by a fixed rule: transposes, broadcasting, reversal, rotation.

Only indices are computed, and every operator is a parallel map over the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, broadcast_map, loop
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import ANY, I64, TensorType
from .support.arguments import bad_attribute, read_integers, read_sizes
from .support.common import (
    format_shape,
    normalize_axes,
    normalize_axis,
    same_type,
    sum_to,
)

_MOVEMENT = frozenset({"movement"})
_STRIDED = _MOVEMENT | {"strided"}
Position = Callable[[BodyEmitter, int, Scalar], Scalar]
"""A function that returns the source index along an axis for an index of the result."""


def permutation(operator: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Returns the axes of the operand in the order of the result. Raises InferenceError if it is not a permutation."""
    if axes is None:
        return tuple(reversed(range(rank)))
    order = tuple(normalize_axis(a, rank, operator) for a in read_integers(operator, "axes", axes))
    if sorted(order) != list(range(rank)):
        raise bad_attribute(operator, "axes", axes, f"each of the {rank} axes once")
    return order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))


def matrix_order(rank: int) -> tuple[int, ...]:
    """Returns the axes of a transpose of matrices."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed(e: Emitter, x: Tensor, order: Sequence[int], type: TensorType) -> Tensor:
    return e.map(type, [(x, tuple(loop(i) for i in inverse(order)))], lambda s, element: element)


def _infer_transpose(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    return (x.with_shape(x.shape[a] for a in permutation("transpose", attributes["axes"], x.rank)),)


transpose = Operator(
    name="transpose",
    summary="x with its axes permuted; reversed if no order is given",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("axes", "ints?", None),),
    infer=_infer_transpose,
    reference=lambda x, axes: np.transpose(x, permutation("transpose", axes, x.ndim)),
    gradient=lambda b, use: [
        b.transpose(
            use.gradient, axes=inverse(permutation("transpose", use.attributes["axes"], use.inputs[0].type.rank))
        )
    ],
    lower=lambda e, operands, attributes, types: [
        _transposed(e, operands[0], permutation("transpose", attributes["axes"], types[0].rank), types[0])
    ],
    axis_order=lambda x, attributes: permutation("transpose", attributes["axes"], x.rank),
    cases=LateCases(
        lambda: (
            Case(((3, 5),)),
            Case(((2, 3, 4),), {"axes": (1, 2, 0)}),
            Case(((2, 3, 4, 5),), {"axes": (0, 2, -1, 1)}),
            Case(((),)),
            Case(((0, 3),)),
            Case(((1, 33),), {"axes": (1, 0)}),
        )
    ),
    properties=_STRIDED,
)


def _infer_matrix_transpose(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    if x.rank < 2:
        raise InferenceError("rank-mismatch", f"`matrix_transpose` takes matrices, not {x}", operand=0)
    return (x.with_shape(x.shape[a] for a in matrix_order(x.rank)),)


matrix_transpose = Operator(
    name="matrix_transpose",
    summary="x with its last two axes swapped",
    operands=(Operand("x", ANY),),
    infer=_infer_matrix_transpose,
    reference=lambda x: np.swapaxes(x, -1, -2),
    gradient=lambda b, use: [b.matrix_transpose(use.gradient)],
    lower=lambda e, operands, attributes, types: [_transposed(e, operands[0], matrix_order(types[0].rank), types[0])],
    axis_order=lambda x, attributes: matrix_order(x.rank),
    cases=LateCases(lambda: (Case(((3, 5),)), Case(((2, 3, 4),)), Case(((1, 1),)), Case(((0, 2),)))),
    properties=_STRIDED | {"involution"},
)


def _infer_broadcast(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    target = read_sizes("broadcast_to", "shape", attributes["shape"])
    offset = len(target) - x.rank
    fits = offset >= 0 and all(size in (1, target[offset + i]) for i, size in enumerate(x.shape))
    if not fits:
        raise InferenceError("shape-mismatch", f"`broadcast_to` cannot repeat {x} to {format_shape(target)}", operand=0)
    return (x.with_shape(target),)


broadcast_to = Operator(
    name="broadcast_to",
    summary="x broadcast to the given shape",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("shape", "sizes"),),
    infer=_infer_broadcast,
    reference=lambda x, shape: np.broadcast_to(x, shape).copy(),
    gradient=lambda b, use: [sum_to(b, use.gradient, use.inputs[0].type.shape)],
    lower=lambda e, operands, attributes, types: [
        e.map(types[0], [(operands[0], broadcast_map(operands[0].type.shape, types[0].shape))], lambda s, x: x)
    ],
    cases=LateCases(
        lambda: (
            Case(((3, 1),), {"shape": (2, 3, 5)}),
            Case(((),), {"shape": (4,)}),
            Case(((1,),), {"shape": (0,)}),
            Case(((2, 3),), {"shape": (2, 3)}),
            Case(((),), {"shape": ()}),
        )
    ),
    properties=_STRIDED,
)


def gathered_map(e: Emitter, x: Tensor, type: TensorType, positions: dict[int, Position]) -> Tensor:
    """Returns a tensor of the rank of `x` whose elements come from other positions along some of the axes."""

    def element(s: BodyEmitter) -> Scalar:
        indices = [s.index(axis) for axis in range(type.rank)]
        return s.load(x, [positions[a](s, a, p) if a in positions else p for a, p in enumerate(indices)])

    return e.map(type, [], element)


def mirrored_map(e: Emitter, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns the tensor reversed along axes."""

    def mirrored(s: BodyEmitter, axis: int, index: Scalar) -> Scalar:
        return s.binary("sub", s.size(x.type.shape[axis] - 1), index)

    return gathered_map(e, x, x.type, {axis: mirrored for axis in axes})


def _lower_flip(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    return [mirrored_map(e, x, normalize_axes(attributes["axes"], x.type.rank, "flip"))]


def _infer_flip(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axes(attributes["axes"], types[0].rank, "flip")
    return (types[0],)


flip = Operator(
    name="flip",
    summary="x reversed along the given axes, or along all axes",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("axes", "axes", None),),
    infer=_infer_flip,
    reference=lambda x, axes: np.flip(x, normalize_axes(axes, x.ndim, "flip")).copy(),
    gradient=lambda b, use: [b.flip(use.gradient, axes=use.attributes["axes"])],
    lower=_lower_flip,
    cases=LateCases(
        lambda: (
            Case(((3, 4),)),
            Case(((3, 4, 2),), {"axes": (0, -1)}),
            Case(((1, 0),), {"axes": 1}),
            Case(((),)),
            Case(((7,),), {"axes": ()}),
        )
    ),
    properties=_MOVEMENT | {"involution"},
)


def _infer_roll(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axis(attributes["axis"], types[0].rank, "roll")
    read_integers("roll", "shift", attributes["shift"], 1)
    return same_type(types, attributes)


def _joined_parts(e: Emitter, x: Tensor, axis: int, begin: int) -> Tensor:
    """Returns the elements of an axis from `begin` on, followed by the elements before `begin`."""
    shape, steps = x.type.shape, (1,) * x.type.rank
    result, target = e.full(x.type, 0), 0
    for start, stop in ((begin, shape[axis]), (0, begin)):
        assert isinstance(stop, int), x
        sizes = tuple(stop - start if a == axis else n for a, n in enumerate(shape))
        part = e.slice(x, [start if a == axis else 0 for a in range(x.type.rank)], sizes, steps)
        result = e.insert(part, result, [target if a == axis else 0 for a in range(x.type.rank)], steps)
        target += stop - start
    return result


def _lower_roll(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "roll")
    (shift,) = read_integers("roll", "shift", attributes["shift"], 1)
    size = x.type.shape[axis]
    if isinstance(size, int) and size > 1 and shift % size:
        return [_joined_parts(e, x, axis, size - shift % size)]

    def back(s: BodyEmitter, axis: int, index: Scalar) -> Scalar:
        return s.binary("mod", s.binary("sub", index, s.constant(shift, I64)), s.size(x.type.shape[axis]))

    return [gathered_map(e, x, types[0], {axis: back})]


roll = Operator(
    name="roll",
    summary="x rotated by `shift` positions along an axis",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("shift", "int"), AttributeSpec("axis", "axis", -1)),
    infer=_infer_roll,
    reference=lambda x, shift, axis: np.roll(x, shift, axis),
    gradient=lambda b, use: [b.roll(use.gradient, shift=-use.attributes["shift"], axis=use.attributes["axis"])],
    lower=_lower_roll,
    cases=LateCases(
        lambda: (
            Case(((7,),), {"shift": 2}),
            Case(((3, 5),), {"shift": -4, "axis": 0}),
            Case(((2, 3),), {"shift": 10, "axis": 1}),
            Case(((0,),), {"shift": 1}),
            Case(((1, 1),), {"shift": 3}),
        )
    ),
    properties=_MOVEMENT,
)


OPERATORS = (transpose, matrix_transpose, broadcast_to, flip, roll)
