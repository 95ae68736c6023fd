"""depth_to_space and space_to_depth of x [N, C, H, W]: blocks of channels become blocks of pixels, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, divide_exactly
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import ANY, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute
from .support.windows import integers

_STRIDED = frozenset({"movement", "strided"})


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
    """Returns the shape with separate block axes, their order in the result, and the result's shape."""
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
    """Builds the record of a reshape, a transpose and a reshape."""

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
        properties=_STRIDED,
    )


OPERATORS = (
    _regrouped(
        "depth_to_space",
        "x with groups of channels rearranged into blocks of pixels; `mode` gives the order of the "
        'channels ("channels_first" is the pixel shuffle)',
        "space_to_depth",
        _depth_shapes,
        Case(((2, 8, 3, 2),), {"block": 2}),
        Case(((1, 9, 5, 3),), {"block": 3, "mode": "channels_first"}),
        Case(((1, 4, 0, 2),), {"block": 2}),
    ),
    _regrouped(
        "space_to_depth",
        "x with blocks of pixels rearranged into groups of channels, the inverse of depth_to_space",
        "depth_to_space",
        _space_shapes,
        Case(((2, 2, 6, 4),), {"block": 2}),
        Case(((1, 3, 9, 3),), {"block": 3, "mode": "channels_first"}),
        Case(((1, 4, 0, 2),), {"block": 2}),
    ),
)
