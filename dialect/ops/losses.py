"""Training losses: `cross_entropy` of logits and target classes."""

from __future__ import annotations

from collections.abc import Sequence

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
from ..types import F16, F32, F64, FLOATS, TensorType
from .support.accumulate import Numbers, widen
from .support.algebra import Term
from .support.common import is_half, normalize_axis
from .support.index_modes import INDICES, MODE, are_inside_array, clamped_array


def _axis(x: TensorType, attributes: Attributes) -> int:
    if not x.rank:
        raise InferenceError("rank-mismatch", "`cross_entropy` needs an axis of classes, not a scalar", operand=0)
    return normalize_axis(attributes["axis"], x.rank, "cross_entropy")


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, target, *weight = types
    axis = _axis(x, attributes)
    outer = (*x.shape[:axis], *x.shape[axis + 1 :])
    if target.shape != outer:
        message = f"`cross_entropy` of {x} needs a class for each of {x.with_shape(outer)}, not {target}"
        raise InferenceError("shape-mismatch", message, operand=1)
    if weight and weight[0].shape != (x.shape[axis],):
        message = f"`cross_entropy` needs a weight for each of {x.shape[axis]} classes, not {weight[0]}"
        raise InferenceError("shape-mismatch", message, operand=2)
    if not 0 <= attributes["label_smoothing"] <= 1:
        smoothing = attributes["label_smoothing"]
        message = f"`label_smoothing` of `cross_entropy` is {smoothing}, expected a number from 0 to 1"
        raise InferenceError("bad-attribute", message)
    return (x.with_shape(outer if attributes["reduction"] == "none" else ()),)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, target, *weight = operands
    dtype, axis, smoothing = x.type.dtype, _axis(x.type, attributes), attributes["label_smoothing"]
    if is_half(dtype):
        x, *weight = (b.cast(v, dtype=F32) for v in (x, *weight))
    logs = Term(b, b.log_softmax(x, axis=axis))
    at = b.unsqueeze(target, axes=axis)
    counted, ignored = None, attributes["ignore_index"]
    if ignored is not None:
        counted = b.not_equal(target, b.like(ignored, target))
        at = b.where(b.unsqueeze(counted, axes=axis), at, b.like(0, at))
    mode = attributes["mode"]
    chosen = Term(b, b.squeeze(b.take_along_axis(logs.value, at, axis=axis, mode=mode), axes=axis))
    importance = Term(b, b.gather(weight[0], b.squeeze(at, axes=axis), axis=0, mode=mode)) if weight else None
    loss = -chosen if importance is None else -chosen * importance
    if smoothing:
        scaled = logs
        if weight:
            shape = tuple(x.type.shape[axis] if i == axis else 1 for i in range(x.type.rank))
            scaled = logs * Term(b, b.reshape(weight[0], shape=shape))
        classes = Term(b, b.full(shape=x.type.shape, value=1.0, dtype=logs.dtype)).sum(axis=axis)
        loss = loss * (1 - smoothing) - scaled.sum(axis=axis) * smoothing / classes
    if counted is not None:
        loss = Term(b, counted).select(loss, 0.0)
    if attributes["reduction"] != "none":
        total = loss.sum(axis=None)
        if attributes["reduction"] == "mean":
            ones = Term(b, b.full(shape=loss.shape, value=1.0, dtype=loss.dtype))
            parts = ones if importance is None else importance
            parts = parts if counted is None else Term(b, counted).select(parts, 0.0)
            total = total / parts.sum(axis=None)
        loss = total
    return [b.cast(loss.value, dtype=dtype) if is_half(dtype) else loss.value]


def _reference(
    x: Numbers, target: Numbers, weight: Numbers | None = None, *, axis: int, reduction: str, ignore_index: int | None,
    label_smoothing: float, mode: str,
) -> Numbers:  # fmt: skip
    wide = np.moveaxis(widen(x), axis, -1)
    classes = wide.shape[-1]
    peak = np.max(wide, -1, keepdims=True, initial=-np.inf)
    logs = wide - peak - np.log(np.sum(np.exp(wide - peak), -1, keepdims=True))
    counted = np.ones(target.shape, np.bool_) if ignore_index is None else target != ignore_index
    at = np.where(counted, target, 0)
    share = np.ones(classes, wide.dtype) if weight is None else widen(weight)
    position = clamped_array(at, classes, mode)
    inside = are_inside_array(at, classes) if mode == "drop" else np.ones(at.shape, np.bool_)
    importance = np.where(inside, share[position], 0) if weight is not None else np.ones(at.shape, wide.dtype)
    loss = -np.where(inside, np.take_along_axis(logs, position[..., None], -1)[..., 0], 0) * importance
    if label_smoothing:
        loss = loss * (1 - label_smoothing) - (logs * share).sum(-1) * label_smoothing / wide.dtype.type(classes)
    loss = np.where(counted, loss, 0)
    if reduction != "none":
        loss = loss.sum()
        if reduction == "mean":
            loss = loss / np.where(counted, importance, 0).sum(dtype=wide.dtype)
    return np.asarray(loss).astype(x.dtype)


def _targets(*shape: int, classes: int = 5) -> Numbers:
    return np.random.default_rng(5).integers(0, classes, shape)


cross_entropy = Operator(
    name="cross_entropy",
    summary="the cross-entropy loss -log(softmax(x)[target]) of logits x and target class indices; `reduction` returns "
    "the mean, the sum, or every loss; `weight` has a factor for each class; targets equal to `ignore_index` do not "
    "count; a negative target is out of range; the classes are along `axis`, which is 1 for images "
    "in PyTorch",
    operands=(Operand("x", FLOATS), Operand("target", INDICES, group="I"), Operand("weight", FLOATS, optional=True)),
    attributes=(
        AttributeSpec("axis", "axis", -1),
        AttributeSpec("reduction", "str", "mean", choices=("mean", "sum", "none")),
        AttributeSpec("ignore_index", "int?", None),
        AttributeSpec("label_smoothing", "float", 0.0),
        MODE,
    ),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    cases=LateCases(lambda: (
        Case(((7, 5), (7,)), arrays={1: _targets(7)}, terms=7),
        Case(((3, 5, 4), (3, 4), (5,)), {"axis": 1, "reduction": "sum", "ignore_index": 2}, arrays={1: _targets(3, 4)},
             domain=(0.1, 2.0), terms=12),
        Case(((3, 5), (3,), (5,)), {"label_smoothing": 0.1}, arrays={1: _targets(3)}, domain=(0.1, 2.0), terms=5),
        Case(((1, 5), (1,)), {"reduction": "none", "label_smoothing": 0.25}, arrays={1: _targets(1)}, terms=5),
        Case(((0, 5), (0,)), {"reduction": "sum"}, arrays={1: _targets(0)}, dtypes=(F16, F32, F64)),
        Case(((5,), ()), {"reduction": "none"}, arrays={1: _targets()}, terms=5),
    )),
    properties=frozenset({"composite"}),
    addresses=lambda types, attributes: (
        Addressing(
            1, (types[0].shape[_axis(types[0], attributes)],), ignored=attributes["ignore_index"], from_end=False
        ),
    ),
)  # fmt: skip

OPERATORS = (cross_entropy,)
