"""Samples at positions that are computed: `grid_sample` at a grid of them, `roi_align` inside of boxes.

A coordinate of `grid_sample` runs from -1 to 1. Along an axis of 4 elements, its position is:

    coordinate                     -1      0      1
    align_corners=true              0    1.5      3      the ends are the centres of the outer elements
    align_corners=false          -0.5    1.5    3.5      the ends are the edges of the outer elements
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..graph import Value
from ..operator import (
    Addressing,
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Operand,
    Operator,
)
from ..types import F32, F64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.common import size_as
from .support.grids import sample, sample_array
from .support.index_modes import INDICES, MODE, are_inside_array, clamped_array
from .support.windows import per_axis

_DTYPES = (F32, F64)


def _infer_grid(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, grid = types
    axes = x.rank - 2
    if axes < 1:
        raise InferenceError("rank-mismatch", f"`grid_sample` takes a tensor [N, C, *spatial], not {x}", operand=0)
    if grid.rank != x.rank or grid.shape[-1] != axes or grid.shape[0] != x.shape[0]:
        message = f"`grid_sample` of {x} needs a grid [{x.shape[0]}, *sizes, {axes}] with {axes} sizes, not {grid}"
        raise InferenceError("shape-mismatch", message, operand=1)
    return (x.with_shape((*x.shape[:2], *grid.shape[1:-1])),)


def _decompose_grid(
    b: Builder, operands: Sequence[Value], attributes: Attributes, *, mixed: bool = True
) -> Sequence[Value]:
    x, grid = operands
    axes, corners = x.type.rank - 2, attributes["align_corners"]
    before = (None,) * (grid.type.rank - 1)
    positions = []
    # The last coordinate of the grid belongs to the first spatial axis.
    for axis in range(axes):
        number = axes - 1 - axis
        part = b.slice(grid, starts=(*before, number), stops=(*before, number + 1), steps=(1,) * grid.type.rank)
        at = Term(b, b.squeeze(part, axes=-1))
        size = Term(b, size_as(b, x.type.shape[2 + axis], grid.type.dtype))
        positions.append((at + 1) * 0.5 * (size - 1) if corners else (at + 1) * size * 0.5 - 0.5)
    return [sample(b, x, positions, attributes["mode"], attributes["padding"], corners=corners, mixed=mixed)]


def _reference_grid(x: Numbers, grid: Numbers, mode: str, padding: str, align_corners: bool) -> Numbers:
    positions = []
    for axis, size in enumerate(x.shape[2:]):
        at = grid[..., grid.shape[-1] - 1 - axis]
        positions.append((at + 1) * 0.5 * (size - 1) if align_corners else (at + 1) * size * 0.5 - 0.5)
    return sample_array(x, positions, mode, padding, corners=align_corners)


def _grids(*shape: int) -> Numbers:
    return np.asarray(np.random.default_rng(1).integers(-23, 24, shape) / 16 + 1 / 64)


grid_sample = Operator(
    name="grid_sample",
    summary="samples of x [N, C, *spatial] at the positions of a grid [N, *sizes, axes], whose coordinates are -1 and "
    "1 at the ends of the axes; the coordinate of the last axis comes first; -1 and 1 are the centres of the outer "
    "elements if `align_corners`, else their outer edges",
    operands=(Operand("x", _DTYPES), Operand("grid", _DTYPES)),
    attributes=(
        AttributeSpec("mode", "str", "linear", choices=("linear", "nearest", "cubic")),
        AttributeSpec("padding", "str", "zeros", choices=("zeros", "border", "reflection")),
        AttributeSpec("align_corners", "bool", False),
    ),
    infer=_infer_grid,
    reference=_reference_grid,
    gradient=by_decomposition(partial(_decompose_grid, mixed=False)),
    decompose=_decompose_grid,
    cases=LateCases(lambda: (
        *(
            Case(((2, 3, 4, 5), ()), {"padding": padding, "align_corners": corners}, arrays={1: _grids(2, 3, 2, 2)},
                 tolerance=32.0, gradient=padding != "reflection")
            for padding in ("zeros", "border", "reflection") for corners in (False, True)
        ),
        Case(((1, 2, 4, 3), ()), {"mode": "nearest"}, arrays={1: _grids(1, 3, 1, 2)}),
        Case(((1, 2, 5, 3), ()), {"mode": "cubic"}, arrays={1: _grids(1, 2, 3, 2)},
             tolerance=32.0, gradient=False),
        Case(((1, 2, 3, 4, 2), ()), {}, arrays={1: _grids(1, 2, 1, 3, 3)}, tolerance=32.0),
        Case(((0, 2, 4, 3), (0, 3, 1, 2)), {}),
    )),
    properties=frozenset({"composite"}),
)  # fmt: skip


def _infer_roi(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, boxes, image = types
    if x.rank != 4:
        raise InferenceError("rank-mismatch", f"`roi_align` takes images [N, C, H, W], not {x}", operand=0)
    if boxes.rank != 2 or boxes.shape[1] != 4:
        message = f"`roi_align` takes boxes [K, 4] of their corners x1, y1, x2, y2, not {boxes}"
        raise InferenceError("shape-mismatch", message, operand=1)
    if image.shape != boxes.shape[:1]:
        message = f"`roi_align` needs the number of an image for each of the boxes {boxes}, not {image}"
        raise InferenceError("shape-mismatch", message, operand=2)
    height, width = per_axis(attributes["size"], 2, "size", "roi_align")
    per_axis(attributes["samples"], 2, "samples", "roi_align")
    return (x.with_shape((boxes.shape[0], x.shape[1], height, width)),)


def _decompose_roi(
    b: Builder, operands: Sequence[Value], attributes: Attributes, *, mixed: bool = True
) -> Sequence[Value]:
    x, boxes, image = operands
    bins, samples = (per_axis(attributes[name], 2, name, "roi_align") for name in ("size", "samples"))
    offset = 0.5 if attributes["aligned"] else 0.0
    scaled = Term(b, boxes) * attributes["scale"] - offset
    sides = [Term(b, b.slice(scaled.value, starts=(None, i), stops=(None, i + 1), steps=(1, 1))) for i in range(4)]
    positions, outside = [], None
    count = boxes.type.shape[0]
    for axis, (low, high) in enumerate(((sides[1], sides[3]), (sides[0], sides[2]))):
        extent = high - low
        extent = extent if attributes["aligned"] else extent.maximum(1)
        total = bins[axis] * samples[axis]
        steps = Term(b, b.cast(b.iota(shape=(1, total), axis=1), dtype=boxes.type.dtype))
        position = low + (steps + 0.5) * extent * (1 / total)
        size = Term(b, size_as(b, x.type.shape[2 + axis], boxes.type.dtype))
        shape = (count, total, 1) if axis == 0 else (count, 1, total)
        beyond = b.logical_or(position.less(-1).value, position.greater(size).value)
        beyond = b.reshape(beyond, shape=shape)
        outside = beyond if outside is None else b.logical_or(outside, beyond)
        positions.append(position.maximum(0).minimum(size - 1).reshape(shape=shape))
    assert outside is not None
    whole = (count, bins[0] * samples[0], bins[1] * samples[1])
    images = b.gather(x, image, axis=0, mode=attributes["mode"])
    spread = [position.broadcast_to(shape=whole) for position in positions]
    found = Term(b, sample(b, images, spread, "linear", "border", mixed=mixed))
    kept = Term(b, b.unsqueeze(outside, axes=1)).select(0.0, found)
    split = kept.reshape(shape=(count, x.type.shape[1], bins[0], samples[0], bins[1], samples[1]))
    return [split.mean(axis=(3, 5)).value]


def _reference_roi(
    x: Numbers, boxes: Numbers, image: Numbers, size: Any, scale: float, samples: Any, aligned: bool, mode: str
) -> Numbers:
    bins, counts = per_axis(size, 2, "size", "roi_align"), per_axis(samples, 2, "samples", "roi_align")
    scaled = boxes * boxes.dtype.type(scale) - (0.5 if aligned else 0.0)
    positions, outside = [], np.zeros((len(boxes), 1, 1), np.bool_)
    for axis, (low, high) in enumerate(((scaled[:, 1:2], scaled[:, 3:4]), (scaled[:, 0:1], scaled[:, 2:3]))):
        extent = high - low if aligned else np.maximum(high - low, 1)
        total = bins[axis] * counts[axis]
        position = low + (np.arange(total, dtype=boxes.dtype) + 0.5) * extent / total
        shape = (len(boxes), total, 1) if axis == 0 else (len(boxes), 1, total)
        outside = outside | ((position < -1) | (position > x.shape[2 + axis])).reshape(shape)
        positions.append(np.minimum(np.maximum(position, 0), x.shape[2 + axis] - 1).reshape(shape))
    whole = (len(boxes), bins[0] * counts[0], bins[1] * counts[1])
    images = x[clamped_array(image, x.shape[0], mode)]
    if mode == "drop":
        images = np.where(are_inside_array(image, x.shape[0])[:, None, None, None], images, 0).astype(x.dtype)
    found = sample_array(
        images, [np.broadcast_to(position, whole) for position in positions], "linear", "border", corners=True
    )
    found = np.where(outside[:, None], 0, found).astype(x.dtype)
    cells = found.reshape(len(boxes), x.shape[1], bins[0], counts[0], bins[1], counts[1])
    return np.asarray(cells.mean((3, 5), dtype=x.dtype))


roi_align = Operator(
    name="roi_align",
    summary="the part of an image in each box, as [K, C, *size]: every element is the mean of `samples` bilinear "
    "samples in its cell; boxes [K, 4] are x1, y1, x2, y2, times `scale`; `image` holds the index of the image of "
    "each box; `aligned` moves boxes by half an element",
    operands=(Operand("x", _DTYPES), Operand("boxes", _DTYPES), Operand("image", INDICES, group="I")),
    attributes=(
        AttributeSpec("size", "ints"),
        AttributeSpec("scale", "float", 1.0),
        AttributeSpec("samples", "ints", 2),
        AttributeSpec("aligned", "bool", True),
        MODE,
    ),
    infer=_infer_roi,
    reference=_reference_roi,
    gradient=by_decomposition(partial(_decompose_roi, mixed=False)),
    decompose=_decompose_roi,
    cases=LateCases(lambda: (
        Case(((2, 3, 7, 6), (), ()), {"size": (3, 2), "scale": 0.5},
             arrays={1: np.asarray([[0.3, 1.1, 8.2, 9.3], [2.2, -1.4, 11.1, 7.7], [-9.0, 1.0, 3.3, 30.0]]),
                     2: np.asarray([1, 0, 1])}, tolerance=64.0),
        Case(((1, 2, 5, 5), (), ()), {"size": 1, "samples": 3, "aligned": False},
             arrays={1: np.asarray([[0.3, 1.1, 0.9, 3.3]]), 2: np.asarray([0])}, tolerance=64.0),
        Case(((1, 2, 5, 5), (0, 4), ()), {"size": 3}, arrays={2: np.zeros(0, np.int64)}),
    )),
    properties=frozenset({"composite"}),
    addresses=lambda types, attributes: (Addressing(2, (types[0].shape[0],)),),
)  # fmt: skip

OPERATORS = (grid_sample, roi_align)
