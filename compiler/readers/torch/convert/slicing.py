"""Parts of tensors: reading and replacing slices, and single positions of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import INFINITY, Size, product
from ...writing.tensors import Tensor, known, of_size
from ..writing.use import Converters, Use

_FAR = (1 << 31) - 1
"""A bound that is at least as large as this means the end of an axis."""


def _bounds(use: Use, axis: int, rank: int) -> dict[str, Any]:
    start = 0 if not use.has("start") else use.size("start")
    stop: Size | None = None if not use.has("end") else use.size("end")
    if isinstance(stop, int) and stop >= _FAR:
        stop = None
    start = max(start, -INFINITY) if isinstance(start, int) else start
    step = use.number("step", 1) if use.has("step") else 1
    whole: tuple[Any, ...] = (None,) * axis
    return {"starts": (*whole, start), "stops": (*whole, stop), "steps": (*(1,) * axis, step)}


def _slice(use: Use) -> Sequence[Tensor]:
    x, axis = use.tensor(), use.axis()
    attributes = _bounds(use, axis, x.rank)
    if attributes["stops"][-1] is None and attributes["starts"][-1] == 0 and attributes["steps"][-1] == 1:
        return [x]
    return [use.g.slice(x, **attributes)]


def _slice_scatter(use: Use) -> Sequence[Tensor]:
    x, axis, g = use.tensor(), use.axis(), use.g
    update = use.cast("src", x.dtype)
    attributes = _bounds(use, axis, x.rank)
    part = g.slice(x, **attributes)
    if update.shape != part.shape:
        update = g.broadcast_to(update, shape=part.shape)
    return [g.slice_update(x, update, **attributes)]


def _index(use: Use) -> Tensor:
    held = use.arguments.get("index")
    return held if isinstance(held, Tensor) else of_size(use.size("index"))


def _select(use: Use) -> Sequence[Tensor]:
    return [use.g.gather(use.tensor(), _index(use), axis=use.axis())]


def _select_scatter(use: Use) -> Sequence[Tensor]:
    x, axis, g = use.tensor(), use.axis(), use.g
    update = use.cast("src", x.dtype)
    positions = g.iota(shape=(x.shape[axis],))
    at = _index(use)
    at = g.where(g.less(at, known(0)), g.add(at, g.size(x.shape[axis])), at)
    here = g.reshape(g.equal(positions, at), shape=(x.shape[axis], *(1,) * (x.rank - axis - 1)))
    return [g.where(here, g.unsqueeze(update, axes=(axis,)), x)]


def _narrow(use: Use) -> Sequence[Tensor]:
    x, axis = use.tensor(), use.axis()
    start, length = use.size("start"), use.size("length")
    whole: tuple[Any, ...] = (None,) * axis
    return [use.g.slice(x, starts=(*whole, start), stops=(*whole, start + length))]


def _unfold(use: Use) -> Sequence[Tensor]:
    """Gathers windows along an axis; the positions in a window become the last axis."""
    x, g = use.tensor(), use.g
    axis = use.axis("dimension")
    if not x.rank:
        return [g.broadcast_to(x, shape=use.shape)]
    starts = g.multiply(g.iota(shape=(use.shape[axis], 1)), known(int(use.number("step"))))
    taken = g.gather(x, g.add(starts, known(np.arange(use.number("size")))), axis=axis)
    order = (*(number for number in range(taken.rank) if number != axis + 1), axis + 1)
    return [g.transpose(taken, axes=order)]


def _as_strided(use: Use) -> Sequence[Tensor]:
    """Gathers elements by their position in memory; the operand must be a whole tensor in row-major order."""
    x, g = use.tensor(), use.g
    sizes, strides = use.sizes("size"), use.sizes("stride")
    described = use.values["self"]
    offset = use.size("storage_offset") if use.has("storage_offset") else 0
    if not described.is_contiguous() or described.storage_offset() != 0:
        use.fail("reads a tensor that is not contiguous by positions in memory")
    total = of_size(offset)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = g.multiply(g.iota(shape=(size,)), of_size(stride))
        total = g.add(total, g.reshape(steps, shape=(size, *(1,) * (len(sizes) - axis - 1))))
    flat = g.reshape(x, shape=(product(x.shape),))
    return [g.gather(flat, total, axis=0)]


CONVERTERS: Converters = {
    "slice.Tensor": _slice,
    "slice_copy.Tensor": _slice,
    "slice_scatter.default": _slice_scatter,
    "select.int": _select,
    "select_copy.int": _select,
    "select_scatter.default": _select_scatter,
    "narrow.default": _narrow,
    "as_strided.default": _as_strided,
    "unfold.default": _unfold,
}
