"""`GridSample`: elements at positions that a grid gives, in two or three dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _grid_sample(use: Use) -> Sequence[Tensor]:
    x, grid, g = use.input(0), use.input(1), use.g
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(name := use.string("mode", "linear"), name)
    padding, corners = use.string("padding_mode", "zeros"), bool(use.integer("align_corners", 0))
    rank = x.rank - 2
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        use.fail(f"has the mode {mode!r} and the padding {padding!r}", code="bad-attribute")
    # The last coordinate of the grid belongs to the first spatial axis.
    places = []
    for axis in range(rank):
        at = g.gather(grid, known(np.int64(rank - 1 - axis)), axis=grid.rank - 1)
        size = g.size(x.shape[2 + axis], grid.dtype)
        one, half = g.like(1, at), g.like(0.5, at)
        if corners:
            place = g.multiply(g.multiply(g.add(at, one), half), g.subtract(size, one))
        else:
            place = g.subtract(g.multiply(g.multiply(g.add(at, one), size), half), half)
        places.append(place)
    taps = [_taps(use, place, mode, padding, corners, x.shape[2 + axis]) for axis, place in enumerate(places)]
    total: Tensor | None = None
    for choice in itertools.product(*taps):
        part = _sampled(use, x, [place for place, _ in choice], padding, corners)
        weight: Tensor | None = None
        for _, factor in choice:
            if factor is not None:
                weight = factor if weight is None else g.multiply(weight, factor)
        if weight is not None:
            part = g.multiply(part, g.cast(g.unsqueeze(weight, axes=(1,)), dtype=part.dtype))
        total = part if total is None else g.add(total, part)
    assert total is not None
    return [total]


Taps = list[tuple[Tensor, Tensor | None]]
"""Whole positions, as floats, and their weights."""


def _taps(use: Use, place: Tensor, mode: str, padding: str, corners: bool, size: Size) -> Taps:
    g = use.g
    if mode == "nearest":
        return [(g.round(place), None)]
    if mode == "linear" and padding != "zeros":
        # Between two elements, the position itself is moved inside.
        place = _inside(use, place, padding, corners, size)
    base = g.floor(place)
    part = g.subtract(place, base)
    one = g.like(1, place)
    if mode == "linear":
        return [(base, g.subtract(one, part)), (g.add(base, one), part)]
    return [
        (g.add(base, g.like(i, place)), _cubic(use, g.abs(g.subtract(part, g.like(i, place))))) for i in range(-1, 3)
    ]


def _cubic(use: Use, distance: Tensor, a: float = -0.75) -> Tensor:
    g, d = use.g, distance

    def polynomial(*factors: float) -> Tensor:
        total = g.broadcast_to(g.like(factors[0], d), shape=d.shape)
        for factor in factors[1:]:
            total = g.add(g.multiply(total, d), g.like(factor, d))
        return total

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    return g.where(g.less_equal(d, g.like(1, d)), near, g.where(g.less(d, g.like(2, d)), far, g.like(0, d)))


def _inside(use: Use, place: Tensor, padding: str, corners: bool, size: Size) -> Tensor:
    """Returns the position moved into the tensor: to the border, or reflected there."""
    g = use.g
    last = g.subtract(g.size(size, place.dtype), g.like(1, place))
    zero = g.like(0, place)
    if padding == "border":
        return g.minimum(g.maximum(place, zero), last)
    low = zero if corners else g.like(-0.5, place)
    high = last if corners else g.add(last, g.like(0.5, place))
    span = g.subtract(high, low)
    span = g.where(g.equal(span, zero), g.like(1, place), span)
    # Reflection repeats with a period of two spans.
    offset = g.remainder(g.subtract(place, low), g.multiply(span, g.like(2, place)))
    back = g.subtract(g.multiply(span, g.like(2, place)), offset)
    reflected = g.add(g.where(g.greater(offset, span), back, offset), low)
    return g.minimum(g.maximum(reflected, zero), last)


def _sampled(use: Use, x: Tensor, places: Sequence[Tensor], padding: str, corners: bool) -> Tensor:
    """Returns the elements [N, C, *grid] at whole positions; zeros outside of the tensor if it is padded with zeros."""
    g, rank = use.g, x.rank - 2
    spatial = places[0].shape[1:]
    outside: Tensor | None = None
    flat: Tensor | None = None
    for axis, place in enumerate(places):
        size = x.shape[2 + axis]
        if padding != "zeros":
            index = g.cast(g.round(_inside(use, place, padding, corners, size)), dtype=I64)
        else:
            raw = g.cast(place, dtype=I64)
            zero, last = known(np.int64(0)), g.size(size - 1)
            index = g.minimum(g.maximum(raw, zero), last)
            beyond = g.not_equal(index, raw)
            outside = beyond if outside is None else g.logical_or(outside, beyond)
        flat = index if flat is None else g.add(g.multiply(flat, g.size(size)), index)
    assert flat is not None
    count: Size = 1
    for size in spatial:
        count = count * size
    pixels: Size = 1
    for size in x.shape[2:]:
        pixels = pixels * size
    rows = g.reshape(x, shape=(*x.shape[:2], pixels))
    index = g.broadcast_to(g.reshape(flat, shape=(x.shape[0], 1, count)), shape=(*x.shape[:2], count))
    found = g.reshape(g.take_along_axis(rows, index, axis=2, mode="clamp"), shape=(*x.shape[:2], *spatial))
    assert len(spatial) == rank, (spatial, rank)
    if outside is None:
        return found
    return g.where(g.unsqueeze(outside, axes=(1,)), g.like(0, found), found)


CONVERTERS: Converters = {"GridSample": _grid_sample}
