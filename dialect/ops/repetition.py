"""Copies of elements side by side: tile, repeat_interleave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, LateCases, Operand, Operator, Use
from ..types import ANY, TensorType
from .support.arguments import read_size, read_sizes
from .support.common import normalize_axis

_STRIDED = frozenset({"movement", "strided"})


def _repeats(x: TensorType, repeats: Any) -> tuple[Shape, Shape]:
    """Returns the shape with leading 1s as long as `repeats`, and repeats as long as the shape."""
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
    summary="x repeated as a whole `repeats` times along each of the last axes",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("repeats", "sizes"),),
    infer=_infer_tile,
    reference=lambda x, repeats: np.tile(x, repeats),
    gradient=_differentiate_tile,
    decompose=_decompose_tile,
    cases=LateCases(
        lambda: (
            Case(((2, 3),), {"repeats": (2, 1)}),
            Case(((3,),), {"repeats": (2, 3)}),
            Case(((2, 3),), {"repeats": 2}),
            Case(((),), {"repeats": (3,)}),
            Case(((2,),), {"repeats": (0,)}),
        )
    ),
    properties=_STRIDED,
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
    summary="x with every element repeated `repeats` times along an axis",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("repeats", "size"), AttributeSpec("axis", "axis", -1)),
    infer=_infer_interleave,
    reference=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    gradient=_differentiate_interleave,
    decompose=_decompose_interleave,
    cases=LateCases(
        lambda: (
            Case(((2, 3),), {"repeats": 2}),
            Case(((2, 3),), {"repeats": 3, "axis": 0}),
            Case(((0, 2),), {"repeats": 2}),
            Case(((2,),), {"repeats": 0}),
            Case(((1,),), {"repeats": 1}),
        )
    ),
    properties=_STRIDED,
)


OPERATORS = (tile, repeat_interleave)
