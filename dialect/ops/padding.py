"""Padding around a tensor: with a constant, with its edge, or with its reflection.

For x = 1 2 3 and the widths (2, 2):

    constant    0 0 1 2 3 0 0
    edge        1 1 1 2 3 3 3
    reflect     3 2 1 2 3 2 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Size, at_least
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import ANY, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, is_size, read_number, refuse_negative
from .support.common import size_as
from .support.index_modes import load_if_any
from .support.windows import integers

Pairs = tuple[tuple[Size, Size], ...]


def _pairs(widths: Any, rank: int) -> Pairs:
    """Returns the padding before and after each axis, from pairs, a flat list of pairs, or one size for all."""
    if is_size(widths):
        widths = (widths,) * (2 * rank)
    pairs: tuple[Any, ...] = ()
    if isinstance(widths, tuple):
        if len(widths) == rank and all(isinstance(p, tuple) and len(p) == 2 for p in widths):
            pairs = widths
        elif len(widths) == 2 * rank:
            pairs = tuple(zip(widths[::2], widths[1::2], strict=True))
    refuse_negative("pad", "widths", (v for pair in pairs for v in pair))
    if len(pairs) != rank or any(not is_size(v) or not at_least(v, 0) for pair in pairs for v in pair):
        raise bad_attribute("pad", "widths", widths, f"{rank} pairs of sizes, none negative")
    return pairs


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    pairs = _pairs(attributes["widths"], x.rank)
    if attributes["mode"] == "constant":
        read_number("pad", "value", attributes["value"], x.dtype)
    else:
        for axis, (size, pair) in enumerate(zip(x.shape, pairs, strict=True)):
            if size == 0 and pair != (0, 0):
                raise InferenceError(
                    "shape-mismatch", f"`pad` finds nothing to repeat in axis {axis} of {x}", operand=0
                )
    return (x.with_shape(low + size + high for size, (low, high) in zip(x.shape, pairs, strict=True)),)


def _reference(x: Numbers, widths: Any, mode: str, value: float) -> Numbers:
    ends = [integers(pair) for pair in _pairs(widths, x.ndim)]
    if mode == "constant":
        return np.pad(x, ends, constant_values=np.asarray(value).astype(x.dtype)) if x.ndim else x.copy()
    if x.size == 0:
        # The axis is empty only for this value of its dim: the padding is 0.
        return np.zeros([low + n + high for n, (low, high) in zip(x.shape, ends, strict=True)], x.dtype)
    return np.pad(x, ends, mode="edge" if mode == "edge" else "reflect") if x.ndim else x.copy()


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    pairs = _pairs(attributes["widths"], x.type.rank)
    if attributes["mode"] == "constant":
        target = e.full(types[0], read_number("pad", "value", attributes["value"], x.type.dtype))
        return [e.insert(x, target, [low for low, _ in pairs], (1,) * x.type.rank)]
    padded = [axis for axis, pair in enumerate(pairs) if pair != (0, 0)]
    if padded == [*padded[:-1], x.type.rank - 1] and _reaches_once(x.type.shape[-1], pairs[-1], attributes["mode"]):
        return [_lower_bands(e, x, pairs, attributes["mode"], types[0])]

    def element(s: BodyEmitter) -> Scalar:
        positions = [
            _source(s, s.index(axis), x.type.shape[axis], pairs[axis], attributes["mode"])
            for axis in range(x.type.rank)
        ]
        return load_if_any(s, x, positions, padded)

    return [e.map(types[0], [], element)]


def _source(s: BodyEmitter, position: Scalar, size: Size, pair: tuple[Size, Size], mode: str) -> Scalar:
    """Returns the source index of an element of a padded axis."""
    if pair == (0, 0):
        return position
    zero = s.constant(0, I64)
    position = s.binary("sub", position, s.size(pair[0]))
    if mode == "edge":
        return s.binary("max", s.binary("min", position, s.size(size - 1)), zero)
    period = s.size(2 * (size - 1))
    if _reaches_once(size, pair, mode):
        position = s.binary("max", position, s.binary("sub", zero, position))
    else:
        # The reflection alternates direction; with one element its period is 0, and so is every index.
        position = s.binary("mod", position, period)
    return s.binary("min", position, s.binary("sub", period, position))


def _reaches_once(size: Size, pair: tuple[Size, Size], mode: str) -> bool:
    """Returns whether the padding of an axis repeats each of its elements at most once at each end."""
    return mode == "reflect" and all(at_least(size - 1, width) for width in pair)


def _lower_bands(e: Emitter, x: Tensor, pairs: Pairs, mode: str, type: TensorType) -> Tensor:
    """Lowers padding of the last axis: the inside, whose rows are contiguous, and the few elements before and after
    it."""
    *outer, size = x.type.shape
    low, high = pairs[-1]
    result = e.full(type, 0)
    start: Size = 0

    def band(width: Size, column: Callable[[BodyEmitter, Scalar], Scalar]) -> None:
        nonlocal result, start

        def element(s: BodyEmitter) -> Scalar:
            rows = [
                _source(s, s.index(a), n, pair, mode) for a, (n, pair) in enumerate(zip(outer, pairs[:-1], strict=True))
            ]
            return load_if_any(s, x, [*rows, column(s, s.index(len(outer)))], range(len(outer)))

        part = e.map(type.with_shape((*type.shape[:-1], width)), [], element)
        result = e.insert(part, result, [0] * len(outer) + [start], (1,) * type.rank)
        start = start + width

    if low != 0:
        band(low, lambda s, position: s.binary("sub", s.size(low), position))
    band(size, lambda s, position: position)
    if high != 0:
        band(high, lambda s, position: s.binary("sub", s.size(size - 2), position))
    return result


def _sources(b: Builder, size: Size, low: Size, padded: Size, mode: str) -> Value:
    """Returns the source indices of a padded axis, as a vector."""
    position = b.subtract(b.iota(shape=(padded,)), size_as(b, low, I64))
    if mode == "edge":
        return b.maximum(b.minimum(position, size_as(b, size - 1, I64)), b.scalar(0, I64))
    period = size_as(b, 2 * (size - 1), I64)
    position = b.remainder(position, period)
    return b.minimum(position, b.subtract(period, position))


def _differentiate(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    g = use.gradient
    pairs = _pairs(use.attributes["widths"], x.type.rank)
    if use.attributes["mode"] == "constant":
        starts = tuple(low for low, _ in pairs)
        stops = tuple(low + size for size, (low, _) in zip(x.type.shape, pairs, strict=True))
        return [b.slice(g, starts=starts, stops=stops)]
    for axis, (low, high) in enumerate(pairs):
        if (low, high) == (0, 0):
            continue
        size, padded = x.type.shape[axis], g.type.shape[axis]
        positions = _sources(b, size, low, padded, use.attributes["mode"])
        positions = b.reshape(positions, shape=tuple(padded if a == axis else 1 for a in range(x.type.rank)))
        shape = (*g.type.shape[:axis], size, *g.type.shape[axis + 1 :])
        g = b.scatter_add(b.full(shape=shape, value=0.0, dtype=x.type.dtype), positions, g, axis=axis, mode="clamp")
    return [g]


pad = Operator(
    name="pad",
    summary="x padded before and after each axis with a constant, with the edge element, or with the reflection "
    "without the edge element (repeated as often as needed)",
    operands=(Operand("x", ANY),),
    attributes=(
        AttributeSpec("widths", "any"),
        AttributeSpec("mode", "str", "constant", ("constant", "edge", "reflect")),
        AttributeSpec("value", "any", 0.0),
    ),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(
        lambda: (
            Case(((3, 4),), {"widths": ((1, 2), (0, 3))}),
            Case(((3, 4),), {"widths": (1, 2, 0, 3), "value": 1}),
            Case(((2, 0),), {"widths": 1}),
            Case(((),), {"widths": ()}),
            Case(((3, 4),), {"widths": ((1, 2), (0, 5)), "mode": "edge"}),
            Case(((5, 4),), {"widths": ((2, 1), (0, 3)), "mode": "reflect"}),
            Case(((3, 1),), {"widths": ((7, 5), (2, 1)), "mode": "reflect"}),
            Case(((0, 3),), {"widths": ((0, 0), (1, 1)), "mode": "reflect"}),
        )
    ),
    properties=frozenset({"movement"}),
)

OPERATORS = (pad,)
