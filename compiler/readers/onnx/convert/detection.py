"""`NonMaxSuppression`: selects the boxes with the best scores that overlap little.

The number of selected boxes depends on data. The file must declare it, and the call checks it. If the limits are known
while the file is read, the operator `nms` selects the boxes. If the limits are arguments of the call, a loop selects
one box of each class of each image in a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import minimum
from .....dialect.types import BOOL, F32, F64, I64, DType, TensorType
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use
from .control_flow import scan


def _non_max_suppression(use: Use) -> Sequence[Tensor]:
    boxes, scores, g = use.ranked(0, 3), use.ranked(1, 3), use.g
    selected = use.declared_shape("a number of boxes", rank=2)[0]
    limits = [None if (x := use.optional(index)) is None else x.array for index in (2, 3, 4)]
    is_known = all(use.optional(index) is None or limits[index - 2] is not None for index in (2, 3, 4))
    if is_known and boxes.dtype in (F32, F64):
        most, overlap, least = (None if array is None else array.reshape(()).item() for array in limits)
        best, picks = _by_operator(use, boxes, scores, int(most or 0), overlap or 0.0, least)
    else:
        best, picks = _by_loop(use, boxes, scores)
    # Both are [image, class, step].
    _, classes, count = best.shape
    flags, indices = (g.reshape(x, shape=(x.type.elements,)) for x in (picks, best))
    use.require(g.equal(g.sum(g.cast(flags, dtype=I64)), g.size(selected)))
    order = g.argsort(g.cast(g.logical_not(flags), dtype=I64), axis=0)
    rows = g.slice(order, starts=(0,), stops=(selected,))
    group = g.floor_divide(rows, g.size(count))
    columns = [
        g.floor_divide(group, g.size(classes)),
        g.remainder(group, g.size(classes)),
        g.gather(indices, rows, axis=0),
    ]
    return [g.stack(*columns, axis=1)]


def _by_operator(
    use: Use, boxes: Tensor, scores: Tensor, most: int, overlap: float, least: float | None
) -> tuple[Tensor, Tensor]:
    g, size = use.g, minimum(most, scores.shape[2])
    corners = [g.squeeze(each, axes=(1,)) for each in _corners(use, boxes)]
    ordered = g.unsqueeze(g.stack(*(corners[i] for i in (1, 0, 3, 2)), axis=2), axes=(1,))
    limits = {"iou_threshold": overlap, "size": size, **({} if least is None else {"score_threshold": least})}
    best, count = g.apply("nms", [ordered, scores], limits)
    return best, g.less(g.iota(shape=(size,)), g.unsqueeze(count, axes=(2,)))


def _by_loop(use: Use, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    g = use.g
    images, classes, count = scores.shape
    most = _scalar(use, 2, I64, 0)
    overlap = _scalar(use, 3, boxes.dtype, 0.0)
    least = use.optional(4)
    corners = _corners(use, boxes)
    zero, one = known(np.int64(0)), known(np.int64(1))
    line = g.iota(shape=(count,))
    lowest = g.like(float("-inf"), scores)
    alive = g.broadcast_to(known(True), shape=scores.shape)
    if least is not None:
        alive = g.greater(scores, g.reshape(least, shape=()))

    def step(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        _, living, taken = arguments
        best = g.argmax(g.where(living, scores, lowest), axis=2, keepdims=True, empty="zero")
        picks = g.logical_and(g.any(living, axis=2, keepdims=True), g.less(taken, most))
        suppressed = g.greater(_overlap(use, corners, best), overlap)
        gone = g.logical_or(suppressed, g.equal(line, best))
        kept = g.where(picks, g.logical_and(living, g.logical_not(gone)), living)
        return [kept, g.add(taken, g.where(picks, one, zero)), best, picks]

    first = g.broadcast_to(zero, shape=(images, classes, 1))
    types = [TensorType(I64), alive.type, first.type]
    assert alive.dtype == BOOL, alive
    *_, best, picks = scan(use, [alive, first], g.region(types, step), count)
    turned = [g.squeeze(g.transpose(each, axes=(1, 2, 0, 3)), axes=(3,)) for each in (best, picks)]
    return turned[0], turned[1]


def _scalar(use: Use, index: int, dtype: DType, default: float) -> Tensor:
    given = use.optional(index)
    if given is None:
        return known(default, dtype)
    return use.g.cast(use.g.reshape(given, shape=()), dtype=dtype)


def _corners(use: Use, boxes: Tensor) -> list[Tensor]:
    """Returns the least and the greatest coordinates of both axes, each [image, 1, box]."""
    g = use.g
    a, b, c, d = (g.unsqueeze(g.gather(boxes, known(np.int64(i)), axis=2), axes=(1,)) for i in range(4))
    if use.integer("center_point_box", 0):
        half = g.like(0.5, boxes)
        width, height = g.multiply(c, half), g.multiply(d, half)
        return [g.subtract(b, height), g.subtract(a, width), g.add(b, height), g.add(a, width)]
    return [g.minimum(a, c), g.minimum(b, d), g.maximum(a, c), g.maximum(b, d)]


def _overlap(use: Use, corners: Sequence[Tensor], best: Tensor) -> Tensor:
    """Returns the intersection over the union of every box with the box `best` of its image and class."""
    g = use.g
    chosen = [g.take_along_axis(each, best, axis=2, mode="clamp") for each in corners]
    zero = g.like(0, corners[0])
    sides = []
    for axis in (0, 1):
        low = g.maximum(corners[axis], chosen[axis])
        high = g.minimum(corners[axis + 2], chosen[axis + 2])
        sides.append(g.maximum(g.subtract(high, low), zero))
    shared = g.multiply(*sides)

    def area(of: Sequence[Tensor]) -> Tensor:
        return g.multiply(g.subtract(of[2], of[0]), g.subtract(of[3], of[1]))

    union = g.subtract(g.add(area(corners), area(chosen)), shared)
    is_proper = g.greater(union, zero)
    return g.where(is_proper, g.divide(shared, g.where(is_proper, union, g.like(1, union))), zero)


CONVERTERS: Converters = {"NonMaxSuppression": _non_max_suppression}
