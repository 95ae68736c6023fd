"""`Unique` and `NonZero`, whose number of results depends on data. A result has its maximum possible size, with zeros
after the last valid element, and a scalar with the number of valid elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import at_least, product
from .....dialect.types import BOOL, I64
from ...writing.tensors import BoundedTensor, Held, Tensor, known
from ..writing.use import Converters, Use


def bounded(use: Use, x: Tensor, axis: int, size: Tensor) -> BoundedTensor:
    """Returns x with `size` valid elements along an axis, and zeros after them."""
    g = use.g
    line = g.reshape(g.iota(shape=(x.shape[axis],)), shape=(x.shape[axis], *(1,) * (x.rank - axis - 1)))
    return BoundedTensor(g.where(g.less(line, size), x, g.like(0, x)), axis, size)


def _non_zero(use: Use) -> Sequence[Held]:
    x, g = use.input(), use.g
    if x.array is not None:
        return [known(np.array(np.nonzero(x.array), np.int64).reshape(max(x.rank, 1), -1))]
    if not x.rank:
        use.fail("takes a scalar that is computed in a call", code="data-dependent")
    total = product(x.shape)
    flags = g.reshape(x if x.dtype == BOOL else g.not_equal(x, g.like(0, x)), shape=(total,))
    # A stable sort puts the positions of true elements first, in their order.
    order = g.argsort(g.cast(g.logical_not(flags), dtype=I64), axis=0)
    columns = []
    for size in reversed(x.shape):
        columns.append(g.remainder(order, g.size(size)))
        order = g.floor_divide(order, g.size(size))
    return [bounded(use, g.stack(*reversed(columns), axis=0), 1, g.sum(g.cast(flags, dtype=I64)))]


def _unique(use: Use) -> Sequence[Held]:
    x, g = use.input(), use.g
    if use.has("axis"):
        axis = use.axis(x.rank, 0)
    else:
        x, axis = g.reshape(x, shape=(x.type.elements,)), 0
    count = x.shape[axis]
    if not at_least(count, 1):
        use.fail(f"takes {x.type}, which may be empty", code="data-dependent")
    front = g.transpose(x, axes=(axis, *(i for i in range(x.rank) if i != axis)))
    width = product(front.shape[1:])
    if not isinstance(width, int):
        use.fail(f"compares slices of {width} elements", code="data-dependent")
    order, rows = _sorted_rows(use, g.reshape(front, shape=(count, width)))
    later = g.slice(rows, starts=(1,), stops=(count,))
    differ = g.any(g.not_equal(later, g.slice(rows, starts=(0,), stops=(count - 1,))), axis=1)
    is_first = g.concat(g.broadcast_to(known(True), shape=(1,)), differ, axis=0)
    group = g.subtract(g.cumsum(g.cast(is_first, dtype=I64), axis=0), known(np.int64(1)))
    size = g.sum(g.cast(is_first, dtype=I64))
    line, zeros = g.iota(shape=(count,)), g.broadcast_to(known(np.int64(0)), shape=(count,))
    # The sort is stable: the first of a group is the first in x.
    firsts = g.gather(order, g.argsort(g.cast(g.logical_not(is_first), dtype=I64), axis=0), axis=0)
    counts = g.bincount(group, size=count)
    inverse = g.scatter(zeros, order, group, axis=0)
    if not use.integer("sorted", 1):
        by_position = g.argsort(g.where(g.less(line, size), firsts, g.size(count)), axis=0)
        firsts, counts = (g.gather(each, by_position, axis=0) for each in (firsts, counts))
        inverse = g.gather(g.scatter(zeros, by_position, line, axis=0), inverse, axis=0)
    values = g.gather(x, firsts, axis=axis)
    made = [bounded(use, each, at, size) for each, at in ((values, axis), (firsts, 0), (counts, 0))]
    return [made[0], made[1], inverse, made[2]]


def _sorted_rows(use: Use, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the permutation that sorts rows lexicographically, and the sorted rows."""
    g, width = use.g, rows.shape[1]
    assert isinstance(width, int), rows
    order = g.iota(shape=rows.shape[:1])
    for column in reversed(range(width)):
        keys = g.gather(g.gather(rows, known(np.int64(column)), axis=1), order, axis=0)
        order = g.gather(order, g.argsort(keys, axis=0), axis=0)
    return order, g.gather(rows, order, axis=0)


CONVERTERS: Converters = {"NonZero": _non_zero, "Unique": _unique}
