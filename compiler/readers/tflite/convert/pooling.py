"""Pooling over [N, height, width, channels]. Averages do not count padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import I8, I32, U8
from ...writing.tensors import Tensor, known
from ...writing.windows import Pairs
from ..writing.fixed_point import narrowed
from ..writing.use import Converters, Use
from .convolutions import strides_of, window_padding

_LARGEST = 1 << 20
"""The maximum number of elements in a window."""


def _window(use: Use, x: Tensor) -> tuple[tuple[int, int], tuple[int, int], Pairs]:
    if x.rank != 4:
        use.fail(f"takes a tensor of rank {x.rank}, expected 4", code="unsupported-rank")
    kernel, strides = (use.integer("filter_h"), use.integer("filter_w")), strides_of(use)
    if min(kernel) < 1 or kernel[0] * kernel[1] > _LARGEST:
        use.fail(f"has windows of {kernel[0]} x {kernel[1]}", code="bad-attribute")
    return kernel, strides, window_padding(use, x.shape[1:3], kernel, strides)


def _max_pool(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    kernel, strides, padding = _window(use, x)
    made = g.max_pool2d(x, kernel=kernel, stride=strides, padding=padding, layout="channels_last")
    if use.is_quantized:
        low, high = use.limits()
        return [made if (low, high) == x.dtype.integer_range else g.clip(made, low=low, high=high)]
    return [use.activated(made)]


def _average_pool(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    kernel, strides, padding = _window(use, x)
    if not use.is_quantized:
        made = g.avg_pool2d(
            x, kernel=kernel, stride=strides, padding=padding, count_include_pad=False, layout="channels_last"
        )
        return [use.activated(made)]
    if x.dtype not in (I8, U8):
        use.fail(f"takes quantized {x.dtype}; i8 and u8 are supported", code="unsupported-dtype")
    if not use.same_quantization():
        use.fail("changes the scale of its operand", code="unsupported-attribute")
    if x.shape[1:3] == kernel and not any(part for pair in padding for part in pair):
        total = g.sum(g.cast(x, dtype=I32), axis=(1, 2), keepdims=True)
    else:
        channels = x.shape[3]
        if not isinstance(channels, int):
            use.fail("has an unknown number of channels", code="data-dependent")
        ones = known(np.ones((*kernel, 1, channels), np.int8))
        total = g.conv2d(x, ones, stride=strides, padding=padding, groups=channels, into=I32, layout="channels_last")
    count = _counts(use, x, kernel, strides, padding)
    # The quotient is rounded to the nearest integer, halves away from zero.
    size = g.floor_divide(g.add(g.abs(total), known(count // 2)), known(count))
    mean = g.multiply(size, g.sign(total))
    return [narrowed(use, mean, 0, use.limits())]


def _counts(
    use: Use, x: Tensor, kernel: tuple[int, int], strides: tuple[int, int], padding: Pairs
) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Returns the number of elements in each window, as [height, width, 1], or one for all."""
    if not any(part != 0 for pair in padding for part in pair):
        return np.asarray(kernel[0] * kernel[1], np.int32)
    each = []
    for size, window, stride, pair in zip(x.shape[1:3], kernel, strides, padding, strict=True):
        each.append(_counts_of_axis(use, size, window, stride, pair))
    return (each[0][:, None, None] * each[1][None, :, None]).astype(np.int32)


def _counts_of_axis(
    use: Use, size: Size, window: int, stride: int, pair: tuple[Size, Size]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    before, after = pair
    if not (isinstance(size, int) and isinstance(before, int) and isinstance(after, int)):
        use.fail("has padding around a tensor whose sizes differ between calls", code="data-dependent")
    starts = np.arange((size + before + after - window) // stride + 1) * stride - before
    return np.minimum(starts + window, size) - np.maximum(starts, 0)


CONVERTERS: Converters = {"MAX_POOL_2D": _max_pool, "AVERAGE_POOL_2D": _average_pool}
