"""Writing by index tensors: scatter, scatter_add, scatter_nd, scatter_nd_add.

Updates are applied one after another in row-major order: the last write to a position wins, and sums have one order.
With zeros for x, the indices 1 3 1 and the updates 5 6 7:

    scatter        0  7  0  6
    scatter_add    0 12  0  6

Indices count as those of `gather` do, and have its modes. No write goes outside of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..dims import Size, at_least, minimum
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import ANY, I64, NUMBERS, DType, TensorType
from .indexing import addresses_axis, addresses_rows, are_rows_inside, index_depth, indices_nd, zeros_like
from .support.accumulate import Numbers
from .support.common import format_shape, normalize_axis
from .support.index_modes import (
    OTHER_MODES,
    SIGNED_MODE,
    are_inside,
    are_inside_array,
    clamped,
    clamped_array,
    index_operand,
)

_WRITES = frozenset({"sequential", "overwriting"})
Position = Callable[[SequenceEmitter, Sequence[Scalar]], tuple[Sequence[Scalar], Sequence[Scalar]]]
"""A function that returns the target position of an update, and the index for each addressed axis."""


def _write_updates(
    e: Emitter, x: Tensor, updates: Tensor, position: Position, addressed: Sequence[int], mode: str, *, add: bool
) -> Sequence[Tensor]:
    """Writes the updates in order; none if an addressed axis is empty."""
    return write_values(e, x, updates.type.shape, updates, position, addressed, mode, add=add)


def write_values(
    e: Emitter,
    x: Tensor,
    shape: Sequence[Size],
    updates: Tensor | None,
    position: Position,
    addressed: Sequence[int],
    mode: str,
    *,
    add: bool,
) -> Sequence[Tensor]:
    """Writes updates of this shape; without a tensor of them, each is 1."""
    doubtful = [x.type.shape[a] for a in addressed if not at_least(x.type.shape[a], 1)]
    guards: list[Size] = [minimum(size, 1) for size in doubtful]
    if not shape and not guards:
        guards = [1]  # the tiler leaves a kernel of loops as it is

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        inner = indices[len(guards) :]
        positions, given = position(s, inner)
        value = s.constant(1, x.type.dtype) if updates is None else s.load(updates, inner)
        if add:
            value = s.binary("add", s.load(tensors[0], positions), value)
        if mode == "drop":
            # An update out of range writes back the existing element.
            inside = are_inside(s, given, [x.type.shape[axis] for axis in addressed])
            value = s.select(inside, value, s.load(tensors[0], positions))
        return [s.store(tensors[0], positions, value)]

    return e.scan([*guards, *shape], [x], write)


def _infer(name: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices, updates = types
    axis = normalize_axis(attributes["axis"], x.rank, name)
    expected = (*x.shape[:axis], *updates.shape[axis : axis + 1], *x.shape[axis + 1 :])
    if updates.shape != expected:
        raise InferenceError(
            "shape-mismatch",
            f"the updates of `{name}` differ from {x} in axis {axis} alone, not {updates}",
            operand=2,
        )
    if indices.rank != updates.rank or any(
        size not in (1, other) for size, other in zip(indices.shape, updates.shape, strict=True)
    ):
        message = f"the indices {indices} of `{name}` do not broadcast to {updates}"
        help_text = ""
        if indices.rank == 1 and indices.shape == updates.shape[axis : axis + 1]:
            after = updates.rank - 1 - axis
            help_text = f"`indices[:{', None' * after}]` has an index for each slice of the updates"
        raise InferenceError("shape-mismatch", message, operand=1, help=help_text)
    return (x,)


def _reference(x: Numbers, indices: Numbers, updates: Numbers, axis: int, mode: str, *, add: bool) -> Numbers:
    result = x.copy()
    axis = normalize_axis(axis, x.ndim, "scatter")
    if x.shape[axis] == 0:
        return result
    grid: list[Numbers] = list(np.indices(updates.shape))
    grid[axis] = np.broadcast_to(clamped_array(indices, x.shape[axis], mode), updates.shape)
    if mode == "drop":
        inside = np.broadcast_to(are_inside_array(indices, x.shape[axis]), updates.shape)
        grid, updates = [g[inside] for g in grid], updates[inside]
    _write(result, tuple(grid), updates, add=add)
    return result


def _write(result: Numbers, positions: tuple[Numbers, ...], updates: Numbers, *, add: bool) -> None:
    if add:
        np.add.at(result, positions, updates)
    else:
        # For repeated positions, numpy keeps the last value.
        result[positions] = updates


def _lower(name: str, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, *, add: bool) -> Sequence[Tensor]:
    x, indices, updates = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, name)

    def position(s: SequenceEmitter, inner: Sequence[Scalar]) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
        repeated = [
            size == 1 and other != 1 for size, other in zip(indices.type.shape, updates.type.shape, strict=True)
        ]
        read = [s.constant(0, I64) if one else i for one, i in zip(repeated, inner, strict=True)]
        index = s.load(indices, read)
        return [*inner[:axis], clamped(s, index, x.type.shape[axis], attributes["mode"]), *inner[axis + 1 :]], [index]

    return _write_updates(e, x, updates, position, [axis], attributes["mode"], add=add)


def _last_writes(b: Builder, updates: Value, write: Callable[[Value], Value], read: Callable[[Value], Value]) -> Value:
    """Returns a mask of the last update of each element: each update writes its number, and the last one reads its own
    back."""
    numbers = b.reshape(b.iota(shape=(updates.type.elements,)), shape=updates.type.shape)
    return b.equal(read(write(numbers)), numbers)


def _differentiate_set(b: Builder, use: Use) -> Sequence[Value | None]:
    x, indices, updates = use.inputs
    where = {"axis": use.attributes["axis"], "mode": use.attributes["mode"]}
    if indices.type.shape != updates.type.shape:
        indices = b.broadcast_to(indices, shape=updates.type.shape)
    nobody = b.full(shape=x.type.shape, value=-1, dtype=I64)
    stays = _last_writes(
        b,
        updates,
        lambda numbers: b.scatter(nobody, indices, numbers, **where),
        lambda written: b.take_along_axis(written, indices, **where),
    )
    kept = b.scatter(use.gradient, indices, zeros_like(b, updates), **where)
    read = b.take_along_axis(use.gradient, indices, **where)
    return [kept, None, b.where(stays, read, b.like(0, read))]


def _differentiate_add(b: Builder, use: Use) -> Sequence[Value | None]:
    _, indices, updates = use.inputs
    if indices.type.shape != updates.type.shape:
        indices = b.broadcast_to(indices, shape=updates.type.shape)
    return [use.gradient, None, b.take_along_axis(use.gradient, indices, **use.attributes)]


def _indices(*values: int, shape: tuple[int, ...]) -> dict[int, Numbers]:
    return {1: np.asarray(values, np.int64).reshape(shape)}


_CASES = (
    Case(((3, 5), (3, 2), (3, 2)), {"axis": 1}, arrays=_indices(0, 4, 2, 2, -1, -5, shape=(3, 2))),
    Case(((4, 2), (3, 1), (3, 2)), {"axis": 0}, arrays=_indices(1, -1, 1, shape=(3, 1))),
    Case(((2, 3, 2), (1, 2, 1), (2, 2, 2)), {"axis": -2}, arrays=_indices(2, -3, shape=(1, 2, 1))),
    Case(((3,), (0,), (0,)), arrays=_indices(shape=(0,))),
    Case(((0, 3), (0, 1), (0, 1)), {"axis": 1}, arrays=_indices(shape=(0, 1))),
    *(
        Case(((3, 5), (3, 2), (3, 2)), {"axis": 1, "mode": mode}, arrays=_indices(0, 4, -6, 4, 4, 9, shape=(3, 2)))
        for mode in OTHER_MODES
    ),
    *(
        Case(((2, 3, 2), (1, 2, 1), (2, 2, 2)), {"axis": -2, "mode": mode}, arrays=_indices(2, -9, shape=(1, 2, 1)))
        for mode in OTHER_MODES
    ),
)


def _scatter(name: str, summary: str, dtypes: tuple[DType, ...], *, add: bool) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes), index_operand(), Operand("updates", dtypes)),
        attributes=(AttributeSpec("axis", "axis", 0), SIGNED_MODE),
        infer=lambda types, attributes: _infer(name, types, attributes),
        reference=lambda x, indices, updates, axis, mode="error": _reference(x, indices, updates, axis, mode, add=add),
        gradient=_differentiate_add if add else _differentiate_set,
        lower=lambda e, operands, attributes, types: _lower(name, e, operands, attributes, add=add),
        addresses=addresses_axis,
        cases=_CASES,
        properties=_WRITES | {"summing" if add else "movement"},
    )


def _infer_nd(name: str, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    x, indices, updates = types
    depth = index_depth(name, x, indices)
    expected = (*indices.shape[:-1], *x.shape[depth:])
    if updates.shape != expected:
        raise InferenceError(
            "shape-mismatch", f"the updates of `{name}` have shape {format_shape(expected)}, not {updates}", operand=2
        )
    return (x,)


def _reference_nd(x: Numbers, indices: Numbers, updates: Numbers, mode: str, *, add: bool) -> Numbers:
    result = x.copy()
    depth = indices.shape[-1]
    if 0 in x.shape[:depth] or updates.size == 0:
        return result
    if mode == "drop":
        inside = are_rows_inside(x, indices)
        indices, updates = indices[inside], updates[inside]
    _write(result, indices_nd(x, indices, mode), updates, add=add)
    return result


def _lower_nd(name: str, e: Emitter, operands: Sequence[Tensor], mode: str, *, add: bool) -> Sequence[Tensor]:
    x, indices, updates = operands
    depth = index_depth(name, x.type, indices.type)
    outer = indices.type.rank - 1

    def position(s: SequenceEmitter, inner: Sequence[Scalar]) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
        read = [s.load(indices, [*inner[:outer], s.constant(i, I64)]) for i in range(depth)]
        return [*(clamped(s, index, x.type.shape[i], mode) for i, index in enumerate(read)), *inner[outer:]], read

    return _write_updates(e, x, updates, position, range(depth), mode, add=add)


def _differentiate_nd_set(b: Builder, use: Use) -> Sequence[Value | None]:
    x, indices, updates = use.inputs
    mode = use.attributes["mode"]
    nobody = b.full(shape=x.type.shape, value=-1, dtype=I64)
    stays = _last_writes(
        b,
        updates,
        lambda numbers: b.scatter_nd(nobody, indices, numbers, mode=mode),
        lambda written: b.gather_nd(written, indices, mode=mode),
    )
    read = b.gather_nd(use.gradient, indices, mode=mode)
    return [
        b.scatter_nd(use.gradient, indices, zeros_like(b, updates), mode=mode),
        None,
        b.where(stays, read, b.like(0, read)),
    ]


def _differentiate_nd_add(b: Builder, use: Use) -> Sequence[Value | None]:
    return [use.gradient, None, b.gather_nd(use.gradient, use.inputs[1], mode=use.attributes["mode"])]


def _scatter_nd(name: str, summary: str, dtypes: tuple[DType, ...], *, add: bool) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes), index_operand(), Operand("updates", dtypes)),
        attributes=(SIGNED_MODE,),
        infer=lambda types, attributes: _infer_nd(name, types),
        reference=lambda x, indices, updates, mode="error": _reference_nd(x, indices, updates, mode, add=add),
        gradient=_differentiate_nd_add if add else _differentiate_nd_set,
        lower=lambda e, operands, attributes, types: _lower_nd(name, e, operands, attributes["mode"], add=add),
        addresses=addresses_rows,
        cases=LateCases(
            lambda: (
                Case(((3, 4), (3, 2), (3,)), arrays=_indices(0, 1, -1, 3, 0, 1, shape=(3, 2))),
                *(
                    Case(((3, 4), (3, 2), (3,)), {"mode": mode}, arrays=_indices(0, 1, -1, 9, 2, 3, shape=(3, 2)))
                    for mode in OTHER_MODES
                ),
                Case(((3, 4, 2), (2, 2, 1), (2, 2, 4, 2)), arrays=_indices(0, 2, 2, -3, shape=(2, 2, 1))),
                Case(((3, 4), (0, 2), (0,)), arrays=_indices(shape=(0, 2))),
                Case(((3,), (1,), ()), arrays=_indices(2, shape=(1,))),
            )
        ),
        properties=_WRITES | {"summing" if add else "movement"},
    )


OPERATORS = (
    _scatter(
        "scatter",
        "x with `updates` written along an axis at `indices`, which broadcast to the updates",
        ANY,
        add=False,
    ),
    _scatter(
        "scatter_add",
        "x with `updates` added along an axis at `indices`, which broadcast to the updates",
        NUMBERS,
        add=True,
    ),
    _scatter_nd(
        "scatter_nd", "x with `updates` written at the positions addressed by the rows of `indices`", ANY, add=False
    ),
    _scatter_nd(
        "scatter_nd_add",
        "x with `updates` added at the positions addressed by the rows of `indices`",
        NUMBERS,
        add=True,
    ),
)
