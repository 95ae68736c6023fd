"""Pooling over windows and over whole axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import product
from .....dialect.types import DType
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use
from .convolutions import window_attributes, window_padding


def _windows(use: Use, x: Tensor) -> dict[str, Any]:
    """Returns the attributes of a pooling."""
    rank = x.rank - 2
    kernel = tuple(use.ints_of("kernel_shape", ()))
    if rank not in (1, 2, 3) or len(kernel) != rank:
        use.fail(f"takes a tensor of rank {x.rank} and a kernel of rank {len(kernel)}", code="unsupported-rank")
    strides, dilations = window_attributes(use, rank)
    padding = window_padding(use, x.shape[2:], kernel, strides, dilations)
    ceil = bool(use.integer("ceil_mode", 0))
    return {"kernel": kernel, "stride": strides, "padding": padding, "dilation": dilations, "ceil_mode": ceil}


def _max_pool(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    attributes = _windows(use, x)
    rank = x.rank - 2
    result = g.apply(f"max_pool{rank}d", [x], attributes)[0]
    if len(use.node.outputs) < 2 or not use.node.outputs[1]:
        return [result]
    indices = g.apply("max_pool_indices", [x], attributes)[0]
    if use.integer("storage_order", 0) and rank > 1:
        indices = _column_major(use, indices, x)
    # Indices count elements of the whole tensor, over all images and channels.
    images = g.iota(shape=(x.shape[0] * x.shape[1],))
    starts = g.multiply(images, g.size(product(x.shape[2:])))
    starts = g.reshape(starts, shape=(*x.shape[:2], *(1,) * rank))
    return [result, g.add(g.cast(indices, dtype=starts.dtype), starts)]


def _column_major(use: Use, indices: Tensor, x: Tensor) -> Tensor:
    """Converts positions in row-major order to column-major order of the spatial axes."""
    g = use.g
    rest = g.cast(indices, dtype=g.size(1).dtype)
    total: Tensor | None = None
    spatial = x.shape[2:]
    for axis in reversed(range(len(spatial))):
        index = g.remainder(rest, g.size(spatial[axis]))
        rest = g.floor_divide(rest, g.size(spatial[axis]))
        part = g.multiply(index, g.size(product(spatial[:axis])))
        total = part if total is None else g.add(total, part)
    assert total is not None
    return total


def _average_pool(use: Use) -> Sequence[Tensor]:
    x = use.input()
    attributes = _windows(use, x)
    return [averaged(use, x, attributes, bool(use.integer("count_include_pad", 0)))]


_LARGEST = 1 << 24
"""The maximum number of elements in a window that is computed by a convolution with ones."""


def _ones(use: Use, kernel: Sequence[int], dtype: DType) -> Tensor:
    if min(kernel, default=1) < 1 or math.prod(kernel) > _LARGEST:
        use.fail(f"has windows of {list(kernel)}", code="bad-attribute")
    return known(np.ones((1, 1, *kernel), dtype.numpy))


def averaged(use: Use, x: Tensor, attributes: dict[str, Any], counts_padding: bool) -> Tensor:
    g, rank = use.g, x.rank - 2
    dilation = attributes.pop("dilation")
    if all(step == 1 for step in dilation):
        return g.apply(f"avg_pool{rank}d", [x], {**attributes, "count_include_pad": counts_padding})[0]
    # A mean over dilated windows is a convolution of each channel with ones, divided by the number of elements.
    if attributes["ceil_mode"]:
        return _dilated_ceil(use, x, attributes, dilation, counts_padding)
    return _dilated(use, x, attributes, dilation, counts_padding)


def _dilated(use: Use, x: Tensor, attributes: dict[str, Any], dilation: Sequence[int], counts_padding: bool) -> Tensor:
    g, rank = use.g, x.rank - 2
    images = x.shape[0] * x.shape[1]
    ones = _ones(use, attributes["kernel"], x.dtype)
    windows = {"stride": attributes["stride"], "padding": attributes["padding"], "dilation": tuple(dilation)}
    total = g.apply(f"conv{rank}d", [g.reshape(x, shape=(images, 1, *x.shape[2:])), ones], windows)[0]
    if counts_padding:
        count = g.like(int(np.prod(attributes["kernel"])), total)
    else:
        full = g.broadcast_to(g.like(1, x), shape=(1, 1, *x.shape[2:]))
        count = g.apply(f"conv{rank}d", [full, ones], windows)[0]
    return g.reshape(g.divide(total, count), shape=(*x.shape[:2], *total.shape[2:]))


def _dilated_ceil(
    use: Use, x: Tensor, attributes: dict[str, Any], dilation: Sequence[int], counts_padding: bool
) -> Tensor:
    """Returns means over dilated windows with `ceil_mode`: the operand is padded so that the last windows fit, and the
    means do not count the additional positions."""
    g, rank = use.g, x.rank - 2
    pairs, widths = [], [(0, 0), (0, 0)]
    shape = g.apply(f"max_pool{rank}d", [x], {**attributes, "dilation": tuple(dilation), "ceil_mode": True})[0].shape[
        2:
    ]
    for axis in range(rank):
        size, (low, high) = x.shape[2 + axis], attributes["padding"][axis]
        extent = dilation[axis] * (attributes["kernel"][axis] - 1) + 1
        reach = (shape[axis] - 1) * attributes["stride"][axis] + extent
        after = reach - size - low
        if not isinstance(after, int) or not isinstance(high, int):
            use.fail("rounds up the number of windows of a symbolic size", code="data-dependent")
        pairs.append((low, max(after, 0)))
        widths.append((low, high))
    ones = _ones(use, attributes["kernel"], x.dtype)
    windows = {"stride": attributes["stride"], "padding": 0, "dilation": tuple(dilation)}
    images = x.shape[0] * x.shape[1]
    flat = g.reshape(x, shape=(images, 1, *x.shape[2:]))
    wide = [(0, 0), (0, 0), *pairs]
    total = g.apply(f"conv{rank}d", [g.pad(flat, widths=tuple(wide)), ones], windows)[0]
    full = g.broadcast_to(g.like(1, x), shape=(1, 1, *x.shape[2:]))
    if counts_padding:
        full = g.pad(full, widths=tuple(widths), value=1.0)
        wide = [(0, 0), (0, 0), *((0, max(p[1] - w[1], 0)) for p, w in zip(pairs, widths[2:], strict=True))]
    count = g.apply(f"conv{rank}d", [g.pad(full, widths=tuple(wide)), ones], windows)[0]
    return g.reshape(g.divide(total, count), shape=(*x.shape[:2], *total.shape[2:]))


def _lp_pool(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    order = use.integer("p", 2) if use.version >= 2 else int(use.number("p", 2.0))
    if order < 1:
        use.fail(f"has `p` = {order}, expected a positive number", code="bad-attribute")
    attributes = _windows(use, x)
    rank = x.rank - 2
    powers = g.power(g.abs(x), g.like(order, x))
    if attributes["ceil_mode"]:
        use.fail("rounds up the number of windows", code="unsupported-attribute")
    images = x.shape[0] * x.shape[1]
    ones = _ones(use, attributes["kernel"], x.dtype)
    windows = {name: attributes[name] for name in ("stride", "padding", "dilation")}
    total = g.apply(f"conv{rank}d", [g.reshape(powers, shape=(images, 1, *x.shape[2:])), ones], windows)[0]
    root = g.sqrt(total) if order == 2 else g.power(total, g.like(1 / order, total))
    return [g.reshape(root, shape=(*x.shape[:2], *total.shape[2:]))]


def _global(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = use.input()
        return use.g.apply(name, [x], {"axis": tuple(range(2, x.rank)), "keepdims": True})

    return convert


def _global_lp_pool(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    order = use.integer("p", 2) if use.version >= 2 else use.number("p", 2.0)
    return [g.norm(x, axis=tuple(range(2, x.rank)), keepdims=True, order=order)]


def _max_unpool(use: Use) -> Sequence[Tensor]:
    x, indices, g = use.input(0), use.input(1), use.g
    given = use.optional(2)
    rank = x.rank - 2
    kernel, strides = use.ints_of("kernel_shape"), use.ints_of("strides", (1,) * rank)
    pads = use.ints_of("pads", (0,) * (2 * rank))
    if (len(kernel), len(strides), len(pads)) != (rank, rank, 2 * rank):
        use.fail(f"has attributes that do not fit {rank} axes", code="bad-attribute")
    usual = (
        *x.shape[:2],
        *((size - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank] for i, size in enumerate(x.shape[2:])),
    )
    shape = usual
    if given is not None:
        if given.sizes is not None:
            shape = given.sizes
        else:
            shape = use.declared_shape("a shape")
            use.require(g.all(g.equal(given, known(np.array(shape, np.int64)))))
    # Indices refer to the result of the default size, even if `output_shape` makes the result larger.
    flat = g.broadcast_to(g.like(0, x), shape=(product(usual),))
    count = x.type.elements
    made = g.scatter(flat, g.reshape(indices, shape=(count,)), g.reshape(x, shape=(count,)), axis=0)
    made = g.reshape(made, shape=usual)
    if shape == usual:
        return [made]
    widths = tuple((0, new - old) for new, old in zip(shape, usual, strict=True))
    return [g.pad(made, widths=widths)]


CONVERTERS: Converters = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "GlobalLpPool": _global_lp_pool,
    "MaxUnpool": _max_unpool,
}
