"""Rewrites contractions of dequantized operands to integer contractions: scales, zero points and corrections.

    sum (a - za) * sa * (b - zb) * sb == (sum a * b - za * sum b) * (sa * sb)    where zb is 0, and likewise for za

A scale or zero point that is constant along a sum can be factored out of it. This module describes a contraction by the
summed axes of its operands, and by the broadcast of a tensor with size 1 along these axes to the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...dialect.dims import Shape, Size, at_least, bounds, product
from ...dialect.graph import Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Axes, Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.conv_transpose import transposed_geometry
from ...dialect.ops.einsum import Labels, parse_equation
from ...dialect.ops.support.layouts import (
    FIRST,
    LAST,
    kernel_first_order,
    last_order,
    pick,
    spatial_axis,
)
from ...dialect.ops.support.windows import conv_geometry
from ..analysis.factors import summed_axes
from ..layout.phases import Phases, phases_of

MOST_TERMS = (2**31 - 1) // (255 * 128)
"""The number of products of quantized values that can be summed in i32, for any values."""

Align = Callable[[Builder, Value], Value]


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: its summed axes, and the broadcast of a tensor with size 1 along these axes to the result.

    `counted` says whether every quantized value meets the same values of the other operand, so that a zero point can be
    factored out as a multiple of their sum.
    """

    summed: Axes
    align: Align
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The operands of a contraction of two tensors, and the most products in one of its sums."""

    sides: tuple[Side, Side]
    terms: Size

    @property
    def fits(self) -> bool:
        """Returns whether sums of products of quantized values cannot overflow."""
        return bounds(self.terms)[1] <= MOST_TERMS


def arrangement_of(node: Node) -> Arrangement | None:
    """Returns the arrangement of a node; None if it is not a contraction of two operands, or broadcasts along a sum."""
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
    """Reshapes one value per channel so that it broadcasts to a convolution's result."""
    if value.type.rank == 0 or value.type.elements == 1:
        return b.reshape(value, shape=()) if value.type.rank else value
    spatial = node.output.type.rank - 2 if node.attribute("layout") == FIRST else 0
    return b.reshape(value, shape=(node.output.type.shape[1 if spatial else -1], *(1,) * spatial))


def padded_with(b: Builder, node: Node, codes: Value, zero: int) -> tuple[Value, dict[str, Any]]:
    """Returns the quantized input of a convolution, padded with the zero point, and the attributes without padding."""
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


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of quantized values, and the scale of its weight. `phases` are the phases of a transposed
    convolution that it computes, if any."""

    node: Node
    scale: Value
    phases: Phases | None = None

    def finish(self, b: Builder, result: Value) -> Value:
        """Returns the result of the transposed convolution from that of the convolution."""
        if self.phases is None:
            return result
        last = b.transpose(result, axes=last_order(result.type.rank))
        return self.phases.joined(b, {self.phases.filled: last}, LAST)


def as_convolution(b: Builder, node: Node, weight: Value, scale: Value, codes: Value, zero: int) -> Convolution | None:
    """Returns a transposed convolution as a convolution of stride 1: over all its phases or, if it has none, over an
    input with zero points between its elements. Returns None for other nodes, and if the scale varies along a sum."""
    if not OPERATORS[node.op].has("transposed"):
        return None
    rank = node.output.type.rank - 2
    phases = phases_of(node)
    if phases is not None and not phases.is_depthwise:
        return _of_phases(b, phases, weight, scale, codes)
    attributes = dict(node.attributes)
    sizes, kernel = codes.type.shape[2:], weight.type.shape[2:]
    w = transposed_geometry(node.op, sizes, kernel, attributes)
    low = tuple(extent - 1 - before for extent, before in zip(w.extent, w.low, strict=True))
    reach = tuple(first + (n - 1) * step + 1 for first, n, step in zip(low, sizes, w.stride, strict=True))
    whole = tuple(size + extent - 1 for size, extent in zip(w.sizes, w.extent, strict=True))
    rest = tuple(size - end for size, end in zip(whole, reach, strict=True))
    if not all(at_least(size, 0) for size in (*low, *rest)):
        return None
    outer = codes.type.shape[:2]
    if set(w.stride) == {1}:
        spread = b.pad(codes, widths=((0, 0), (0, 0), *zip(low, rest, strict=True)), value=zero)
    else:
        between = b.full(shape=(*outer, *whole), value=zero, dtype=codes.type.dtype)
        bounds = {"starts": (0, 0, *low), "stops": (*outer, *reach), "steps": (1, 1, *w.stride)}
        spread = b.slice_update(between, codes, **bounds)
    groups = attributes["groups"]
    assert isinstance(groups, int), node
    each = weight.type.shape[1]
    placed = _for_each_channel(b, scale, groups, each)
    if placed is None:
        return None
    split: Shape = (groups, weight.type.shape[0] // groups, each, *kernel)
    order = (0, 2, 1, *range(3, rank + 3))
    turned = b.transpose(b.reshape(weight, shape=split), axes=order)
    flat = b.reshape(turned, shape=(groups * each, split[1], *kernel))
    reversed_kernel = b.flip(flat, axes=tuple(range(2, rank + 2)))
    given = {"stride": 1, "padding": 0, "dilation": attributes["dilation"], "groups": groups}
    operator = OPERATORS[f"conv{rank}d"]
    full = tuple(sorted(operator.complete(given).items()))
    inputs = (spread, reversed_kernel, *node.inputs[2:])
    return Convolution(Node(operator.name, inputs, node.outputs, full, (), node.scope, node.span), placed)


def _of_phases(b: Builder, phases: Phases, weight: Value, scale: Value, codes: Value) -> Convolution | None:
    node = phases.node
    placed = _for_each_channel(b, scale, phases.groups, phases.each)
    if placed is None:
        return None
    placed = placed if placed.type.rank == 0 else phases.for_phases(b, placed)
    kernel = phases.weight(b, weight, phases.filled, FIRST)
    bias = [phases.for_phases(b, value) for value in node.inputs[2:]]
    operator = OPERATORS[node.op.replace("_transpose", "")]
    full = operator.complete(phases.attributes(FIRST, phases.padding(phases.filled)))
    x = node.inputs[0].type
    (type,) = operator.check([x, kernel.type.with_dtype(x.dtype), *(v.type for v in bias)], full)
    output = Value(node.output.name, type)
    attributes = tuple(sorted(full.items()))
    inputs = (codes, kernel, *bias)
    return Convolution(Node(operator.name, inputs, (output,), attributes, (), node.scope, node.span), placed, phases)


def _for_each_channel(b: Builder, scale: Value, groups: int, each: Size) -> Value | None:
    """Returns the scales of a transposed convolution's weight, for the convolution that replaces it."""
    if scale.type.rank == 0:
        return scale
    spatial = (1,) * (scale.type.rank - 2)
    if scale.type.shape != (1, each, *spatial):
        return None
    repeated = scale if groups == 1 else b.broadcast_to(scale, shape=(groups, each, *spatial))
    return b.reshape(repeated, shape=(groups * each, 1, *spatial))


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
    def align(b: Builder, value: Value) -> Value:
        if value.type.rank == 0:
            return value
        order = (*(labels.index(label) for label in result if label in labels), *summed)
        sizes = dict(zip(labels, value.type.shape, strict=True))
        moved = value if order == tuple(range(len(order))) else b.transpose(value, axes=order)
        return b.reshape(moved, shape=tuple(sizes.get(label, 1) for label in result))

    return Side(summed, align)


_ARRANGEMENTS: Mapping[str, Callable[[Node, Axes, Axes], Arrangement | None]] = {
    "matmul": _matmul,
    "einsum": _einsum,
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
}
