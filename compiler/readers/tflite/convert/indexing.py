"""Gathers. An index out of range fails the call."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I64
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _gather(use: Use) -> Sequence[Tensor]:
    x, indices = use.input(0), use.input(1)
    if use.integer("batch_dims"):
        use.fail("has batch axes")
    return [use.g.gather(x, indices, axis=use.axis(use.integer("axis"), x.rank))]


def _gather_nd(use: Use) -> Sequence[Tensor]:
    return [use.g.gather_nd(use.input(0), use.input(1))]


def _embedding_lookup(use: Use) -> Sequence[Tensor]:
    ids, table = use.input(0), use.input(1)
    if table.dtype != use.dtype:
        use.fail("looks up quantized rows as floats", code="unsupported-dtype")
    return [use.g.gather(table, ids, axis=0)]


def _one_hot(use: Use) -> Sequence[Tensor]:
    ids, on, off, g = use.input(0), use.input(2), use.input(3), use.g
    depth = use.sizes(1, "a depth")
    if len(depth) != 1:
        use.fail("has several depths", code="wrong-operands")
    axis = use.axis(use.integer("axis"), ids.rank + 1)
    positions = g.iota(shape=(depth[0],))
    wide = g.cast(g.unsqueeze(ids, axes=(axis,)), dtype=I64)
    positions = g.reshape(positions, shape=(depth[0], *(1,) * (ids.rank - axis)))
    return [g.where(g.equal(wide, positions), g.reshape(on, shape=()), g.reshape(off, shape=()))]


CONVERTERS: Converters = {
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "ONE_HOT": _one_hot,
}
