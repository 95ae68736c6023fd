"""`TensorScatter`: writes new rows into a cache of keys or values, at one position for each element of the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _tensor_scatter(use: Use) -> Sequence[Tensor]:
    cache, given, g = use.input(0), use.optional(2), use.g
    update = use.ranked(1, cache.rank)
    axis = use.axis(cache.rank, -2)
    mode = use.string("mode", "linear")
    if mode not in ("linear", "circular") or axis == 0:
        use.fail(f"has the mode {mode!r} and the axis {axis}", code="bad-attribute")
    size, count, rank = cache.shape[axis], update.shape[axis], cache.rank
    line = g.reshape(g.iota(shape=(size,)), shape=(size, *(1,) * (rank - axis - 1)))
    zero = known(np.int64(0))
    start = g.broadcast_to(zero, shape=(cache.shape[0],)) if given is None else g.cast(given, dtype=I64)
    start = g.reshape(start, shape=(cache.shape[0], *(1,) * (rank - 1)))
    # Position p of the cache takes row p - start of the update, if there is such a row.
    row = g.subtract(line, start)
    if mode == "circular":
        row = g.remainder(row, g.size(size))
    else:
        fits = g.less_equal(g.add(start, g.size(count)), g.size(size))
        use.require(g.all(g.logical_and(fits, g.greater_equal(start, zero))))
    inside = g.logical_and(g.greater_equal(row, zero), g.less(row, g.size(count)))
    shape = (cache.shape[0], *(1,) * (axis - 1), size, *(1,) * (rank - axis - 1))
    index = g.broadcast_to(g.minimum(g.maximum(row, zero), g.size(count - 1)), shape=shape)
    rows = g.take_along_axis(update, index, axis=axis, mode="clamp")
    return [g.where(inside, rows, cache)]


CONVERTERS: Converters = {"TensorScatter": _tensor_scatter}
