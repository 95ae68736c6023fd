"""Sorting: sort, argsort, top_k. Equal elements keep their order; NaN counts as greater than every number.

`support/row_order` implements the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import minimum
from ..emitter import Emitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import COMPUTED, I64, TensorType
from .support.accumulate import Numbers, widen
from .support.arguments import read_size
from .support.common import normalize_axis, same_type
from .support.row_order import order_rows


def _order(x: Numbers, axis: int, descending: bool) -> Numbers:
    keys = widen(x)
    if not descending:
        return np.argsort(keys, axis, kind="stable")
    # Reversed twice, so that equal elements keep their order.
    backward = np.argsort(np.flip(keys, axis), axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(backward, axis))


def _infer_sort(name: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axis(attributes["axis"], types[0].rank, name)
    return same_type(types, attributes)


def _lower_sort(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType], *, want_indices: bool
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "sort")
    descending: bool = attributes["descending"]
    size = x.type.shape[axis]
    return order_rows(e, x, axis, descending, size, with_values=not want_indices, with_indices=want_indices)


def _differentiate_sort(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    positions = b.argsort(x, **use.attributes)
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    return [b.scatter(zeros, positions, use.gradient, axis=use.attributes["axis"], mode="clamp")]


_CASES = (
    Case(((7,),)),
    Case(((5, 6),), {"axis": 0}),
    Case(((2, 33),), {"descending": True}),
    Case(((2, 5, 3),), {"axis": 1, "descending": True}),
    Case(((1,),)),
    Case(((0,),)),
    Case(((3, 0),)),
    Case(((0, 4),)),
    Case(((9,),), arrays={0: np.asarray([3, 1, 3, 2, 1, 1, 3, 0, 2], np.int64)}, dtypes=(I64,)),
)
_ATTRIBUTES = (AttributeSpec("axis", "axis", -1), AttributeSpec("descending", "bool", False))

sort = Operator(
    name="sort",
    summary="x sorted along an axis; NaN is the greatest element",
    operands=(Operand("x", COMPUTED),),
    attributes=_ATTRIBUTES,
    infer=lambda types, attributes: _infer_sort("sort", types, attributes),
    reference=lambda x, axis, descending: np.take_along_axis(x, _order(x, axis, descending), axis),
    gradient=_differentiate_sort,
    lower=lambda e, operands, attributes, types: _lower_sort(e, operands, attributes, types, want_indices=False),
    cases=_CASES,
    properties=frozenset({"idempotent", "sequential", "exact"}),
)

argsort = Operator(
    name="argsort",
    summary="the i64 indices that sort x along an axis; the sort is stable",
    operands=(Operand("x", COMPUTED),),
    attributes=_ATTRIBUTES,
    infer=lambda types, attributes: (_infer_sort("argsort", types, attributes)[0].with_dtype(I64),),
    reference=lambda x, axis, descending: _order(x, axis, descending).astype(np.int64),
    gradient=None,
    lower=lambda e, operands, attributes, types: _lower_sort(e, operands, attributes, types, want_indices=True),
    cases=_CASES,
    properties=frozenset({"sequential"}),
)


def infer_top(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    axis = normalize_axis(attributes["axis"], x.rank, "top_k")
    count = read_size("top_k", "k", attributes["k"])
    size = x.shape[axis]
    if isinstance(count, int) and isinstance(size, int) and count > size:
        raise InferenceError("bad-attribute", f"`top_k` cannot take {count} of {size} elements")
    shape = (*x.shape[:axis], minimum(count, size), *x.shape[axis + 1 :])
    return x.with_shape(shape), TensorType(I64, shape)


def reference_top(x: Numbers, k: int, axis: int, largest: bool) -> tuple[Numbers, Any]:
    order = np.take(_order(x, axis, largest), np.arange(min(k, x.shape[axis])), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def _lower_top(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "top_k")
    return order_rows(e, x, axis, attributes["largest"], types[0].shape[axis], with_values=True, with_indices=True)


def _differentiate_top(b: Builder, use: Use) -> Sequence[Value | None]:
    (x,) = use.inputs
    if use.gradients[0] is None:
        return [None]
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    return [b.scatter(zeros, use.outputs[1], use.gradients[0], axis=use.attributes["axis"], mode="clamp")]


top_k = Operator(
    name="top_k",
    summary="the k largest (or smallest) elements along an axis in order, and their indices; all elements if a "
    "symbolic axis has fewer",
    operands=(Operand("x", COMPUTED),),
    attributes=(AttributeSpec("k", "size"), AttributeSpec("axis", "axis", -1), AttributeSpec("largest", "bool", True)),
    infer=infer_top,
    reference=reference_top,
    gradient=_differentiate_top,
    lower=_lower_top,
    cases=LateCases(
        lambda: (
            Case(((7,),), {"k": 3}),
            Case(((2, 33),), {"k": 1}),
            Case(((2, 33),), {"k": 5, "largest": False}),
            Case(((5, 6),), {"k": 4, "axis": 0}),
            Case(((4,),), {"k": 4}),
            Case(((1,),), {"k": 1}),
            Case(((3,),), {"k": 0}),
            Case(((0, 3),), {"k": 2}),
            Case(((9,),), {"k": 6}, arrays={0: np.asarray([3, 1, 3, 2, 1, 1, 3, 0, 2], np.int64)}, dtypes=(I64,)),
        )
    ),
    results=("values", "indices"),
    properties=frozenset({"sequential", "exact"}),
)

OPERATORS = (sort, argsort, top_k)
