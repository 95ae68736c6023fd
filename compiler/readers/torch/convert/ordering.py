"""Sorting, ranked elements, and searches in sorted numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .....dialect.dims import Size, floor_divide, product
from .....dialect.types import BOOL, I64, U8
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use


def _sort(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if not x.rank:
        return [x, known(0, I64)]
    axis = use.axis()
    keys = use.to(x, U8) if x.dtype == BOOL else x
    order = g.argsort(keys, axis=axis, descending=use.flag("descending"))
    return [g.take_along_axis(x, order, axis=axis, mode="clamp"), order]


def _running(name: str) -> Convert:
    """Returns the converter of the greatest, or the least, element so far along an axis, and its last index."""

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        if not x.rank:
            return [x, known(0, I64)]
        axis, keys = use.axis(), use.to(x, U8) if x.dtype == BOOL else x
        if not isinstance(size := x.shape[axis], int):
            use.fail(f"runs along an axis of {size}", help="export the model with a size that is a number")
        if not size:
            return [x, g.full(shape=x.shape, value=0, dtype=I64)]

        def scan(values: Tensor, name: str) -> Tensor:
            # After a step of d, an element covers 2 d of them.
            whole, step = (None,) * axis, 1
            while step < size:
                first, late, early = (
                    g.slice(values, starts=(*whole, start), stops=(*whole, stop))
                    for start, stop in ((0, step), (step, size), (0, size - step))
                )
                values = g.concat(first, g.apply(name, [late, early], {})[0], axis=axis)
                step *= 2
            return values

        is_new = g.equal(keys, scan(keys, name))
        if x.dtype.is_float:
            is_new = g.logical_or(is_new, g.isnan(keys))
        place = known(np.arange(size).reshape(-1, *(1,) * (x.rank - axis - 1)), I64)
        index = scan(g.where(is_new, place, known(0, I64)), "maximum")
        return [g.take_along_axis(x, index, axis=axis, mode="clamp"), index]

    return convert


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


def _ranked(use: Use, x: Tensor, axis: int, rank: Size, *, nan_first: bool) -> Sequence[Tensor]:
    """Returns the element of a rank in the ascending order along an axis, and its index, with an axis of size 1. With
    `nan_first`, the first NaN of a row is taken instead, if there is one."""
    g = use.g
    place = g.reshape(g.size(rank), shape=(1,))
    index = g.gather(g.argsort(x, axis=axis), place, axis=axis, mode="clamp")
    if nan_first and x.dtype.is_float:
        bad = g.isnan(x)
        first = g.argmax(use.to(bad, U8), axis=axis, keepdims=True)
        index = g.where(g.any(bad, axis=axis, keepdims=True), first, index)
    return [g.take_along_axis(x, index, axis=axis, mode="clamp"), index]


def _along_axis(use: Use, rank: Callable[[Size], Size], *, nan_first: bool) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if not x.rank:
        return [x, known(0, I64)]
    axis = use.axis()
    found = _ranked(use, x, axis, rank(x.shape[axis]), nan_first=nan_first)
    return found if use.flag("keepdim") else [g.squeeze(each, axes=(axis,)) for each in found]


def _lower_middle(count: Size) -> Size:
    return floor_divide(count - 1, 2)


def _median_dim(use: Use) -> Sequence[Tensor]:
    return _along_axis(use, _lower_middle, nan_first=True)


def _median(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    count = product(x.shape)
    if count == 0:
        if not x.dtype.is_float:
            use.fail("takes the median of no integers")
        return [g.like(math.nan, x)]
    flat = g.reshape(x, shape=(count,))
    return [g.reshape(_ranked(use, flat, 0, _lower_middle(count), nan_first=True)[0], shape=())]


def _kthvalue(use: Use) -> Sequence[Tensor]:
    return _along_axis(use, lambda count: int(use.number("k")) - 1, nan_first=False)


def _search(sequence: str, values: str) -> Convert:
    """Returns the converter of a search for `values` in a sorted `sequence`."""

    def convert(use: Use) -> Sequence[Tensor]:
        g, dtype = use.g, use.result_dtype(sequence, values)
        ordered = use.tensor(sequence)
        if use.has("sorter"):
            ordered = g.take_along_axis(ordered, use.to(use.tensor("sorter"), I64), axis=-1, mode="clamp")
        right = use.flag("right") or use.word("side") == "right"
        return [use.to(g.searchsorted(use.to(ordered, dtype), use.cast(values, dtype), right=right), use.dtype)]

    return convert


CONVERTERS: Converters = {
    "cummax.default": _running("maximum"),
    "cummin.default": _running("minimum"),
    "sort.default": _sort,
    "sort.stable": _sort,
    "argsort.default": _argsort,
    "argsort.stable": _argsort,
    "topk.default": _topk,
    "median.dim": _median_dim,
    "median.default": _median,
    "kthvalue.default": _kthvalue,
    "searchsorted.Tensor": _search("sorted_sequence", "self"),
    "searchsorted.Scalar": _search("sorted_sequence", "self"),
    "bucketize.Tensor": _search("boundaries", "self"),
    "bucketize.Scalar": _search("boundaries", "self"),
}
