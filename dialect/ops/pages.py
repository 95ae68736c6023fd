"""`gather_pages`: rows of successive elements, in pages of one pool that a table names in their order.

    pool of 4 pages of 3        0 1 2 | 3 4 5 | 6 7 8 | 9 10 11
    table [[2, 0], [3, 3]]      6 7 8 0 1 2
                                9 10 11 9 10 11

A kernel of attention reads the pages where they are: see `compiler/codegen/tiler/pages.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size, multiply
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor
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
)
from ..types import ANY, I64, TensorType
from .support.accumulate import Numbers
from .support.index_modes import NONNEGATIVE, PAGE_MODE, clamped, clamped_array, index_operand, load_if_any


def _axis(rank: int, attributes: Attributes) -> int:
    """Returns the axis of the elements of a page, counted from the front; the first axis is that of pages."""
    axis = attributes["axis"]
    if not -rank <= axis < rank or axis % rank == 0:
        raise InferenceError("bad-attribute", f"`gather_pages` finds no elements in axis {axis}", operand=0)
    return int(axis % rank)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, table = types
    if x.rank < 2 or table.rank < 1:
        raise InferenceError(
            "rank-mismatch",
            f"`gather_pages` takes pages [P, ...] of rank 2 and more, and a table [..., M], not {x} and {table}",
            operand=0 if x.rank < 2 else 1,
        )
    axis = _axis(x.rank, attributes)
    inner = (*x.shape[1:axis], multiply(table.shape[-1], x.shape[axis]), *x.shape[axis + 1 :])
    return (x.with_shape((*table.shape[:-1], *inner)),)


def _split(s: BodyEmitter, position: Scalar, width: Size) -> tuple[Scalar, Scalar]:
    """Returns the page of a position, and the position in the page."""
    if isinstance(width, int) and width > 0 and width & (width - 1) == 0:
        shift, rest = s.constant(width.bit_length() - 1, I64), s.constant(width - 1, I64)
        return s.binary("shr", position, shift), s.binary("and", position, rest)
    return s.binary("div", position, s.size(width)), s.binary("rem", position, s.size(width))


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, table = operands
    axis, outer = _axis(x.type.rank, attributes), table.type.rank - 1

    def element(s: BodyEmitter) -> Scalar:
        indices = [s.index(i) for i in range(types[0].rank)]
        number, within = _split(s, indices[outer + axis - 1], x.type.shape[axis])
        page = s.load(table, [*indices[:outer], number])
        inner = indices[outer:]
        inner[axis - 1] = within
        return load_if_any(s, x, [clamped(s, page, x.type.shape[0], attributes["mode"]), *inner], [0])

    return [e.map(types[0], [], element)]


def _reference(x: Numbers, table: Numbers, axis: int, mode: str = "error") -> Numbers:
    axis, outer = axis % x.ndim, table.ndim - 1
    if x.shape[0] == 0:
        taken = np.zeros((*table.shape, *x.shape[1:]), x.dtype)
    else:
        taken = x[clamped_array(table, x.shape[0], mode)]
    taken = np.moveaxis(taken, outer, outer + axis - 1)
    shape = (*taken.shape[: outer + axis - 1], table.shape[-1] * x.shape[axis], *taken.shape[outer + axis + 1 :])
    return np.ascontiguousarray(taken.reshape(shape))


def _as_gather(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, table = operands
    axis, outer = _axis(x.type.rank, attributes), table.type.rank - 1
    taken = b.gather(x, table, axis=0, mode=attributes["mode"])
    order = [i for i in range(taken.type.rank) if i != outer]
    order.insert(outer + axis - 1, outer)
    (result,) = _infer([x.type, table.type], attributes)
    return [b.reshape(b.transpose(taken, axes=tuple(order)), shape=result.shape)]


def _table(*rows: Sequence[int]) -> dict[int, Numbers]:
    return {1: np.asarray(rows, np.int32)}


gather_pages = Operator(
    name="gather_pages",
    summary="rows of elements in pages x [P, ...]: row b holds the pages `table[b, 0]`, `table[b, 1]`, ... in this "
    "order, joined along `axis` of x; the leading axes of `table` replace the first axis of x",
    operands=(Operand("x", ANY), index_operand("table")),
    attributes=(AttributeSpec("axis", "axis", -1), PAGE_MODE),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_as_gather),
    lower=_lower,
    addresses=lambda types, attributes: (
        Addressing(1, (types[0].shape[0],), from_end=attributes.get("mode") != NONNEGATIVE),
    ),
    cases=LateCases(
        lambda: (
            Case(((5, 3, 2, 4),), {"axis": 2}, arrays=_table((4, 0, 4), (1, 2, 3))),
            Case(((3, 2, 2, 2),), arrays=_table((2, 0))),
            Case(((3, 4),), arrays={1: np.asarray([2, -1, 0], np.int64)}),
            Case(((4, 16, 3),), {"axis": 1}, arrays=_table((1, 3), (0, -4), (2, 2))),
            Case(((3, 2, 2),), {"mode": "clamp"}, arrays=_table((7, -9))),
            Case(((2, 0, 3),), {"axis": -2}, arrays=_table((1, 0))),
            Case(((2, 3),), arrays={1: np.zeros((2, 0), np.int32)}),
            Case(((1, 1),), arrays={1: np.zeros((1, 1), np.int32)}),
        )
    ),
    properties=frozenset({"movement", "paged"}),
)

OPERATORS = (gather_pages,)
