"""Convolutions over [N, height, width, channels].

Padding represents the real number 0, so a quantized tensor is padded with its zero point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import I32
from ...writing.tensors import Tensor, known
from ...writing.windows import Pairs, same_padding
from ..writing.fixed_point import narrowed, scaled, shifted
from ..writing.use import Converters, Use
from .contractions import centred, corrected_bias, float_weight, require_bytes, transposed, weight_factors


def window_padding(
    use: Use, sizes: Sequence[Size], kernel: Sequence[Size], strides: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> Pairs:
    """Returns the padding before and after each spatial axis."""
    if any(stride < 1 for stride in (*strides, *dilations)):
        use.fail(f"has strides {tuple(strides)} and dilations {tuple(dilations)}", code="bad-attribute")
    if use.integer("padding") == 1:
        return ((0, 0),) * len(sizes)
    return same_padding(sizes, kernel, strides, dilations)


def strides_of(use: Use) -> tuple[int, int]:
    return use.integer("stride_h"), use.integer("stride_w")


def _conv(use: Use) -> Sequence[Tensor]:
    x, weight = use.input(0), use.input(1)
    _require_images(use, x, weight)
    channels, part = x.shape[3], weight.shape[3]
    groups = channels // part if isinstance(channels, int) and isinstance(part, int) and part else 1
    return [_convolved(use, x, weight, (1, 2, 3, 0), groups, 0)]


def _depthwise_conv(use: Use) -> Sequence[Tensor]:
    x, weight = use.input(0), use.input(1)
    _require_images(use, x, weight)
    if not isinstance(x.shape[3], int) or weight.shape[0] != 1:
        use.fail(f"has the weight {weight.type} for {x.type}", code="shape-mismatch")
    return [_convolved(use, x, weight, (1, 2, 0, 3), x.shape[3], 3)]


def _require_images(use: Use, *operands: Tensor) -> None:
    for x in operands:
        if x.rank != 4:
            use.fail(f"takes a tensor of rank {x.rank}, expected 4", code="unsupported-rank")


def _convolved(use: Use, x: Tensor, weight: Tensor, axes: tuple[int, ...], groups: int, channel: int) -> Tensor:
    """Returns a convolution; `axes` order the weight as [height, width, in, out], `channel` is its axis of results."""
    g, bias = use.g, use.optional(2)
    strides, dilations = strides_of(use), (use.integer("dilation_h"), use.integer("dilation_w"))
    padding = window_padding(use, x.shape[1:3], weight.shape[1:3], strides, dilations)
    common = {"stride": strides, "dilation": dilations, "groups": groups, "layout": "channels_last"}
    if not use.is_quantized:
        wide = transposed(use, float_weight(use, weight), axes)
        given = [x, wide] if bias is None else [x, wide, bias]
        return use.activated(g.apply("conv2d", given, common | {"padding": padding})[0])
    require_bytes(use, x, weight)
    from_, by, to = use.quantized(0), use.quantized(1), use.quantized_result
    if any(size != 0 for pair in padding for size in pair):
        x = g.pad(x, widths=((0, 0), *padding, (0, 0)), value=from_.zero)
    small = None if weight.array is None else centred(weight.array, by)
    offset = None
    if small is not None:
        others = tuple(axis for axis in range(4) if axis != channel)
        offset = corrected_bias(bias, small.sum(axis=others, dtype=np.int64), from_.zero)
    if small is not None and offset is not None:
        held = known(np.ascontiguousarray(small.transpose(axes)), label=weight.label)
        total = g.apply("conv2d", [x, held, offset], common | {"into": I32})[0]
    else:
        wide = g.transpose(shifted(use, weight, by.zero), axes=axes)
        given = [shifted(use, x, from_.zero), wide]
        total = g.apply("conv2d", given if bias is None else [*given, bias], common)[0]
    return narrowed(use, scaled(use, total, weight_factors(use, from_, by)), to.zero, use.limits())


def _transpose_conv(use: Use) -> Sequence[Tensor]:
    sizes, weight, x, bias, g = use.sizes(0, "sizes"), use.input(1), use.input(2), use.optional(3), use.g
    _require_images(use, x, weight)
    if len(sizes) != 4:
        use.fail(f"has {len(sizes)} sizes, expected 4", code="wrong-operands")
    strides = strides_of(use)
    before = [low for low, _ in window_padding(use, sizes[1:3], weight.shape[1:3], strides)]
    full = [(n - 1) * s + k for n, s, k in zip(x.shape[1:3], strides, weight.shape[1:3], strict=True)]
    after = [f - low - size for f, low, size in zip(full, before, sizes[1:3], strict=True)]
    # A result larger than the full one is padded with zeros at its end.
    extra = tuple(-min(end, 0) if isinstance(end, int) else 0 for end in after)
    pairs = tuple((low, max(end, 0) if isinstance(end, int) else end) for low, end in zip(before, after, strict=True))
    attributes = {"stride": strides, "padding": pairs, "output_padding": extra}
    if use.is_quantized:
        require_bytes(use, x, weight)
        from_, by, to = use.quantized(2), use.quantized(1), use.quantized_result
        x, weight = shifted(use, x, from_.zero), shifted(use, weight, by.zero)
    else:
        weight = float_weight(use, weight)
    given = [g.transpose(x, axes=(0, 3, 1, 2)), transposed(use, weight, (3, 0, 1, 2))]
    total = g.transpose(g.apply("conv_transpose2d", given, attributes)[0], axes=(0, 2, 3, 1))
    if bias is not None:
        total = g.add(total, bias)
    if not use.is_quantized:
        return [use.activated(total)]
    return [narrowed(use, scaled(use, total, weight_factors(use, from_, by)), to.zero, use.limits())]


CONVERTERS: Converters = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise_conv,
    "TRANSPOSE_CONV": _transpose_conv,
}
