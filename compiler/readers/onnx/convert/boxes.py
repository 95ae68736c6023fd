"""`RoiAlign` with the mode `max`: the greatest weighted corner of all samples in each bin of each box.

A sample between four elements has four corners, each element times its weight. The average of a bin adds the corners of
a sample; the standard's maximum takes the greatest corner of all samples instead.
"""

from __future__ import annotations

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Use

_MOST_SAMPLES = 1 << 16
"""The maximum number of samples along an axis of a box."""


def greatest_in_boxes(
    use: Use, x: Tensor, boxes: Tensor, image: Tensor, bins: tuple[int, int], scale: float, samples: int, aligned: bool
) -> Tensor:
    """Returns the greatest corners [K, C, height, width] in `bins` of boxes [K, 4] of images [N, C, H, W]."""
    g, count, channels = use.g, boxes.shape[0], x.shape[1]
    if not 0 < max(bins) * samples <= _MOST_SAMPLES or min(bins) < 1:
        use.fail(f"has {samples} samples in each of {bins[0]}x{bins[1]} parts of a box", code="bad-attribute")
    offset = g.like(0.5 if aligned else 0.0, boxes)
    scaled = g.subtract(g.multiply(boxes, g.like(scale, boxes)), offset)
    x1, y1, x2, y2 = g.apply("split", [scaled], {"parts": 4, "axis": 1})
    rows = _Axis(use, y1, y2, x.shape[2], bins[0] * samples, aligned)
    columns = _Axis(use, x1, x2, x.shape[3], bins[1] * samples, aligned)
    images = g.gather(x, image, axis=0)
    outside = g.logical_or(g.unsqueeze(rows.outside, axes=(2,)), g.unsqueeze(columns.outside, axes=(1,)))
    found: Tensor | None = None
    for row, row_weight in rows.corners:
        lines = g.take_along_axis(images, g.reshape(row, shape=(count, 1, row.shape[1], 1)), axis=2, mode="clamp")
        for column, column_weight in columns.corners:
            at = g.reshape(column, shape=(count, 1, 1, column.shape[1]))
            corner = g.take_along_axis(lines, at, axis=3, mode="clamp")
            weight = g.multiply(g.unsqueeze(row_weight, axes=(2,)), g.unsqueeze(column_weight, axes=(1,)))
            weighted = g.multiply(corner, g.unsqueeze(weight, axes=(1,)))
            found = weighted if found is None else g.maximum(found, weighted)
    assert found is not None
    kept = g.where(g.unsqueeze(outside, axes=(1,)), g.like(0, x), found)
    split = g.reshape(kept, shape=(count, channels, bins[0], samples, bins[1], samples))
    return g.max(split, axis=(3, 5))


class _Axis:
    """The samples [K, total] of all boxes along one axis: whether they lie outside of the image, and the two elements
    around each with their weights."""

    def __init__(self, use: Use, low: Tensor, high: Tensor, size: Size, total: int, aligned: bool) -> None:
        g = use.g
        extent = g.subtract(high, low)
        extent = extent if aligned else g.maximum(extent, g.like(1, low))
        steps = known((np.arange(total) + 0.5) / total, low.dtype)
        position = g.add(low, g.multiply(extent, g.reshape(steps, shape=(1, total))))
        end = g.size(size, low.dtype)
        self.outside = g.logical_or(g.less(position, g.like(-1, position)), g.greater(position, end))
        last = g.subtract(end, g.like(1, position))
        position = g.minimum(g.maximum(position, g.like(0, position)), last)
        below = g.floor(position)
        part = g.subtract(position, below)
        first = g.cast(below, dtype=I64)
        second = g.minimum(g.add(first, known(np.int64(1))), g.size(size - 1))
        self.corners = ((first, g.subtract(g.like(1, position), part)), (second, part))
