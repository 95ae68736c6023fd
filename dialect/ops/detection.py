"""Object detection: `nms`, the greedy non-maximum suppression of overlapping boxes.

Each step of a loop selects the remaining box with the best score, and removes the boxes that overlap it. All images and
classes take a step together. The number of selected boxes depends on data, so `size` states a maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Size
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.arguments import read_size
from .support.common import broadcast_shapes
from .support.looping import scan

_DTYPES = (F32, F64)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    boxes, scores = types
    if boxes.rank < 2 or boxes.shape[-1] != 4:
        message = f"`nms` takes boxes [..., N, 4] of their corners x1, y1, x2, y2, not {boxes}"
        raise InferenceError("shape-mismatch", message, operand=0)
    rows = boxes.shape[:-1]
    if not scores.rank or broadcast_shapes([rows, scores.shape], "nms") != scores.shape or scores.shape[-1] != rows[-1]:
        message = f"`nms` needs a score for each of the boxes {boxes}, not {scores}"
        raise InferenceError("shape-mismatch", message, operand=1)
    size = read_size("nms", "size", attributes["size"])
    outer = scores.shape[:-1]
    return TensorType(I64, (*outer, size)), TensorType(I64, outer)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    boxes, scores = operands
    size: Size = attributes["size"]
    shape, outer = scores.type.shape, scores.type.shape[:-1]
    rank, count = len(shape), shape[-1]
    sides = [Term(b, b.squeeze(_coordinate(b, boxes, i), axes=-1)) for i in range(4)]
    line = b.iota(shape=(count,))
    lowest = b.like(float("-inf"), scores)
    alive = b.greater(scores, b.like(attributes["score_threshold"], scores))
    zero, one = b.scalar(0, I64), b.scalar(1, I64)
    taken = b.full(shape=(*outer, 1), value=0, dtype=I64)

    def step(index: Value, carried: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        living, number = carried
        best = b.argmax(b.where(living, scores, lowest), axis=rank - 1, keepdims=True, empty="zero")
        picks = b.any(living, axis=rank - 1, keepdims=True)
        overlaps = _overlap(b, sides, best, outer).greater(attributes["iou_threshold"])
        gone = b.logical_or(overlaps.value, b.equal(line, best))
        kept = b.logical_and(living, b.logical_not(gone))
        chosen = b.where(picks, best, zero)
        return [kept, b.add(number, b.where(picks, one, zero))], [b.squeeze(chosen, axes=-1)]

    if count == 0:
        return [b.full(shape=(*outer, size), value=0, dtype=I64), b.squeeze(taken, axes=-1)]
    _, number, found = scan(b, [alive, taken], size, step)
    order = (*range(1, rank), 0)
    return [b.transpose(found, axes=order), b.squeeze(number, axes=-1)]


def _coordinate(b: Builder, boxes: Value, index: int) -> Value:
    before = (None,) * (boxes.type.rank - 1)
    return b.slice(boxes, starts=(*before, index), stops=(*before, index + 1), steps=(1,) * boxes.type.rank)


def _overlap(b: Builder, sides: Sequence[Term], best: Value, outer: tuple[Size, ...]) -> Term:
    """Returns the intersection over the union of every box with the box `best` of its row."""
    chosen = []
    for side in sides:
        whole = side if side.shape[:-1] == outer else side.broadcast_to(shape=(*outer, side.shape[-1]))
        chosen.append(Term(b, b.take_along_axis(whole.value, best, axis=best.type.rank - 1, mode="clamp")))
    width = (sides[2].minimum(chosen[2]) - sides[0].maximum(chosen[0])).maximum(0)
    height = (sides[3].minimum(chosen[3]) - sides[1].maximum(chosen[1])).maximum(0)
    shared = width * height
    area, own = ((x[2] - x[0]) * (x[3] - x[1]) for x in (sides, chosen))
    union = area + own - shared
    proper = union.greater(0)
    return proper.select(shared / proper.select(union, 1.0), 0.0)


def _reference(
    boxes: Numbers, scores: Numbers, iou_threshold: float, size: int, score_threshold: float
) -> tuple[Any, Any]:
    outer = scores.shape[:-1]
    indices, counts = np.zeros((*outer, size), np.int64), np.zeros(outer, np.int64)
    all_boxes = np.broadcast_to(boxes, (*scores.shape, 4))
    for position in np.ndindex(outer):
        box, score = all_boxes[position], scores[position]
        kept: list[int] = []
        for i in np.argsort(-score, kind="stable"):
            if score[i] > score_threshold and all(_shared(box[i], box[j]) <= iou_threshold for j in kept):
                kept.append(int(i))
        kept = kept[:size]
        indices[position][: len(kept)] = kept
        counts[position] = len(kept)
    return indices, counts


def _shared(a: Numbers, b: Numbers) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return float(width * height / union) if union > 0 else 0.0


def _boxes(*shape: int) -> Numbers:
    rng = np.random.default_rng(2)
    low = rng.integers(0, 32, (*shape, 2)) / 4
    return np.concatenate([low, low + rng.integers(4, 24, (*shape, 2)) / 4], -1)


def _scores(*shape: int) -> Numbers:
    return np.asarray(np.random.default_rng(4).permuted(np.arange(np.prod(shape))).reshape(shape) / 64)


nms = Operator(
    name="nms",
    summary="the indices of the boxes by descending score, without boxes that overlap a better one by more than "
    "`iou_threshold` (intersection over union), and the number of these indices; boxes [..., N, 4] are x1, y1, "
    "x2, y2; at most `size` indices, followed by zeros; each index takes N comparisons",
    operands=(Operand("boxes", _DTYPES), Operand("scores", _DTYPES)),
    attributes=(
        AttributeSpec("iou_threshold", "float"),
        AttributeSpec("size", "size"),
        AttributeSpec("score_threshold", "float", float("-inf")),
    ),
    infer=_infer,
    reference=_reference,
    gradient=None,
    decompose=_decompose,
    cases=LateCases(lambda: (
        Case((), {"iou_threshold": 0.3, "size": 9}, arrays={0: _boxes(9), 1: _scores(9)}, dtypes=_DTYPES),
        Case((), {"iou_threshold": 0.5, "size": 5, "score_threshold": 0.1},
             arrays={0: _boxes(2, 1, 7), 1: _scores(2, 3, 7)}, dtypes=_DTYPES),
        Case((), {"iou_threshold": 0.5, "size": 3}, arrays={0: _boxes(1), 1: _scores(1)}, dtypes=_DTYPES),
        Case((), {"iou_threshold": 0.5, "size": 3}, arrays={0: _boxes(0), 1: _scores(0)}, dtypes=_DTYPES),
    )),
    properties=frozenset({"composite", "sequential"}),
    results=("indices", "count"),
)  # fmt: skip

OPERATORS = (nms,)
