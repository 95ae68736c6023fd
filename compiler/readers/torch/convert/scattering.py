"""Writing elements by index."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import BOOL, I64
from ...writing.ordered_updates import update_in_order
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use
from .indexing import columns_of, cut, indices_of, is_adjacent, to_front

_COMBINE = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}
_COMBINE_TRUTH = {"prod": "logical_and", "amax": "logical_or", "amin": "logical_and"}


def _rows(use: Use, x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Returns the coordinates of each update, [..., rank]: the index along `axis`, and the position of the update along
    all other axes."""
    g = use.g
    columns = []
    for number in range(x.rank):
        if number == axis:
            columns.append(index)
            continue
        line = g.iota(shape=(index.shape[number],))
        shape = (*(1,) * number, index.shape[number], *(1,) * (x.rank - number - 1))
        columns.append(g.broadcast_to(g.reshape(line, shape=shape), shape=index.shape))
    return g.stack(*columns, axis=-1)


def _operands(use: Use, name: str) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns the target, indices, updates of the shape of the indices, and the axis; scalars become vectors."""
    g = use.g
    x, index, updates = use.tensor(), use.to(use.tensor("index"), I64), use.cast(name, use.dtype)
    vector = [t if t.rank else g.reshape(t, shape=(1,)) for t in (x, index)]
    if name == "value":
        updates = g.broadcast_to(updates, shape=vector[1].shape)
    else:
        updates = updates if updates.rank else g.reshape(updates, shape=(1,))
        updates = cut(use, updates, vector[1].shape, -1)
    return vector[0], vector[1], updates, use.axis(rank=vector[0].rank)


def _scatter(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, index, updates, axis = _operands(use, name)
        if index.type.elements == 0:
            return [use.tensor()]
        if _covers(x, index, axis):
            return [_shaped(use, use.g.scatter(x, index, updates, axis=axis))]
        return [_shaped(use, use.g.scatter_nd(x, _rows(use, x, index, axis), updates))]

    return convert


def _covers(x: Tensor, index: Tensor, axis: int) -> bool:
    """Returns whether there are indices for every position along the other axes."""
    return all(number == axis or x.shape[number] == index.shape[number] for number in range(x.rank))


def _shaped(use: Use, made: Tensor) -> Tensor:
    return made if made.shape == use.shape else use.g.reshape(made, shape=use.shape)


def _scatter_add(use: Use) -> Sequence[Tensor]:
    x, index, updates, axis = _operands(use, "src")
    if index.type.elements == 0:
        return [use.tensor()]
    if x.dtype != BOOL and _covers(x, index, axis):
        return [_shaped(use, use.g.scatter_add(x, index, updates, axis=axis))]
    return [_shaped(use, _added(use, x, _rows(use, x, index, axis), updates))]


def _added(use: Use, x: Tensor, rows: Tensor, updates: Tensor) -> Tensor:
    g = use.g
    if x.dtype == BOOL:
        total = g.scatter_nd_add(g.cast(x, dtype=I64), rows, g.cast(updates, dtype=I64))
        return g.not_equal(total, g.like(0, total))
    return g.scatter_nd_add(x, rows, updates)


def _scatter_reduce(use: Use) -> Sequence[Tensor]:
    g, reduce = use.g, use.word("reduce")
    x, index, updates, axis = _operands(use, "src")
    if index.type.elements == 0:
        return [use.tensor()]
    rows = _rows(use, x, index, axis)
    ones = g.broadcast_to(g.scalar(1, I64), shape=index.shape)
    zeros = g.broadcast_to(g.scalar(0, I64), shape=x.shape)
    count = g.scatter_nd_add(zeros, rows, ones)
    start = x
    if not use.flag("include_self"):
        # Without `include_self`, positions with an update start from the neutral element; others keep their element.
        first = g.scatter_nd(x, rows, updates)
        neutral = {"sum": g.like(0, x), "mean": g.like(0, x), "prod": g.like(1, x)}.get(reduce, first)
        start = g.where(g.equal(count, known(0)), x, neutral)
    else:
        count = g.add(count, known(1))
    if reduce in ("sum", "mean"):
        total = _added(use, start, rows, updates)
    else:
        operator = (_COMBINE_TRUTH if x.dtype == BOOL else _COMBINE)[reduce]
        total = update_in_order(g, start, rows, updates, lambda old, new: g.apply(operator, [old, new], {})[0])
    if reduce == "mean":
        divisor = g.cast(g.maximum(count, known(1)), dtype=x.dtype)
        total = g.divide(total, divisor) if x.dtype.is_float else g.floor_divide(total, divisor)
    return [_shaped(use, total)]


def _index_put(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    values = use.cast("values", use.dtype)
    given = use.arguments["indices"]
    masks = [each for each in given if each is not None and each.dtype == BOOL]
    if len(given) == len(masks) == 1 and values.type.elements == 1 and not use.flag("accumulate"):
        mask = g.reshape(masks[0], shape=(*masks[0].shape, *(1,) * (x.rank - masks[0].rank)))
        return [g.where(mask, g.reshape(values, shape=()), x)]
    pairs = indices_of(use, "indices", x)
    if not pairs:
        return [g.broadcast_to(values, shape=x.shape)]
    axes = [axis for axis, _ in pairs]
    rows = columns_of(use, [index for _, index in pairs])
    front = to_front(use, x, axes)
    shape = (*rows.shape[:-1], *front.shape[len(axes) :])
    # In the values, the axes of the indices replace the indexed axes; they come first if the latter are not adjacent.
    between = is_adjacent(axes) and axes[0] > 0
    if between:
        count, before = rows.rank - 1, axes[0]
        natural = (*shape[count : count + before], *shape[:count], *shape[count + before :])
        values = values if values.shape == natural else g.broadcast_to(values, shape=natural)
        order = (*range(before, before + count), *range(before), *range(before + count, len(natural)))
        values = g.transpose(values, axes=order)
    else:
        values = values if values.shape == shape else g.broadcast_to(values, shape=shape)
    made = _added(use, front, rows, values) if use.flag("accumulate") else g.scatter_nd(front, rows, values)
    front_order = [*axes, *(axis for axis in range(x.rank) if axis not in axes)]
    if front_order == list(range(x.rank)):
        return [made]
    return [g.transpose(made, axes=tuple(front_order.index(axis) for axis in range(x.rank)))]


def _filled(use: Use) -> Sequence[Tensor]:
    """index_fill: writes one number at the given positions of an axis."""
    x, g, axis = use.tensor(), use.g, use.axis()
    if not x.rank:
        return [use.cast("value", use.dtype)]
    index = use.to(use.tensor("index"), I64)
    index = index if index.rank else g.reshape(index, shape=(1,))
    size = g.size(x.shape[axis])
    normal = g.where(g.less(index, known(0)), g.add(index, size), index)
    hits = g.any(g.equal(g.reshape(g.iota(shape=(x.shape[axis],)), shape=(x.shape[axis], 1)), normal), axis=(1,))
    here = g.reshape(hits, shape=(x.shape[axis], *(1,) * (x.rank - axis - 1)))
    return [g.where(here, use.cast("value", use.dtype), x)]


CONVERTERS: Converters = {
    "scatter.src": _scatter("src"),
    "scatter.value": _scatter("value"),
    "scatter_add.default": _scatter_add,
    "scatter_reduce.two": _scatter_reduce,
    "index_put.default": _index_put,
    "index_fill.int_Scalar": _filled,
}
