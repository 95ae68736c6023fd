"""Rotary embedding and scaled dot-product attention, written with other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from ..differentiate import by_decomposition
from ..dims import Shape, Size, divide_exactly
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import BOOL, F32, FLOATS, DType, TensorType, dtype_of
from .support.accumulate import Numbers, widen
from .support.arguments import bad_attribute
from .support.common import broadcast_shapes, size_as


def _half(x: TensorType) -> Size:
    half = divide_exactly(x.shape[-1], 2) if x.rank else None
    if half is None:
        raise InferenceError("shape-mismatch", f"`rotary_embedding` needs a last axis of even size, not {x}", operand=0)
    return half


def _infer_rotary(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, cos, sin = types
    half = _half(x)
    if cos.shape != sin.shape:
        raise InferenceError("shape-mismatch", f"`rotary_embedding` got cosines {cos} and sines {sin}", operand=2)
    if cos.rank < 1 or cos.shape[-1] not in (half, x.shape[-1]):
        raise InferenceError(
            "shape-mismatch",
            f"`rotary_embedding` turns {half} pairs of elements, the angles are {cos}",
            label=f"expected a last axis of {half} or {x.shape[-1]}",
            operand=1,
        )
    outer = broadcast_shapes([x.shape[:-1], cos.shape[:-1]], "rotary_embedding")
    if outer != x.shape[:-1]:
        raise InferenceError("shape-mismatch", f"the angles {cos} do not broadcast to {x}", operand=1)
    return (x,)


def _part(b: Builder, x: Value, start: Size, stop: Size) -> Value:
    outer = x.type.shape[:-1]
    return b.slice(x, starts=(*(0,) * len(outer), start), stops=(*outer, stop))


def _decompose_rotary(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, cos, sin = operands
    half, width = _half(x.type), x.type.shape[-1]
    outer = x.type.shape[:-1]
    pairs = b.reshape(x, shape=(*outer, half, 2)) if attributes["interleaved"] else None
    if pairs is None:
        first, second = _part(b, x, 0, half), _part(b, x, half, width)
    else:
        first, second = (b.squeeze(_part(b, pairs, i, i + 1), axes=-1) for i in (0, 1))
    if cos.type.shape[-1] == half:
        angles = [(cos, sin), (cos, sin)]
    elif pairs is None:
        angles = [(_part(b, cos, a, z), _part(b, sin, a, z)) for a, z in ((0, half), (half, width))]
    else:
        split = [b.reshape(t, shape=(*t.type.shape[:-1], half, 2)) for t in (cos, sin)]
        c, s = ([b.squeeze(_part(b, t, i, i + 1), axes=-1) for i in (0, 1)] for t in split)
        angles = [(c[0], s[0]), (c[1], s[1])]
    (c1, s1), (c2, s2) = angles
    turned = b.subtract(b.multiply(first, c1), b.multiply(second, s1))
    other = b.add(b.multiply(second, c2), b.multiply(first, s2))
    if pairs is None:
        return [b.concat(turned, other, axis=-1)]
    return [b.reshape(b.stack(turned, other, axis=-1), shape=x.type.shape)]


def _reference_rotary(x: Numbers, cos: Numbers, sin: Numbers, interleaved: bool) -> Numbers:
    wide, c, s = widen(x), widen(cos), widen(sin)
    half = x.shape[-1] // 2
    if c.shape[-1] == half:
        c, s = (np.repeat(t, 2, -1) if interleaved else np.concatenate([t, t], -1) for t in (c, s))
    if interleaved:
        swapped = np.stack([-wide[..., 1::2], wide[..., ::2]], -1).reshape(x.shape)
    else:
        swapped = np.concatenate([-wide[..., half:], wide[..., :half]], -1)
    return np.asarray(wide * c + swapped * s).astype(x.dtype)


rotary_embedding = Operator(
    name="rotary_embedding",
    summary="rotary position embedding: pairs of elements of the last axis rotated by angles; a pair is i and i + "
    "d/2, or 2i and 2i + 1 if `interleaved`; cosines and sines have a last axis of d/2 or d and broadcast",
    operands=(Operand("x", FLOATS), Operand("cos", FLOATS), Operand("sin", FLOATS)),
    attributes=(AttributeSpec("interleaved", "bool", False),),
    infer=_infer_rotary,
    reference=_reference_rotary,
    gradient=by_decomposition(_decompose_rotary),
    decompose=_decompose_rotary,
    cases=LateCases(
        lambda: tuple(
            Case(shapes, {"interleaved": interleaved}, tolerance=8.0)
            for shapes in (
                ((2, 3, 5, 8), (5, 4), (5, 4)),
                ((2, 3, 5, 8), (2, 1, 5, 8), (2, 1, 5, 8)),
                ((1, 2), (1,), (1,)),
                ((0, 4), (1, 2), (1, 2)),
            )
            for interleaved in (False, True)
        )
    ),
)


def shared_groups(q: TensorType, k: TensorType) -> Size:
    """Returns the number of heads of q that share one head of k: 1 unless k has fewer, in the third axis from the
    end."""
    if q.rank < 3 or k.rank < 3 or k.shape[-3] in (1, q.shape[-3]) or q.shape[-3] == 1:
        return 1
    each = divide_exactly(q.shape[-3], k.shape[-3])
    if each is None:
        raise InferenceError(
            "shape-mismatch", f"`attention` cannot share {k.shape[-3]} heads among {q.shape[-3]}", operand=1
        )
    return each


def _repeats_to(shape: Shape, target: Shape) -> bool:
    offset = len(target) - len(shape)
    return offset >= 0 and all(size in (1, target[offset + i]) for i, size in enumerate(shape))


def infer_attention(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    q, k, v, *mask = types
    for number, type in enumerate((q, k, v)):
        if type.rank < 2:
            raise InferenceError("rank-mismatch", f"`attention` takes tensors [..., T, d], not {type}", operand=number)
    if q.shape[-1] != k.shape[-1]:
        raise InferenceError("shape-mismatch", f"`attention` cannot compare {q} with {k}", operand=1)
    if k.shape[-2] != v.shape[-2] or k.shape[-3:-2] != v.shape[-3:-2]:
        raise InferenceError("shape-mismatch", f"`attention` has keys {k} and values {v}", operand=2)
    scale = attributes["scale"]
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float))):
        raise bad_attribute("attention", "scale", scale, "a number")
    keys = k.shape[:-2] if shared_groups(q, k) == 1 else (*k.shape[:-3], q.shape[-3])
    values = v.shape[:-2] if shared_groups(q, k) == 1 else (*v.shape[:-3], q.shape[-3])
    batch = broadcast_shapes([q.shape[:-2], keys, values], "attention")
    if mask:
        if mask[0].dtype not in (BOOL, q.dtype):
            raise InferenceError("dtype-mismatch", f"the mask of `attention` is {mask[0].dtype}", operand=3)
        scores = (*broadcast_shapes([q.shape[:-2], keys], "attention"), q.shape[-2], k.shape[-2])
        if not _repeats_to(mask[0].shape, scores):
            raise InferenceError(
                "shape-mismatch", f"the mask {mask[0]} of `attention` does not fit the scores", operand=3
            )
    return (TensorType(q.dtype, (*batch, q.shape[-2], v.shape[-1])),)


def least_score(dtype: DType) -> float:
    """Returns the least finite number: the score of a masked position, which counts only if all positions are
    masked."""
    return float(ml_dtypes.finfo(dtype.numpy).min)  # type: ignore[no-untyped-call]  # the package has no types for it


def score_dtype(dtype: DType) -> DType:
    """Returns the dtype of the scores and of their softmax."""
    return F32 if dtype.is_half else dtype


def write_scores(
    b: Builder, q: Value, keys: Value, mask: Value | None, attributes: Attributes, hide: Callable[[Value], Value]
) -> Value:
    """Writes the scores of all keys [..., d, S], in f32 for floats of 16 bits, which their products could exceed;
    `hide` masks those after a query."""
    dtype, width, scale = score_dtype(q.type.dtype), q.type.shape[-1], attributes["scale"]
    if scale is not None:
        factor = b.scalar(scale, dtype)
    elif isinstance(width, int):
        factor = b.scalar(max(width, 1) ** -0.5, dtype)
    else:
        factor = b.rsqrt(size_as(b, width, dtype))
    scores = b.multiply(b.matmul(q, keys, into=None if dtype is q.type.dtype else dtype), factor)
    if attributes["causal"]:
        scores = hide(scores)
    if mask is None:
        return scores
    if mask.type.dtype == BOOL:
        return b.where(mask, scores, b.scalar(least_score(q.type.dtype), dtype))
    return b.add(scores, _to(b, mask, dtype))


def write_weighted_sums(b: Builder, weights: Value, values: Value) -> Value:
    """Writes the products of weights in the dtype of scores with values."""
    return b.matmul(_to(b, weights, values.type.dtype), values)


def _to(b: Builder, value: Value, dtype: DType) -> Value:
    return value if value.type.dtype is dtype else b.cast(value, dtype=dtype)


def separate_heads(b: Builder, operands: Sequence[Value]) -> list[Value]:
    """Returns q, k, v and the mask with a separate axis for the heads that share keys, if some do."""
    q, k, v, *mask = operands
    groups = shared_groups(q.type, k.type)
    if groups == 1:
        return list(operands)
    heads = k.type.shape[-3]
    q = b.reshape(q, shape=(*q.type.shape[:-3], heads, groups, *q.type.shape[-2:]))
    k, v = (b.unsqueeze(x, axes=-3) for x in (k, v))
    if mask and mask[0].type.rank >= 3:
        shape = mask[0].type.shape
        split: tuple[Size, ...] = (1, 1) if shape[-3] == 1 else (heads, groups)
        mask = [b.reshape(mask[0], shape=(*shape[:-3], *split, *shape[-2:]))]
    return [q, k, v, *mask]


def _decompose_attention(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    result = infer_attention([x.type for x in operands], attributes)[0]
    q, k, v, *mask = separate_heads(b, operands)
    rows, columns = q.type.shape[-2], k.type.shape[-2]

    def hide(scores: Value) -> Value:
        keep = b.triangular_mask(rows=rows, columns=columns, diagonal=columns - rows)
        return b.where(keep, scores, b.scalar(least_score(q.type.dtype), scores.type.dtype))

    scores = write_scores(b, q, b.matrix_transpose(k), mask[0] if mask else None, attributes, hide)
    total = write_weighted_sums(b, b.softmax(scores, axis=-1), v)
    return [total if total.type.shape == result.shape else b.reshape(total, shape=result.shape)]


def _reference_attention(
    q: Numbers, k: Numbers, v: Numbers, mask: Numbers | None = None, *, scale: float | None, causal: bool
) -> Numbers:
    least = least_score(dtype_of(q))
    wide, keys, values = widen(q), widen(k), widen(v)
    if q.ndim >= 3 and k.ndim >= 3 and k.shape[-3] not in (1, q.shape[-3]) and q.shape[-3] != 1:
        keys, values = (np.repeat(x, q.shape[-3] // k.shape[-3], -3) for x in (keys, values))
    factor = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = np.matmul(wide * np.asarray(factor, wide.dtype), np.swapaxes(keys, -1, -2))
    if causal:
        keep = np.tri(q.shape[-2], k.shape[-2], k.shape[-2] - q.shape[-2], dtype=np.bool_)
        scores = np.where(keep, scores, np.asarray(least, wide.dtype))
    if mask is not None:
        scores = (
            np.where(mask, scores, np.asarray(least, wide.dtype)) if mask.dtype == np.bool_ else scores + widen(mask)
        )
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return np.asarray(np.matmul(weights, values)).astype(q.dtype)


def _mask(*shape: int) -> Numbers:
    return np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 3 != 1)


attention = Operator(
    name="attention",
    summary="softmax(q k^T * scale) v for q [..., T, d], k [..., S, d], v [..., S, e]; a boolean mask is true "
    "where a query attends, any other mask is added to the scores; with `causal`, query i attends to keys "
    "up to i + S - T; k and v may have fewer heads, which are shared; `scale` is 1/sqrt(d) by default; a "
    "query with no allowed key gives the mean of all values",
    operands=(
        Operand("q", FLOATS),
        Operand("k", FLOATS),
        Operand("v", FLOATS),
        Operand("mask", (BOOL, *FLOATS), group="M", optional=True),
    ),
    attributes=(AttributeSpec("scale", "any", None), AttributeSpec("causal", "bool", False)),
    infer=infer_attention,
    reference=_reference_attention,
    gradient=by_decomposition(_decompose_attention),
    decompose=_decompose_attention,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), tolerance=16.0, terms=28),
            Case(((2, 3, 4), (2, 3, 4), (2, 3, 4)), {"causal": True}, tolerance=16.0, terms=12),
            Case(((3, 4), (5, 4), (5, 2)), {"causal": True, "scale": 0.7}, tolerance=16.0, terms=20),
            Case(((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)), tolerance=16.0, terms=20),
            Case(
                ((2, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (2, 1, 3, 5)),
                arrays={3: _mask(2, 1, 3, 5)},
                tolerance=16.0,
                terms=20,
            ),
            Case(((2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5)), arrays={3: _mask(3, 5)}, tolerance=16.0, terms=20),
            Case(((0, 3, 4), (0, 5, 4), (0, 5, 3)), tolerance=16.0),
            Case(((2, 0, 4), (2, 5, 4), (2, 5, 3)), tolerance=16.0),
            Case(((1, 1), (1, 1), (1, 1)), tolerance=16.0),
        )
    ),
    properties=frozenset({"contraction", "attention"}),
)

OPERATORS = (rotary_embedding, attention)
