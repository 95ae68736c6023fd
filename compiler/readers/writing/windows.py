"""Padding of windows that slide over spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.dims import Size, ceil_divide, maximum

Pairs = tuple[tuple[Size, Size], ...]
"""The padding before and after each spatial axis."""


def same_padding(
    sizes: Sequence[Size], kernel: Sequence[Size], strides: Sequence[int], dilations: Sequence[int]
) -> Pairs:
    """Returns the padding with which there is one window for each stride; the larger half is after the axis."""
    pairs: list[tuple[Size, Size]] = []
    for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        extent = dilation * (window - 1) + 1
        total = maximum((ceil_divide(size, stride) - 1) * stride + extent - size, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)
