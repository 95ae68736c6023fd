"""Sorting."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import BOOL, I64, U8
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _sort(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if not x.rank:
        return [x, known(0, I64)]
    axis = use.axis()
    keys = use.to(x, U8) if x.dtype == BOOL else x
    order = g.argsort(keys, axis=axis, descending=use.flag("descending"))
    return [g.take_along_axis(x, order, axis=axis, mode="clamp"), order]


def _argsort(use: Use) -> Sequence[Tensor]:
    return [_sort(use)[1]]


def _topk(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if not x.rank:
        return [x, known(0, I64)]
    axis, k = use.axis(), use.size("k")
    if isinstance(k, int):
        return g.apply("top_k", [x], {"k": k, "axis": axis, "largest": use.flag("largest")})
    order = g.argsort(x, axis=axis, descending=use.flag("largest"))
    whole = (None,) * axis
    order = g.slice(order, starts=(*whole, 0), stops=(*whole, k))
    return [g.take_along_axis(x, order, axis=axis, mode="clamp"), order]


CONVERTERS: Converters = {
    "sort.default": _sort,
    "sort.stable": _sort,
    "argsort.default": _argsort,
    "argsort.stable": _argsort,
    "topk.default": _topk,
}
