"""Reading by index tensors: gather, take_along_axis, gather_nd, embedding, one_hot.

    gather(x, i, axis=1)             y[a, b, c] = x[a, i[b, c]]        the axis becomes the axes of i
    take_along_axis(x, i, axis=1)    y[a, b] = x[a, i[a, b]]           i has the rank of x
    gather_nd(x, i)                  y[a] = x[i[a, 0], i[a, 1]]        the last axis of i is an index into several axes
    embedding(w, i)                  y[a, b] = w[i[a], b]

A negative index counts from the end. `mode` selects the behaviour for an index out of range: see
`support/index_modes.py`. `one_hot` reads nothing: by default, a row for an index out of range has no 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ..dims import Shape, Size
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, broadcast_map, loop
from ..graph import Value
from ..operator import (
    Addressing,
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Operand,
    Operator,
    Use,
)
from ..types import ANY, BOOL, F32, I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.arguments import read_size
from .support.common import broadcast_shapes, normalize_axis, size_as, sum_to
from .support.index_modes import (
    NONNEGATIVE,
    OTHER_MODES,
    SIGNED_MODE,
    are_inside_array,
    clamped,
    clamped_array,
    index_operand,
    load_by_mode,
)

_MOVEMENT = frozenset({"movement"})


def zeros_like(b: Builder, x: Value, shape: Shape | None = None) -> Value:
    return b.full(shape=x.type.shape if shape is None else shape, value=0.0, dtype=x.type.dtype)


def _taken(x: Numbers, index: Numbers, axis: int) -> Numbers:
    """Returns the elements at indices that are in range, or zeros if the tensor is empty."""
    if x.shape[axis] == 0:
        return np.zeros((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    return np.asarray(np.take(x, index, axis))


def _infer_gather(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = types
    axis = normalize_axis(attributes["axis"], x.rank, "gather")
    return (x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _reference_gather(x: Numbers, indices: Numbers, axis: int, mode: str = "error") -> Numbers:
    axis = normalize_axis(axis, x.ndim, "gather")
    taken = _taken(x, clamped_array(indices, x.shape[axis], mode), axis)
    if mode == "drop":
        inside = are_inside_array(indices, x.shape[axis])
        taken[(slice(None),) * axis + (~inside,)] = 0
    return taken


def _lower_gather(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, indices = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "gather")
    inner = indices.type.rank

    def element(s: BodyEmitter, index: Scalar) -> Scalar:
        before = [s.index(i) for i in range(axis)]
        after = [s.index(i) for i in range(axis + inner, types[0].rank)]
        position = clamped(s, index, x.type.shape[axis], attributes["mode"])
        return load_by_mode(s, x, [*before, position, *after], [index], [axis], attributes["mode"])

    return [e.map(types[0], [(indices, tuple(loop(axis + i) for i in range(inner)))], element)]


def _differentiate_gather(b: Builder, use: Use) -> Sequence[Value | None]:
    x, indices = use.inputs
    axis = normalize_axis(use.attributes.get("axis", 0), x.type.rank, "gather")
    flat = b.reshape(indices, shape=(*(1,) * axis, indices.type.elements, *(1,) * (x.type.rank - axis - 1)))
    shape = (*x.type.shape[:axis], indices.type.elements, *x.type.shape[axis + 1 :])
    updates = b.reshape(use.gradient, shape=shape)
    return [b.scatter_add(zeros_like(b, x), flat, updates, axis=axis, mode=use.attributes["mode"]), None]


def addresses_axis(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    """Returns the indices that address one axis, the first if there is no attribute `axis`."""
    from_end = attributes.get("mode") != NONNEGATIVE
    return (Addressing(1, (types[0].shape[attributes.get("axis", 0)],), from_end=from_end),)


def addresses_rows(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    """Returns the indices whose last axis addresses the leading axes."""
    depth = types[1].shape[-1]
    assert isinstance(depth, int), types
    return (Addressing(1, types[0].shape[:depth], from_end=attributes.get("mode") != NONNEGATIVE),)


def _is_inside(b: Builder, indices: Value, size: Size) -> Value:
    indices, zero, end = b.cast(indices, dtype=I64), b.scalar(0, I64), size_as(b, size, I64)
    from_start = b.where(b.less(indices, zero), b.add(indices, end), indices)
    return b.logical_and(b.greater_equal(from_start, zero), b.less(from_start, end))


def _inside_slices(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Value:
    x, indices = operands
    axis = normalize_axis(attributes.get("axis", 0), x.type.rank, "gather")
    inside = _is_inside(b, indices, x.type.shape[axis])
    return b.reshape(inside, shape=(*indices.type.shape, *(1,) * (x.type.rank - axis - 1)))


def _inside_along(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Value:
    x, indices = operands
    return _is_inside(b, indices, x.type.shape[attributes["axis"]])


def _inside_rows(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Value:
    x, indices = operands
    depth = indices.type.shape[-1]
    assert isinstance(depth, int), indices
    columns = (b.gather(indices, b.scalar(i, I64), axis=-1, mode="clamp") for i in range(depth))
    inside = reduce(b.logical_and, (_is_inside(b, c, n) for c, n in zip(columns, x.type.shape, strict=False)))
    return b.reshape(inside, shape=(*indices.type.shape[:-1], *(1,) * (x.type.rank - depth)))


def _indices(*values: int, shape: tuple[int, ...] | None = None) -> dict[int, Numbers]:
    array = np.asarray(values, np.int64)
    return {1: array if shape is None else array.reshape(shape)}


gather = Operator(
    name="gather",
    summary="slices of x along an axis, selected by `indices`; the axes of `indices` replace this axis; "
    "a negative index counts from the end",
    operands=(Operand("x", ANY), index_operand()),
    attributes=(AttributeSpec("axis", "axis", 0), SIGNED_MODE),
    infer=_infer_gather,
    reference=_reference_gather,
    gradient=_differentiate_gather,
    lower=_lower_gather,
    addresses=addresses_axis,
    inside=_inside_slices,
    cases=LateCases(
        lambda: (
            Case(((5, 3), (4,)), arrays=_indices(0, 4, 2, 2)),
            Case(((2, 5, 3), (2, 2)), {"axis": 1}, arrays=_indices(-1, -5, 4, 0, shape=(2, 2))),
            *(
                Case(((2, 5, 3), (2, 2)), {"axis": 1, "mode": mode}, arrays=_indices(-1, -6, 5, -9, shape=(2, 2)))
                for mode in OTHER_MODES
            ),
            Case(((2, 3), ()), {"axis": -1}, arrays=_indices(2, shape=())),
            Case(((3,), ()), {"mode": "drop"}, arrays=_indices(4, shape=())),
            Case(((4, 2), (0,)), arrays=_indices()),
            Case(((1,), (3,)), arrays={1: np.asarray([0, -1, 0], np.int32)}),
        )
    ),
    properties=_MOVEMENT | {"gathering"},
)


def _along_shape(name: str, x: TensorType, indices: TensorType, axis: int) -> Shape:
    """Returns the shape of elements taken along an axis: that of the indices, with other axes broadcast."""
    if x.rank != indices.rank:
        raise InferenceError("rank-mismatch", f"`{name}` needs indices of the rank of {x}, not {indices}", operand=1)
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return broadcast_shapes([one, indices.shape], name)


def _infer_along(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = types
    axis = normalize_axis(attributes["axis"], x.rank, "take_along_axis")
    return (x.with_shape(_along_shape("take_along_axis", x, indices, axis)),)


def _reference_along(x: Numbers, indices: Numbers, axis: int, mode: str = "error") -> Numbers:
    axis = normalize_axis(axis, x.ndim, "take_along_axis")
    outer = np.broadcast_shapes((*x.shape[:axis], 1, *x.shape[axis + 1 :]), indices.shape)
    position = np.broadcast_to(clamped_array(indices, x.shape[axis], mode), outer)
    if x.shape[axis] == 0:
        return np.zeros(outer, x.dtype)
    wide = np.broadcast_to(x, (*outer[:axis], x.shape[axis], *outer[axis + 1 :]))
    taken = np.take_along_axis(wide, position, axis)
    if mode == "drop":
        taken[~np.broadcast_to(are_inside_array(indices, x.shape[axis]), outer)] = 0
    return taken


def _lower_along(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, indices = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "take_along_axis")
    result = types[0].shape

    def element(s: BodyEmitter, index: Scalar) -> Scalar:
        positions = [
            s.constant(0, I64) if size == 1 and result[i] != 1 else s.index(i) for i, size in enumerate(x.type.shape)
        ]
        positions[axis] = clamped(s, index, x.type.shape[axis], attributes["mode"])
        return load_by_mode(s, x, positions, [index], [axis], attributes["mode"])

    return [e.map(types[0], [(indices, broadcast_map(indices.type.shape, result))], element)]


def _differentiate_along(b: Builder, use: Use) -> Sequence[Value | None]:
    x, indices = use.inputs
    axis = normalize_axis(use.attributes["axis"], x.type.rank, "take_along_axis")
    g = use.gradient
    shape = (*g.type.shape[:axis], x.type.shape[axis], *g.type.shape[axis + 1 :])
    total = b.scatter_add(zeros_like(b, x, shape), indices, g, axis=axis, mode=use.attributes["mode"])
    return [sum_to(b, total, x.type.shape), None]


take_along_axis = Operator(
    name="take_along_axis",
    summary="one element of x along an axis per index; the other axes of x and `indices` broadcast; "
    "a negative index counts from the end",
    operands=(Operand("x", ANY), index_operand()),
    attributes=(AttributeSpec("axis", "axis", -1), SIGNED_MODE),
    infer=_infer_along,
    reference=_reference_along,
    gradient=_differentiate_along,
    lower=_lower_along,
    addresses=addresses_axis,
    inside=_inside_along,
    cases=LateCases(
        lambda: (
            Case(((3, 5), (3, 2)), arrays=_indices(0, 4, 2, 2, -1, -5, shape=(3, 2))),
            *(
                Case(
                    ((3, 5), (2, 5)),
                    {"axis": 0, "mode": mode},
                    arrays=_indices(0, 1, 2, -1, -2, 2, 1, 0, 5, -9, shape=(2, 5)),
                )
                for mode in OTHER_MODES
            ),
            Case(((3, 1, 5), (1, 2, 1)), arrays=_indices(4, -2, shape=(1, 2, 1))),
            Case(((2, 3), (2, 0)), arrays=_indices(shape=(2, 0))),
            Case(((0, 3), (0, 1)), arrays=_indices(shape=(0, 1))),
        )
    ),
    properties=_MOVEMENT,
)


def index_depth(name: str, x: TensorType, indices: TensorType) -> int:
    """Returns the number of leading axes of x that a row of indices addresses."""
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 1 <= depth <= x.rank:
        raise InferenceError(
            "shape-mismatch",
            f"`{name}` needs indices whose last axis has between 1 and {x.rank} elements, not {indices}",
            operand=1,
        )
    return depth


def indices_nd(x: Numbers, indices: Numbers, mode: str) -> tuple[Numbers, ...]:
    return tuple(clamped_array(indices[..., i], x.shape[i], mode) for i in range(indices.shape[-1]))


def _infer_nd(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = types
    depth = index_depth("gather_nd", x, indices)
    return (x.with_shape((*indices.shape[:-1], *x.shape[depth:])),)


def are_rows_inside(x: Numbers, indices: Numbers) -> Numbers:
    """Returns a mask of the rows of indices that are in range."""
    each = [are_inside_array(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])]
    return np.asarray(np.logical_and.reduce(each))


def _reference_nd(x: Numbers, indices: Numbers, mode: str = "error") -> Numbers:
    depth = indices.shape[-1]
    if 0 in x.shape[:depth]:
        return np.zeros((*indices.shape[:-1], *x.shape[depth:]), x.dtype)
    taken = np.array(x[indices_nd(x, indices, mode)])
    if mode == "drop":
        taken[~are_rows_inside(x, indices)] = 0
    return taken


def _lower_nd(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, indices = operands
    depth = index_depth("gather_nd", x.type, indices.type)
    outer = indices.type.rank - 1

    def element(s: BodyEmitter) -> Scalar:
        row = [s.index(i) for i in range(outer)]
        read = [s.load(indices, [*row, s.constant(i, I64)]) for i in range(depth)]
        positions = [clamped(s, index, x.type.shape[i], attributes["mode"]) for i, index in enumerate(read)]
        positions += (s.index(i) for i in range(outer, types[0].rank))
        return load_by_mode(s, x, positions, read, range(depth), attributes["mode"])

    return [e.map(types[0], [], element)]


gather_nd = Operator(
    name="gather_nd",
    summary="slices of x addressed by the rows of `indices`; a row has one index per leading axis; "
    "a negative index counts from the end",
    operands=(Operand("x", ANY), index_operand()),
    attributes=(SIGNED_MODE,),
    infer=_infer_nd,
    reference=_reference_nd,
    gradient=lambda b, use: [
        b.scatter_nd_add(zeros_like(b, use.inputs[0]), use.inputs[1], use.gradient, mode=use.attributes["mode"]),
        None,
    ],
    lower=_lower_nd,
    addresses=addresses_rows,
    inside=_inside_rows,
    cases=LateCases(
        lambda: (
            Case(((3, 4), (2, 2)), arrays=_indices(0, 1, -1, 3, shape=(2, 2))),
            *(
                Case(((3, 4), (3, 2)), {"mode": m}, arrays=_indices(0, 1, -1, 9, -4, 3, shape=(3, 2)))
                for m in OTHER_MODES
            ),
            Case(((3, 4, 2), (2, 2, 1)), {"mode": "drop"}, arrays=_indices(0, 2, 2, -4, shape=(2, 2, 1))),
            Case(((3, 4), (0, 2)), arrays=_indices(shape=(0, 2))),
            Case(((3,), (1,)), arrays=_indices(2)),
            Case(((3,), (1,)), {"mode": "drop"}, arrays=_indices(3)),
        )
    ),
    properties=_MOVEMENT,
)


def _infer_embedding(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    table, ids = types
    if table.rank != 2:
        raise InferenceError("rank-mismatch", f"the table of `embedding` has two axes, not {table}", operand=0)
    return (table.with_shape((*ids.shape, table.shape[1])),)


embedding = Operator(
    name="embedding",
    summary="rows of a table, selected by `ids`; a negative id counts from the end",
    operands=(Operand("table", ANY), index_operand("ids")),
    attributes=(SIGNED_MODE,),
    infer=_infer_embedding,
    reference=lambda table, ids, mode="error": _reference_gather(table, ids, 0, mode),
    gradient=_differentiate_gather,
    decompose=lambda b, operands, attributes: [b.gather(*operands, axis=0, mode=attributes["mode"])],
    addresses=addresses_axis,
    inside=_inside_slices,
    cases=LateCases(
        lambda: (
            Case(((7, 3), (2, 4)), arrays=_indices(0, 6, 3, 3, -1, -7, 5, 2, shape=(2, 4))),
            *(
                Case(((7, 3), (2, 4)), {"mode": mode}, arrays=_indices(0, 6, 3, 3, -1, 7, -8, 2, shape=(2, 4)))
                for mode in OTHER_MODES
            ),
            Case(((1, 1), (1,)), arrays=_indices(0)),
            Case(((4, 0), (2,)), arrays=_indices(1, 2)),
            Case(((4, 2), (3, 0)), arrays=_indices(shape=(3, 0))),
        )
    ),
    properties=_MOVEMENT | {"gathering"},
)


def _infer_one_hot(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    return (TensorType(attributes["dtype"], (*types[0].shape, read_size("one_hot", "depth", attributes["depth"]))),)


def _reference_one_hot(
    ids: Numbers, depth: int, dtype: DType, mode: str = "drop", ignored: int | None = None
) -> Numbers:
    wide = ids.astype(np.int64)
    position = np.where(wide < 0, wide + depth, wide) if mode == "drop" else wide
    hot = position[..., None] == np.arange(depth)
    return np.asarray(hot if ignored is None else hot & (wide != ignored)[..., None]).astype(dtype.numpy)


def _decompose_one_hot(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    ids = operands[0] if operands[0].type.dtype is I64 else b.cast(operands[0], dtype=I64)
    depth, drops, ignored = attributes["depth"], attributes["mode"] == "drop", attributes["ignored"]
    position = ids
    if drops:
        position = b.where(b.less(ids, b.like(0, ids)), b.add(ids, b.size_value(size=depth)), ids)
    hot = b.equal(b.unsqueeze(position, axes=-1), b.iota(shape=(depth,)))
    if ignored is not None and (drops or ignored >= 0):
        hot = b.logical_and(hot, b.unsqueeze(b.not_equal(ids, b.like(ignored, ids)), axes=-1))
    return [hot if attributes["dtype"] is BOOL else b.cast(hot, dtype=attributes["dtype"])]


one_hot = Operator(
    name="one_hot",
    summary="a new last axis of `depth` elements with 1 at the index and 0 elsewhere; without a 1 for an id equal to "
    "`ignored`; with the mode `drop`, a negative index counts from the end, and an index out of range has no 1; with "
    "the mode `error`, any other index than 0 to `depth` - 1 fails the call",
    operands=(index_operand("ids"),),
    attributes=(
        AttributeSpec("depth", "size"),
        AttributeSpec("dtype", "dtype", F32),
        # After a check, no index is out of range.
        AttributeSpec("mode", "str", "drop", choices=("error", "drop"), internal=("clamp",)),
        AttributeSpec("ignored", "int?", None),
    ),
    infer=_infer_one_hot,
    reference=_reference_one_hot,
    gradient=None,
    decompose=_decompose_one_hot,
    addresses=lambda types, attributes: (
        Addressing(0, (attributes["depth"],), ignored=attributes["ignored"], from_end=False),
    ),
    cases=LateCases(
        lambda: tuple(
            Case((array.shape,), attributes, arrays={0: array}, dtypes=(I32 if array.dtype == np.int32 else I64,))
            for array, attributes in (
                (np.asarray([[0, 2, -1], [5, -4, 1]], np.int64), {"depth": 3}),
                (np.asarray([[0, 2, -1], [5, -4, 1]], np.int32), {"depth": 3, "ignored": -1}),
                (np.asarray([0, 2, -100, 1], np.int64), {"depth": 3, "mode": "error", "ignored": -100}),
                (np.asarray([0, 2, 1], np.int32), {"depth": 3, "mode": "error", "ignored": 2, "dtype": BOOL}),
                (np.asarray([1], np.int64), {"depth": 0}),
                (np.asarray([], np.int64), {"depth": 4, "dtype": I64}),
                (np.asarray(1, np.int64), {"depth": 2, "dtype": ANY[0]}),
            )
        )
    ),
    properties=frozenset({"composite"}),
)

OPERATORS = (gather, take_along_axis, gather_nd, embedding, one_hot)
