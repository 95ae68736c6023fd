"""Norms, distances between rows, and `embedding_bag`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import product
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use
from .reductions import widened


def _norm(use: Use, difference: Tensor, p: float, axes: tuple[int, ...] = (-1,), *, keep: bool = False) -> Tensor:
    """Returns the p-norm over axes."""
    g, size = use.g, use.g.abs(difference)
    if p == 0:
        return g.sum(g.cast(g.not_equal(size, g.like(0, size)), dtype=size.dtype), axis=axes, keepdims=keep)
    if p == 1:
        return g.sum(size, axis=axes, keepdims=keep)
    if p == 2:
        return g.sqrt(g.sum(g.square(size), axis=axes, keepdims=keep))
    if math.isinf(p):
        return (g.max if p > 0 else g.min)(size, axis=axes, keepdims=keep)
    return g.power(g.sum(g.power(size, g.like(p, size)), axis=axes, keepdims=keep), g.like(1 / p, size))


def _vector_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.cast("self", use.dtype), use.g
    wide = widened(use, x)
    if not x.rank:
        wide = g.reshape(wide, shape=(1,))
    axes = use.axes(rank=max(x.rank, 1))
    made = _norm(use, wide, float(use.number("ord", 2.0)), axes, keep=use.flag("keepdim") and bool(x.rank))
    return [use.to(made, use.dtype)]


def _distance(use: Use) -> Sequence[Tensor]:
    g = use.g
    difference = widened(use, g.subtract(use.cast("self", use.dtype), use.cast("other", use.dtype)))
    flat = g.reshape(difference, shape=(product(difference.shape),))
    return [use.to(_norm(use, flat, float(use.number("p", 2.0))), use.dtype)]


def _cdist(use: Use) -> Sequence[Tensor]:
    x, y, g = use.tensor("x1"), use.tensor("x2"), use.g
    if x.shape[-1] == 0:
        return [g.broadcast_to(g.like(0, x), shape=use.shape)]
    difference = g.subtract(g.unsqueeze(x, axes=(x.rank - 1,)), g.unsqueeze(y, axes=(y.rank - 2,)))
    return [_norm(use, difference, float(use.number("p")))]


def _pdist(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    rows = x.shape[0]
    if not isinstance(rows, int):
        use.fail("compares a symbolic number of rows", code="data-dependent")
    first, second = np.triu_indices(rows, 1)
    if not len(first) or x.shape[1] == 0:
        return [g.broadcast_to(g.like(0, x), shape=use.shape)]
    parts = [g.gather(x, known(indices.astype(np.int64)), axis=0) for indices in (first, second)]
    return [_norm(use, g.subtract(*parts), float(use.number("p", 2.0)))]


def _embedding_bag(use: Use) -> Sequence[Tensor]:
    """Combines rows of a table in bags: bag b has the indices from `offsets[b]` to `offsets[b + 1]`."""
    g, weight = use.g, use.tensor("weight")
    indices, offsets = use.to(use.tensor("indices"), I64), use.to(use.tensor("offsets"), I64)
    mode, padding = ("sum", "mean", "max")[use.number("mode")], use.number("padding_idx", -1)
    bags, count = use.shape[0], indices.shape[0]
    starts = g.slice(offsets, starts=(0,), stops=(bags,)) if offsets.shape != (bags,) else offsets
    steps = g.reshape(g.iota(shape=(count,)), shape=(count, 1))
    bag = g.subtract(g.sum(g.cast(g.less_equal(starts, steps), dtype=I64), axis=1), known(1))
    inside = g.equal(bag, g.reshape(g.iota(shape=(bags,)), shape=(bags, 1)))
    if padding >= 0:
        inside = g.logical_and(inside, g.not_equal(indices, known(padding)))
    rows = g.gather(weight, indices, axis=0)
    if use.has("per_sample_weights"):
        rows = g.multiply(rows, g.unsqueeze(use.cast("per_sample_weights", rows.dtype), axes=(1,)))
    number = g.sum(g.cast(inside, dtype=rows.dtype), axis=1, keepdims=True)
    if mode == "max":
        wide = g.where(g.unsqueeze(inside, axes=(2,)), rows, g.like(-math.inf, rows))
        made = g.where(g.equal(number, g.like(0, number)), g.like(0, rows), g.max(wide, axis=1))
    else:
        made = g.matmul(g.cast(inside, dtype=rows.dtype), rows)
        made = g.divide(made, g.maximum(number, g.like(1, number))) if mode == "mean" else made
    return [made, *(_unused(use, position) for position in range(1, len(use.types)))]


def _unused(use: Use, position: int) -> Tensor:
    """Returns zeros for a result that only the gradient of the operator reads."""
    type = use.types[position]
    assert type is not None, use.operator
    return use.g.broadcast_to(use.g.scalar(0, type.dtype), shape=type.shape)


CONVERTERS: Converters = {
    "linalg_vector_norm.default": _vector_norm,
    "dist.default": _distance,
    "_cdist_forward.default": _cdist,
    "_pdist_forward.default": _pdist,
    "_embedding_bag.default": _embedding_bag,
    "_embedding_bag_forward_only.default": _embedding_bag,
}
