"""Reading images at the positions of a grid, and adding up overlapping windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .....dialect.dims import Size, product
from .....dialect.types import F32, I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
Inside: TypeAlias = Callable[[Tensor, Size], Tensor]


def _grid_sampler(use: Use) -> Sequence[Tensor]:
    x, grid, g = use.tensor("input"), use.tensor("grid"), use.g
    mode, padding = _MODES[use.number("interpolation_mode")], _PADDINGS[use.number("padding_mode")]
    corners, rank = use.flag("align_corners"), x.rank - 2
    wide, grid = (use.to(t, F32) if t.dtype.is_half else t for t in (x, grid))

    def inside(position: Tensor, size: Size) -> Tensor:
        return position if padding == "zeros" else _inside(use, position, size, padding, corners)

    taps = []
    for axis in range(rank):
        # The last coordinate of the grid belongs to the first spatial axis.
        at = g.gather(grid, known(rank - 1 - axis), axis=grid.rank - 1)
        size = g.size(x.shape[2 + axis], grid.dtype)
        one, half = g.like(1, at), g.like(0.5, at)
        if corners:
            position = g.multiply(g.multiply(g.add(at, one), half), g.subtract(size, one))
        else:
            position = g.subtract(g.multiply(g.multiply(g.add(at, one), size), half), half)
        taps.append(_taps(use, position, mode, x.shape[2 + axis], inside))
    total: Tensor | None = None
    for choice in itertools.product(*taps):
        part = _elements(use, wide, [position for position, _ in choice], inside)
        for _, weight in choice:
            part = part if weight is None else g.multiply(part, g.unsqueeze(weight, axes=(1,)))
        total = part if total is None else g.add(total, part)
    assert total is not None, grid
    return [use.to(total, x.dtype)]


def _taps(use: Use, position: Tensor, mode: str, size: Size, inside: Inside) -> list[tuple[Tensor, Tensor | None]]:
    """Returns the integer positions around each position, as floats, and their weights."""
    g = use.g
    if mode == "nearest":
        return [(g.round(inside(position, size)), None)]
    if mode == "bilinear":
        position = inside(position, size)
    base = g.floor(position)
    part = g.subtract(position, base)
    if mode == "bilinear":
        return [(base, g.subtract(g.like(1, part), part)), (g.add(base, g.like(1, base)), part)]
    steps = (g.like(number, part) for number in range(-1, 3))
    return [(g.add(base, step), _cubic(use, g.abs(g.subtract(part, step)))) for step in steps]


def _cubic(use: Use, distance: Tensor, a: float = -0.75) -> Tensor:
    g, d = use.g, distance

    def polynomial(*factors: float) -> Tensor:
        total = g.broadcast_to(g.like(factors[0], d), shape=d.shape)
        for factor in factors[1:]:
            total = g.add(g.multiply(total, d), g.like(factor, d))
        return total

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    return g.where(g.less_equal(d, g.like(1, d)), near, g.where(g.less(d, g.like(2, d)), far, g.like(0, d)))


def _inside(use: Use, position: Tensor, size: Size, padding: str, corners: bool) -> Tensor:
    """Returns the position moved into the image: to the border, or reflected there."""
    g = use.g
    last, zero = g.subtract(g.size(size, position.dtype), g.like(1, position)), g.like(0, position)
    if padding == "reflection":
        low = zero if corners else g.like(-0.5, position)
        span = g.subtract(last if corners else g.add(last, g.like(0.5, position)), low)
        span = g.where(g.equal(span, zero), g.like(1, position), span)
        # Reflection repeats with a period of two spans.
        twice = g.multiply(span, g.like(2, position))
        offset = g.remainder(g.subtract(position, low), twice)
        position = g.add(g.where(g.greater(offset, span), g.subtract(twice, offset), offset), low)
    return g.minimum(g.maximum(position, zero), last)


def _elements(use: Use, x: Tensor, positions: Sequence[Tensor], inside: Inside) -> Tensor:
    """Returns the elements [N, C, *grid] at integer positions, with zeros outside of the image."""
    g, spatial = use.g, positions[0].shape[1:]
    outside: Tensor | None = None
    flat: Tensor | None = None
    for axis, position in enumerate(positions):
        size = x.shape[2 + axis]
        raw = g.cast(g.round(inside(position, size)), dtype=I64)
        index = g.minimum(g.maximum(raw, known(0)), g.size(size - 1))
        beyond = g.not_equal(index, raw)
        outside = beyond if outside is None else g.logical_or(outside, beyond)
        flat = index if flat is None else g.add(g.multiply(flat, g.size(size)), index)
    assert flat is not None and outside is not None, positions
    count = product(spatial)
    rows = g.reshape(x, shape=(*x.shape[:2], product(x.shape[2:])))
    index = g.broadcast_to(g.reshape(flat, shape=(x.shape[0], 1, count)), shape=(*x.shape[:2], count))
    found = g.reshape(g.take_along_axis(rows, index, axis=2, mode="clamp"), shape=(*x.shape[:2], *spatial))
    return g.where(g.unsqueeze(outside, axes=(1,)), g.like(0, found), found)


def _fold(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    sizes, kernel = use.integers("output_size", 2), use.integers("kernel_size", 2)
    dilation, padding, stride = (use.integers(name, 2) for name in ("dilation", "padding", "stride"))
    columns = g.unsqueeze(x, axes=(0,)) if x.rank == 2 else x
    made = g.fold(columns, sizes=sizes, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return [g.squeeze(made, axes=(0,)) if x.rank == 2 else made]


CONVERTERS: Converters = {
    "grid_sampler_2d.default": _grid_sampler,
    "grid_sampler_3d.default": _grid_sampler,
    "col2im.default": _fold,
}
