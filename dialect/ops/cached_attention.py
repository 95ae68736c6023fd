"""Attention to a cache of keys and values that tokens fill up to a length; memory after the length may hold any bits.

    position      0    1    2    3    4    5    6    7         capacity S = 8, length 5, T = 2 queries
    query 0       x    x    x    x
    query 1       x    x    x    x    x                        the last query sees the last key if `causal`

Three masks keep the memory after the length out: scores there are -inf, weights and values are 0. Weights need theirs
for a length of 0, where the softmax has no maximum. A kernel skips the keys and values after the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size
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
from ..types import BOOL, FLOATS, I32, I64, DType, TensorType, dtype_of
from .attention import infer_attention, least_score, separate_heads, write_scores, write_weighted_sums
from .support.accumulate import Numbers, widen
from .support.common import size_as
from .support.index_modes import WINDOW_MODE, clamped_array, index_operand


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    q, k, v, lengths, *mask = types
    result = _renamed(lambda: infer_attention([q, k, v, *mask], attributes))
    alike = lengths.rank == 1 and all(t.rank == q.rank >= 3 and t.shape[0] == lengths.shape[0] for t in (q, k, v))
    if lengths.rank and not alike:
        raise InferenceError(
            "shape-mismatch",
            f"`cached_attention` cannot apply lengths {lengths} to {q}, {k} and {v}",
            label="expected a scalar, or the size of the first axis of all three",
            operand=3,
        )
    return result


def _renamed(infer: Callable[[], tuple[TensorType, ...]]) -> tuple[TensorType, ...]:
    """Returns the types that `attention` has; an error names this operator and its operands."""
    try:
        return infer()
    except InferenceError as error:
        operand = 4 if error.operand == 3 else error.operand
        message = error.message.replace("`attention`", "`cached_attention`")
        raise InferenceError(error.code, message, label=error.label, operand=operand, help=error.help) from None


def _from_start(b: Builder, lengths: Value, capacity: Size) -> Value:
    """Returns the lengths in i64 and within the capacity; a negative length counts from the end."""
    size, zero = size_as(b, capacity, I64), b.scalar(0, I64)
    lengths = lengths if lengths.type.dtype is I64 else b.cast(lengths, dtype=I64)
    lengths = b.where(b.less(lengths, zero), b.add(lengths, size), lengths)
    return b.maximum(b.minimum(lengths, size), zero)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    result = _infer([x.type for x in operands], attributes)[0]
    lengths = _from_start(b, operands[3], operands[1].type.shape[-2])
    q, _, v, *mask = separate_heads(b, [*operands[:3], *operands[4:]])
    keys = b.matrix_transpose(operands[1])  # it undoes the transpose of keys that are stored [..., d, S]
    if q.type.rank != operands[0].type.rank:
        keys = b.unsqueeze(keys, axes=-3)
    rows, least = q.type.shape[-2], least_score(q.type.dtype)

    def hide(scores: Value) -> Value:
        # Query i attends to the keys before i + length - (T - 1).
        ends = b.add(b.iota(shape=(rows,), dtype=I64), b.subtract(b.unsqueeze(lengths, axes=-1), _last(b, rows)))
        ends = b.maximum(ends, b.scalar(0, I64))
        outer = scores.type.rank - 2
        shape = (*lengths.type.shape, *(1,) * (outer - lengths.type.rank), rows)
        return b.mask_after(scores, b.reshape(ends, shape=shape), axis=-1, fill=least, mode="clamp")

    causal = attributes["causal"] and rows != 1
    scores = write_scores(b, q, keys, mask[0] if mask else None, {**attributes, "causal": causal}, hide)
    weights = b.softmax(b.mask_after(scores, lengths, axis=-1, fill=float("-inf"), mode="clamp"), axis=-1)
    weights = b.mask_after(weights, lengths, axis=-1, mode="clamp")
    total = write_weighted_sums(b, weights, b.mask_after(v, lengths, axis=-2, mode="clamp"))
    return [total if total.type.shape == result.shape else b.reshape(total, shape=result.shape)]


def _last(b: Builder, rows: Size) -> Value:
    return b.subtract(size_as(b, rows, I64), b.scalar(1, I64))


def _reference(
    q: Numbers, k: Numbers, v: Numbers, lengths: Numbers, mask: Numbers | None = None, **attributes: Any
) -> Numbers:
    capacity, rows, least = k.shape[-2], q.shape[-2], least_score(dtype_of(q))
    ends = clamped_array(lengths, capacity, window=0)
    wide, keys, values = widen(q), widen(k), widen(v)
    if q.ndim >= 3 and k.ndim >= 3 and k.shape[-3] not in (1, q.shape[-3]) and q.shape[-3] != 1:
        keys, values = (np.repeat(x, q.shape[-3] // k.shape[-3], -3) for x in (keys, values))
    ends = ends.reshape(*ends.shape, *(1,) * (max(q.ndim, keys.ndim) - ends.ndim))
    positions = np.arange(capacity)
    factor = max(q.shape[-1], 1) ** -0.5 if attributes["scale"] is None else attributes["scale"]
    scores = np.matmul(wide * np.asarray(factor, wide.dtype), np.swapaxes(keys, -1, -2))
    if attributes["causal"]:
        seen = positions < ends + np.arange(rows)[:, None] - (rows - 1)
        scores = np.where(seen, scores, np.asarray(least, wide.dtype))
    if mask is not None:
        masked = np.where(mask, scores, np.asarray(least, wide.dtype)) if mask.dtype == np.bool_ else None
        scores = scores + widen(mask) if masked is None else masked
    inside = np.broadcast_to(positions < ends, scores.shape)
    scores = np.where(inside, scores, np.asarray(-np.inf, wide.dtype))
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = np.where(inside, weights / weights.sum(-1, keepdims=True), np.zeros((), wide.dtype))
    within = positions[:, None] < ends
    return np.asarray(np.matmul(weights, np.where(within, values, np.zeros((), wide.dtype)))).astype(q.dtype)


def _case(
    shapes: tuple[tuple[int, ...], ...],
    lengths: object,
    *,
    mask: Numbers | None = None,
    dtype: DType = I64,
    **more: Any,
) -> Case:
    arrays = {3: np.asarray(lengths, dtype.numpy)} | ({} if mask is None else {4: mask})
    return Case(shapes, more, arrays=arrays, tolerance=16.0, terms=max(1, shapes[0][-1] * shapes[1][-2]))


_MASK = np.asarray(np.arange(15).reshape(3, 5) % 3 != 1)

cached_attention = Operator(
    name="cached_attention",
    summary="`attention` to the first keys only: those at and after `lengths`, and their values, have no influence, "
    "even if they are NaN; `lengths` is a scalar, or has the size of the first axis of q, k and v; with `causal`, "
    "query i attends to keys up to i + length - T; a query with no allowed key gives the mean of the "
    "values before the length, and 0 for a length of 0",
    operands=(
        Operand("q", FLOATS),
        Operand("k", FLOATS),
        Operand("v", FLOATS),
        index_operand("lengths"),
        Operand("mask", (BOOL, *FLOATS), group="M", optional=True),
    ),
    attributes=(AttributeSpec("scale", "any", None), AttributeSpec("causal", "bool", False), WINDOW_MODE),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    addresses=lambda types, attributes: (Addressing(3, (types[1].shape[-2],), 0),),
    cases=LateCases(
        lambda: (
            _case(((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), (7, 4)),
            _case(((2, 3, 4), (2, 9, 4), (2, 9, 5)), (3, 8), causal=True, dtype=I32),
            _case(((3, 4), (5, 4), (5, 2)), 4, causal=True, scale=0.7),
            _case(((3, 4, 3, 4), (3, 2, 5, 4), (3, 2, 5, 3)), (0, 1, 5), causal=True),
            _case(((2, 4, 1, 4), (2, 2, 5, 4), (2, 2, 5, 3)), (3, -1), causal=True),
            _case(((2, 3, 4), (2, 5, 4), (2, 5, 3)), (3, 4), mask=_MASK),
            _case(((2, 3, 4), (2, 5, 4), (2, 5, 3)), (9, -9), mode="clamp"),
            _case(((0, 3, 4), (0, 5, 4), (0, 5, 3)), ()),
            _case(((2, 0, 4), (2, 5, 4), (2, 5, 3)), (1, 2)),
            _case(((1, 1), (1, 1), (1, 1)), 1),
        )
    ),
    properties=frozenset({"contraction", "attention"}),
)

OPERATORS = (cached_attention,)
