"""`DeformConv`: a convolution that reads each window at offsets given by a tensor. It becomes bilinear sampling and a
matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, divide_exactly, floor_divide
from .....dialect.types import F64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use
from .convolutions import window_attributes


def _check_windows(
    use: Use, kernel: Sequence[int], sizes: Sequence[Size], counts: Sequence[Size], pads: Sequence[int]
) -> None:
    """Fails if the attributes contradict the shape of the weights or the number of offsets."""
    given = use.ints_of("kernel_shape", kernel)
    if list(given) != list(kernel):
        use.fail(f"has `kernel_shape` = {list(given)}, but weights of {list(kernel)}", code="bad-attribute")
    strides, dilations = window_attributes(use, 2)
    for i in (0, 1):
        extent = dilations[i] * (kernel[i] - 1) + 1
        count = floor_divide(sizes[i] + pads[i] + pads[i + 2] - extent, strides[i]) + 1
        if isinstance(count, int) and isinstance(counts[i], int) and count != counts[i]:
            use.fail(f"has offsets of {counts[i]} windows along an axis of {count}", code="shape-mismatch")


def _deform_conv(use: Use) -> Sequence[Tensor]:
    x, weight, offset, g = use.input(0), use.input(1), use.ranked(2, 4), use.g
    bias, mask = use.optional(3), use.optional(4)
    if x.rank != 4 or weight.rank != 4:
        use.fail(f"takes images of two axes, not {x.type} and {weight.type}")
    dtype = x.dtype
    # The grid below is relative to the size of the image. In f32, its rounding would move samples at whole offsets.
    x, weight, offset = (g.cast(each, dtype=F64) for each in (x, weight, offset))
    batch, channels, *sizes = x.shape
    kernel = [size if isinstance(size, int) else use.fail_unknown("a kernel") for size in weight.shape[2:]]
    strides, dilations = window_attributes(use, 2)
    pads, parts, groups = use.ints_of("pads", (0, 0, 0, 0)), use.integer("offset_group", 1), use.integer("group", 1)
    if len(pads) != 4 or parts < 1 or groups < 1:
        use.fail(f"has `pads` = {list(pads)}, {groups} groups and {parts} groups of offsets", code="bad-attribute")
    _check_windows(use, kernel, sizes, offset.shape[2:], pads)
    taps, rows, columns = kernel[0] * kernel[1], *offset.shape[2:]
    inner = divide_exactly(channels, parts)
    if inner is None or not isinstance(channels, int):
        use.fail(f"cannot divide {channels} channels into {parts}", code="shape-mismatch")
    # [batch * parts, taps, 2, rows, columns]: the vertical offset of each tap before the horizontal one.
    moved = g.reshape(offset, shape=(batch * parts, taps, 2, rows, columns))
    coordinates = []
    for axis in (0, 1):
        steps = g.multiply(g.iota(shape=(offset.shape[2 + axis],)), known(np.int64(strides[axis])))
        steps = g.reshape(steps, shape=(rows, 1) if axis == 0 else (1, columns))
        tap = np.indices(kernel)[axis].reshape(-1, 1, 1) * dilations[axis] - pads[axis]
        base = g.cast(g.add(known(tap.astype(np.int64)), steps), dtype=x.dtype)
        position = g.add(g.gather(moved, known(np.int64(axis)), axis=2), base)
        # The grid is -1 and 1 at the outer edges of the image.
        size = g.size(sizes[axis], x.dtype)
        doubled = g.add(g.multiply(position, g.like(2, x)), g.like(1, x))
        coordinates.append(g.subtract(g.divide(doubled, size), g.like(1, x)))
    flat = [g.reshape(each, shape=(batch * parts, taps * rows, columns)) for each in reversed(coordinates)]
    images = g.reshape(x, shape=(batch * parts, inner, *sizes))
    found = g.grid_sample(images, g.stack(*flat, axis=3), mode="linear", padding="zeros", align_corners=False)
    if mask is not None:
        shares = g.reshape(g.cast(mask, dtype=x.dtype), shape=(batch * parts, 1, taps * rows, columns))
        found = g.multiply(found, shares)
    depth = channels // groups * taps
    sampled = g.reshape(found, shape=(batch, groups, depth, rows * columns))
    filters = g.reshape(weight, shape=(groups, weight.shape[0] // groups, depth))
    made = g.reshape(g.matmul(filters, sampled), shape=(batch, weight.shape[0], rows, columns))
    if bias is not None:
        made = g.add(made, g.reshape(g.cast(bias, dtype=x.dtype), shape=(weight.shape[0], 1, 1)))
    return [g.cast(made, dtype=dtype)]


CONVERTERS: Converters = {"DeformConv": _deform_conv}
