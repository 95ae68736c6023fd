"""Operators whose result size depends on data: `nonzero`, and `nms`, which keeps boxes that overlap little.

A result has its maximum possible size, with zeros after the last valid element, and a count of the valid elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....dialect.dims import Size
from .....dialect.types import I64
from ...writing.tensors import BoundedTensor, Tensor, known
from ..writing.use import Converters, Use


def _line(use: Use, count: Size) -> Tensor:
    return use.g.iota(shape=(count,))


def positions_of(use: Use, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of the true elements of a vector, with zeros after them, and their number."""
    g = use.g
    flags = g.cast(mask, dtype=I64)
    count = g.sum(flags, axis=0)
    order = g.argsort(g.subtract(known(1), flags), axis=0)  # stable: true elements first, in their order
    return g.where(g.less(_line(use, mask.shape[0]), count), order, known(0)), count


def counted(use: Use, described: Any, mask: Tensor) -> Tensor:
    """Returns a mask that is false for elements after the count. `described` is a tensor of PyTorch with the shape of
    the mask."""
    for axis, count in use.counts(described).items():
        inside = use.g.less(_line(use, mask.shape[axis]), count)
        shape = tuple(mask.shape[axis] if each == axis else 1 for each in range(mask.rank))
        mask = use.g.logical_and(mask, use.g.reshape(inside, shape=shape))
    return mask


def _nms(use: Use) -> Sequence[BoundedTensor]:
    g, boxes, scores = use.g, use.tensor("dets"), use.tensor("scores")
    every = g.broadcast_to(known(True), shape=scores.shape)
    scores = g.where(counted(use, use.values["scores"], every), scores, g.like(float("-inf"), scores))
    limits = {"iou_threshold": float(use.number("iou_threshold")), "size": scores.shape[0]}
    best, count = g.apply("nms", [boxes, scores], limits)
    return [BoundedTensor(best, 0, count)]


def _roi_align(use: Use) -> Sequence[Tensor]:
    g, x, rois = use.g, use.tensor("input"), use.tensor("rois")
    samples = int(use.number("sampling_ratio"))
    if samples < 1:
        use.fail(
            "takes a number of samples that depends on the size of each box",
            help="set `sampling_ratio` to a positive number",
        )
    image, boxes = (g.slice(rois, starts=(None, start), stops=(None, stop)) for start, stop in ((0, 1), (1, 5)))
    attributes = {
        "size": tuple(use.integers(name)[0] for name in ("pooled_height", "pooled_width")),
        "scale": float(use.number("spatial_scale")),
        "samples": samples,
        "aligned": use.flag("aligned"),
    }
    number = g.cast(g.squeeze(image, axes=(1,)), dtype=I64)
    return [g.apply("roi_align", [x, boxes, number], attributes)[0]]


CONVERTERS: Converters = {"torchvision.nms.default": _nms, "torchvision.roi_align.default": _roi_align}
