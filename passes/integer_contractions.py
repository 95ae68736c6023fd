"""How a contraction of dequantised operands is one of their codes: where scales, zero points and sums of codes belong.

    sum (a - za) * sa * (b - zb) * sb == (sum a * b - za * sum b) * (sa * sb)    where zb is 0, and likewise for za

A scale or zero point that is the same all along a sum can be taken out of it. What is known of a contraction here is
along which axes of its operands it sums, and how a tensor that has size 1 along these axes is broadcast to the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..dialect.dims import Size, bounds, product
from ..dialect.graph import Node, Value
from ..dialect.operator import Builder
from ..dialect.ops.einsum import Labels, parse_equation
from ..dialect.ops.layouts import FIRST, LAST, kernel_first_order, pick, spatial_axis
from ..dialect.ops.windows import conv_geometry
from .factors import Axes, summed_axes

MOST_TERMS = (2**31 - 1) // (255 * 128)
"""So many products of codes can be summed in i32, whatever they are."""

Place = Callable[[Builder, Value], Value]


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: the axes over which sums run, and how a tensor with size 1 along these is broadcast to the result.

    `counted`: is every code met by the same codes of the other operand, so that a zero point can be taken out as a
    multiple of their sum?
    """

    summed: Axes
    place: Place
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A contraction of two operands, and of how many products each of its sums is at most."""

    sides: tuple[Side, Side]
    terms: Size

    @property
    def fits(self) -> bool:
        """Can sums of products of codes not overflow?"""
        return bounds(self.terms)[1] <= MOST_TERMS


def arrangement_of(node: Node) -> Arrangement | None:
    """None for what is no contraction of two operands, or one that broadcasts along a sum."""
    arrange, summed = _ARRANGEMENTS.get(node.op), summed_axes(node)
    return None if arrange is None or summed is None else arrange(node, *summed)


def _as_it_is(b: Builder, value: Value) -> Value:
    return value


def _matmul(node: Node, x: Axes, y: Axes) -> Arrangement:
    return Arrangement((Side(x, _as_it_is), Side(y, _as_it_is)), node.inputs[0].type.shape[-1])


def _convolution(node: Node, x: Axes, weight: Axes) -> Arrangement:
    kernel = node.inputs[1].type.shape
    sides = (
        Side(x, _as_it_is),
        Side(weight, lambda b, value: along_channels(b, node, value), counted=False),
    )
    return Arrangement(sides, product(kernel[axis] for axis in weight))


def along_channels(b: Builder, node: Node, value: Value) -> Value:
    """What there is one of for each channel of a convolution's result, so that it is broadcast to that."""
    if value.type.rank == 0 or value.type.elements == 1:
        return b.reshape(value, shape=()) if value.type.rank else value
    spatial = node.output.type.rank - 2 if node.attribute("layout") == FIRST else 0
    return b.reshape(value, shape=(node.output.type.shape[1 if spatial else -1], *(1,) * spatial))


def padded_with(b: Builder, node: Node, codes: Value, zero: int) -> tuple[Value, dict[str, Any]]:
    """The codes that a convolution reads, with the zero point around them, and its attributes without padding."""
    attributes = dict(node.attributes)
    layout, rank = str(attributes["layout"]), codes.type.rank
    axis, kernel = spatial_axis(layout), node.inputs[1].type.shape
    if layout != FIRST:
        kernel = pick(kernel, kernel_first_order(rank))
    w = conv_geometry(node.op, codes.type.shape[axis : axis + rank - 2], kernel[2:], attributes)
    pairs = tuple(zip(w.low, w.high, strict=True))
    if all(pair == (0, 0) for pair in pairs):
        return codes, attributes
    widths = ((0, 0), *pairs, (0, 0)) if layout == LAST else ((0, 0), (0, 0), *pairs)
    return b.pad(codes, widths=widths, value=zero), {**attributes, "padding": 0}


def _einsum(node: Node, *axes: Axes) -> Arrangement | None:
    equation = parse_equation(str(node.attribute("equation")), [v.type.rank for v in node.inputs])
    sizes = equation.sizes([v.type for v in node.inputs])
    summed = [label for label in sizes if label not in equation.result]
    for value, labels in zip(node.inputs, equation.operands, strict=True):
        repeated = len(set(labels)) < len(labels)
        if repeated or any(label not in labels for label in summed):
            return None
        if any(size != sizes[label] for size, label in zip(value.type.shape, labels, strict=True)):
            return None
    x, y = (_labelled(labels, equation.result, own) for labels, own in zip(equation.operands, axes, strict=True))
    return Arrangement((x, y), product(sizes[label] for label in summed))


def _labelled(labels: Labels, result: Labels, summed: Axes) -> Side:
    def place(b: Builder, value: Value) -> Value:
        if value.type.rank == 0:
            return value
        order = (*(labels.index(label) for label in result if label in labels), *summed)
        sizes = dict(zip(labels, value.type.shape, strict=True))
        moved = value if order == tuple(range(len(order))) else b.transpose(value, axes=order)
        return b.reshape(moved, shape=tuple(sizes.get(label, 1) for label in result))

    return Side(summed, place)


_ARRANGEMENTS: Mapping[str, Callable[[Node, Axes, Axes], Arrangement | None]] = {
    "matmul": _matmul,
    "einsum": _einsum,
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
}
