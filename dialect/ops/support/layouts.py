"""Layouts of spatial tensors: channels before the spatial axes, [N, C, *spatial], or after them.

Operators state their types and references for channels first; this module reduces the other layouts to that one.
Lowerings implement each layout directly, since a layout determines the order of elements in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...graph import Value
from ...operator import Attributes, AttributeSpec, Builder, Gradient, Infer, Use
from ...types import TensorType
from .accumulate import Numbers

FIRST = "channels_first"
LAST = "channels_last"
FIRST_TO_LAST = "channels_first_to_last"

LAYOUT = AttributeSpec("layout", "str", FIRST, (FIRST, LAST))
CONVOLUTION_LAYOUT = AttributeSpec("layout", "str", FIRST, (FIRST, LAST, FIRST_TO_LAST))
"""The layouts of a convolution, which may also read channels first and write channels last. In every layout other than
`channels_first`, the weight is [*kernel, C / groups, out]: the results of one position are adjacent in it."""

T = TypeVar("T")


def last_order(rank: int) -> tuple[int, ...]:
    """Returns the transpose of [N, C, *spatial] to [N, *spatial, C]."""
    return (0, *range(2, rank), 1)


def first_order(rank: int) -> tuple[int, ...]:
    """Returns the transpose of [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def kernel_last_order(rank: int) -> tuple[int, ...]:
    """Returns the transpose of a weight [out, C / groups, *kernel] to [*kernel, C / groups, out]."""
    return (*range(2, rank), 1, 0)


def kernel_first_order(rank: int) -> tuple[int, ...]:
    """Returns the transpose of a weight [*kernel, C / groups, out] to [out, C / groups, *kernel]."""
    return (rank - 1, rank - 2, *range(rank - 2))


def pick(items: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    return tuple(items[axis] for axis in order)


def spatial_axis(layout: str) -> int:
    """Returns the first spatial axis."""
    return 1 if layout == LAST else 2


def operand_orders(layout: str, ranks: Sequence[int]) -> list[tuple[int, ...] | None]:
    """Returns the transpose of each operand to channels first: of the tensor, then of the weight if there is one."""
    if layout == FIRST:
        return [None] * len(ranks)
    orders: list[tuple[int, ...] | None] = [None] * len(ranks)
    orders[0] = first_order(ranks[0]) if layout == LAST else None
    if len(ranks) > 1:
        orders[1] = kernel_first_order(ranks[1])
    return orders


def without_layout(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name != "layout"}


def infer_in_layout(infer: Infer) -> Infer:
    """Derives inference in any layout from inference with channels first. The latter checks ranks."""

    def inferred(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        layout = attributes["layout"]
        orders = operand_orders(layout, [t.rank for t in types])
        first = [
            t if order is None or t.rank < 3 else t.with_shape(pick(t.shape, order))
            for t, order in zip(types, orders, strict=True)
        ]
        (result,) = infer(first, without_layout(attributes))
        return (result if layout == FIRST else result.with_shape(pick(result.shape, last_order(result.rank))),)

    return inferred


def reference_in_layout(reference: Callable[..., Numbers]) -> Callable[..., Numbers]:
    def computed(*arrays: Numbers, layout: str, **attributes: Any) -> Numbers:
        orders = operand_orders(layout, [a.ndim for a in arrays])
        first = [
            a if order is None else np.ascontiguousarray(np.transpose(a, order))
            for a, order in zip(arrays, orders, strict=True)
        ]
        result = reference(*first, **attributes)
        return result if layout == FIRST else np.transpose(result, last_order(result.ndim))

    return computed


def gradient_in_layout(differentiate: Gradient) -> Gradient:
    """Derives the gradient in any layout from the gradient with channels first, between transposes."""

    def differentiated(b: Builder, use: Use) -> Sequence[Value | None]:
        layout = use.attributes["layout"]
        attributes = without_layout(use.attributes)
        orders = operand_orders(layout, [v.type.rank for v in use.inputs])
        inputs = tuple(
            v if order is None else b.transpose(v, axes=order) for v, order in zip(use.inputs, orders, strict=True)
        )
        g = use.gradient
        if layout != FIRST:
            g = b.transpose(g, axes=first_order(g.type.rank))
        gradients = differentiate(b, replace(use, inputs=inputs, attributes=attributes, gradients=(g,)))
        return [
            v if order is None or v is None else b.transpose(v, axes=_inverse(order))
            for v, order in zip(gradients, orders, strict=True)
        ]

    return differentiated


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda axis: order[axis]))
