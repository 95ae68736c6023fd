"""Operators that copy elements to other places by a fixed rule: transposes, repetition, reversal, rotation.

Nothing is computed but places, and every one is a parallel map over the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, divide_exactly
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, broadcast_map, loop
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import ANY, I64, TensorType
from .accumulate import Numbers
from .arguments import bad_attribute, read_integers, read_size, read_sizes
from .common import format_shape, normalize_axes, normalize_axis, same_type, sum_to
from .windows import integers

_MOVEMENT = frozenset({"movement"})
Position = Callable[[BodyEmitter, int, Scalar], Scalar]
"""Where along an axis the element at a place of the result comes from."""


def permutation(operator: str, axes: Any, rank: int) -> tuple[int, ...]:
    """The axes of the operand in the order of the result. Raises InferenceError where that is no permutation."""
    if axes is None:
        return tuple(reversed(range(rank)))
    order = tuple(normalize_axis(a, rank, operator) for a in read_integers(operator, "axes", axes))
    if sorted(order) != list(range(rank)):
        raise bad_attribute(operator, "axes", axes, f"each of the {rank} axes once")
    return order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed(e: Emitter, x: Tensor, order: Sequence[int], type: TensorType) -> Tensor:
    return e.map(type, [(x, tuple(loop(i) for i in inverse(order)))], lambda s, element: element)


def _infer_transpose(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    return (x.with_shape(x.shape[a] for a in permutation("transpose", attributes["axes"], x.rank)),)


transpose = Operator(
    name="transpose",
    summary="the axes in another order; reversed where none is given",
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
    cases=(
        Case(((3, 5),)),
        Case(((2, 3, 4),), {"axes": (1, 2, 0)}),
        Case(((2, 3, 4, 5),), {"axes": (0, 2, -1, 1)}),
        Case(((),)),
        Case(((0, 3),)),
        Case(((1, 33),), {"axes": (1, 0)}),
    ),
    properties=_MOVEMENT,
)


def _infer_matrix_transpose(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    if x.rank < 2:
        raise InferenceError("rank-mismatch", f"`matrix_transpose` takes matrices, not {x}", operand=0)
    return (x.with_shape(x.shape[a] for a in _swapped(x.rank)),)


matrix_transpose = Operator(
    name="matrix_transpose",
    summary="the last two axes swapped",
    operands=(Operand("x", ANY),),
    infer=_infer_matrix_transpose,
    reference=lambda x: np.swapaxes(x, -1, -2),
    gradient=lambda b, use: [b.matrix_transpose(use.gradient)],
    lower=lambda e, operands, attributes, types: [_transposed(e, operands[0], _swapped(types[0].rank), types[0])],
    cases=(Case(((3, 5),)), Case(((2, 3, 4),)), Case(((1, 1),)), Case(((0, 2),))),
    properties=_MOVEMENT | {"involution"},
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
    summary="repeated along axes of size 1 and new leading axes, to the given shape",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("shape", "sizes"),),
    infer=_infer_broadcast,
    reference=lambda x, shape: np.broadcast_to(x, shape).copy(),
    gradient=lambda b, use: [sum_to(b, use.gradient, use.inputs[0].type.shape)],
    lower=lambda e, operands, attributes, types: [
        e.map(types[0], [(operands[0], broadcast_map(operands[0].type.shape, types[0].shape))], lambda s, x: x)
    ],
    cases=(
        Case(((3, 1),), {"shape": (2, 3, 5)}),
        Case(((),), {"shape": (4,)}),
        Case(((1,),), {"shape": (0,)}),
        Case(((2, 3),), {"shape": (2, 3)}),
        Case(((),), {"shape": ()}),
    ),
    properties=_MOVEMENT,
)


def gathered_map(e: Emitter, x: Tensor, type: TensorType, positions: dict[int, Position]) -> Tensor:
    """A tensor of the rank of `x` whose element comes from other positions along some of the axes."""

    def element(s: BodyEmitter) -> Scalar:
        places = [s.index(axis) for axis in range(type.rank)]
        return s.load(x, [positions[a](s, a, p) if a in positions else p for a, p in enumerate(places)])

    return e.map(type, [], element)


def _lower_flip(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands

    def mirrored(s: BodyEmitter, axis: int, place: Scalar) -> Scalar:
        return s.binary("sub", s.size(x.type.shape[axis] - 1), place)

    axes = normalize_axes(attributes["axes"], x.type.rank, "flip")
    return [gathered_map(e, x, types[0], {axis: mirrored for axis in axes})]


def _infer_flip(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axes(attributes["axes"], types[0].rank, "flip")
    return (types[0],)


flip = Operator(
    name="flip",
    summary="reversed along the given axes, or along all of them",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("axes", "axes", None),),
    infer=_infer_flip,
    reference=lambda x, axes: np.flip(x, normalize_axes(axes, x.ndim, "flip")).copy(),
    gradient=lambda b, use: [b.flip(use.gradient, axes=use.attributes["axes"])],
    lower=_lower_flip,
    cases=(
        Case(((3, 4),)),
        Case(((3, 4, 2),), {"axes": (0, -1)}),
        Case(((1, 0),), {"axes": 1}),
        Case(((),)),
        Case(((7,),), {"axes": ()}),
    ),
    properties=_MOVEMENT | {"involution"},
)


def _infer_roll(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axis(attributes["axis"], types[0].rank, "roll")
    read_integers("roll", "shift", attributes["shift"], 1)
    return same_type(types, attributes)


def _lower_roll(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "roll")
    (shift,) = read_integers("roll", "shift", attributes["shift"], 1)

    def back(s: BodyEmitter, axis: int, place: Scalar) -> Scalar:
        return s.binary("mod", s.binary("sub", place, s.constant(shift, I64)), s.size(x.type.shape[axis]))

    return [gathered_map(e, x, types[0], {axis: back})]


roll = Operator(
    name="roll",
    summary="moved by `shift` places along an axis; what leaves at one end comes back at the other",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("shift", "int"), AttributeSpec("axis", "axis", -1)),
    infer=_infer_roll,
    reference=lambda x, shift, axis: np.roll(x, shift, axis),
    gradient=lambda b, use: [b.roll(use.gradient, shift=-use.attributes["shift"], axis=use.attributes["axis"])],
    lower=_lower_roll,
    cases=(
        Case(((7,),), {"shift": 2}),
        Case(((3, 5),), {"shift": -4, "axis": 0}),
        Case(((2, 3),), {"shift": 10, "axis": 1}),
        Case(((0,),), {"shift": 1}),
        Case(((1, 1),), {"shift": 3}),
    ),
    properties=_MOVEMENT,
)


def _repeats(x: TensorType, repeats: Any) -> tuple[Shape, Shape]:
    """The shape with leading 1s as long as `repeats`, and repeats as long as the shape."""
    counts = read_sizes("tile", "repeats", repeats)
    length = max(len(counts), x.rank)
    return (1,) * (length - x.rank) + x.shape, (1,) * (length - len(counts)) + counts


def _infer_tile(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    shape, counts = _repeats(types[0], attributes["repeats"])
    return (types[0].with_shape(size * count for size, count in zip(shape, counts, strict=True)),)


def _decompose_tile(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    shape, counts = _repeats(x.type, attributes["repeats"])
    pairs = list(zip(counts, shape, strict=True))
    apart = b.reshape(x, shape=tuple(v for _, size in pairs for v in (1, size)))
    repeated = b.broadcast_to(apart, shape=tuple(v for pair in pairs for v in pair))
    return [b.reshape(repeated, shape=tuple(count * size for count, size in pairs))]


def _differentiate_tile(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    shape, counts = _repeats(x.type, use.attributes["repeats"])
    apart = b.reshape(use.gradient, shape=tuple(v for pair in zip(counts, shape, strict=True) for v in pair))
    return [b.reshape(b.sum(apart, axis=tuple(range(0, 2 * len(shape), 2))), shape=x.type.shape)]


tile = Operator(
    name="tile",
    summary="copies side by side, `repeats` of them along each of the last axes",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("repeats", "sizes"),),
    infer=_infer_tile,
    reference=lambda x, repeats: np.tile(x, repeats),
    gradient=_differentiate_tile,
    decompose=_decompose_tile,
    cases=(
        Case(((2, 3),), {"repeats": (2, 1)}),
        Case(((3,),), {"repeats": (2, 3)}),
        Case(((2, 3),), {"repeats": 2}),
        Case(((),), {"repeats": (3,)}),
        Case(((2,),), {"repeats": (0,)}),
    ),
    properties=_MOVEMENT,
)


def _infer_interleave(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    axis = normalize_axis(attributes["axis"], x.rank, "repeat_interleave")
    count = read_size("repeat_interleave", "repeats", attributes["repeats"])
    return (x.with_shape((*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])),)


def _decompose_interleave(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "repeat_interleave")
    before, after, count = x.type.shape[: axis + 1], x.type.shape[axis + 1 :], attributes["repeats"]
    repeated = b.broadcast_to(b.unsqueeze(x, axes=axis + 1), shape=(*before, count, *after))
    return [b.reshape(repeated, shape=_infer_interleave([x.type], attributes)[0].shape)]


def _differentiate_interleave(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    axis = normalize_axis(use.attributes["axis"], x.type.rank, "repeat_interleave")
    shape = (*x.type.shape[: axis + 1], use.attributes["repeats"], *x.type.shape[axis + 1 :])
    return [b.sum(b.reshape(use.gradient, shape=shape), axis=axis + 1)]


repeat_interleave = Operator(
    name="repeat_interleave",
    summary="every element `repeats` times in a row along an axis",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("repeats", "size"), AttributeSpec("axis", "axis", -1)),
    infer=_infer_interleave,
    reference=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    gradient=_differentiate_interleave,
    decompose=_decompose_interleave,
    cases=(
        Case(((2, 3),), {"repeats": 2}),
        Case(((2, 3),), {"repeats": 3, "axis": 0}),
        Case(((0, 2),), {"repeats": 2}),
        Case(((2,),), {"repeats": 0}),
        Case(((1,),), {"repeats": 1}),
    ),
    properties=_MOVEMENT,
)


def _blocks(name: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, int]:
    (x,) = types
    block = attributes["block"]
    if x.rank != 4:
        raise InferenceError("rank-mismatch", f"`{name}` takes a tensor [N, C, H, W], not {x}", operand=0)
    if not isinstance(block, int) or block < 1:
        raise bad_attribute(name, "block", block, "a positive integer")
    return x, block


def _exactly(name: str, size: Size, divisor: int, what: str) -> Size:
    result = divide_exactly(size, divisor)
    if result is None:
        raise InferenceError("shape-mismatch", f"`{name}` needs {what} that {divisor} divides, not {size}", operand=0)
    return result


def _depth_shapes(types: Sequence[TensorType], attributes: Attributes) -> tuple[Shape, tuple[int, ...], Shape]:
    """The shape with the blocks apart, their order in the result, and the result's shape."""
    x, block = _blocks("depth_to_space", types, attributes)
    n, c, h, w = x.shape
    rest = _exactly("depth_to_space", c, block * block, "a number of channels")
    result = (n, rest, h * block, w * block)
    if attributes["mode"] == "blocks_first":
        return (n, block, block, rest, h, w), (0, 3, 4, 1, 5, 2), result
    return (n, rest, block, block, h, w), (0, 1, 4, 2, 5, 3), result


def _space_shapes(types: Sequence[TensorType], attributes: Attributes) -> tuple[Shape, tuple[int, ...], Shape]:
    x, block = _blocks("space_to_depth", types, attributes)
    n, c, h, w = x.shape
    height, width = (_exactly("space_to_depth", size, block, "spatial axes") for size in (h, w))
    apart = (n, c, height, block, width, block)
    order = (0, 3, 5, 1, 2, 4) if attributes["mode"] == "blocks_first" else (0, 1, 3, 5, 2, 4)
    return apart, order, (n, c * (block * block), height, width)


def _regrouped(
    name: str, summary: str, adjoint: str, shapes: Callable[..., tuple[Shape, tuple[int, ...], Shape]], *cases: Case
) -> Operator:
    """A reshape, a transpose and a reshape."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        return (types[0].with_shape(shapes(types, attributes)[2]),)

    def reference(x: Numbers, **attributes: Any) -> Numbers:
        apart, order, result = shapes([TensorType(I64, x.shape)], attributes)
        return np.transpose(x.reshape(integers(apart)), order).reshape(integers(result))

    def decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        apart, order, result = shapes([operands[0].type], attributes)
        return [b.reshape(b.transpose(b.reshape(operands[0], shape=apart), axes=order), shape=result)]

    def differentiate(b: Builder, use: Use) -> Sequence[Value]:
        return b.apply(adjoint, [use.gradient], use.attributes)

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", ANY),),
        attributes=(
            AttributeSpec("block", "int"),
            AttributeSpec("mode", "str", "blocks_first", ("blocks_first", "channels_first")),
        ),
        infer=infer,
        reference=reference,
        gradient=differentiate,
        decompose=decompose,
        cases=cases,
        properties=_MOVEMENT,
    )


OPERATORS = (
    transpose,
    matrix_transpose,
    broadcast_to,
    flip,
    roll,
    tile,
    repeat_interleave,
    _regrouped(
        "depth_to_space",
        "blocks of channels become blocks of pixels; `mode` says whether the channels of x count blocks or results "
        'first ("channels_first" is the shuffle of pixels)',
        "space_to_depth",
        _depth_shapes,
        Case(((2, 8, 3, 2),), {"block": 2}),
        Case(((1, 18, 2, 3),), {"block": 3, "mode": "channels_first"}),
        Case(((1, 4, 0, 2),), {"block": 2}),
    ),
    _regrouped(
        "space_to_depth",
        "blocks of pixels become blocks of channels, the reverse of depth_to_space",
        "depth_to_space",
        _space_shapes,
        Case(((2, 2, 6, 4),), {"block": 2}),
        Case(((1, 2, 3, 6),), {"block": 3, "mode": "channels_first"}),
        Case(((1, 4, 0, 2),), {"block": 2}),
    ),
)
