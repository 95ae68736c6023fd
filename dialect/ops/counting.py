"""Counts and positions of values: `bincount` and `searchsorted`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import at_least, bounds
from ..emitter import BodyEmitter, Emitter, Scalar, SequenceEmitter, Tensor, identity
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
from ..types import BOOL, COMPUTED, I64, NUMBERS, TensorType
from .scatter import write_values
from .support.accumulate import Numbers
from .support.arguments import read_size
from .support.common import broadcast_shapes
from .support.index_modes import INDICES, MODE, OTHER_MODES, are_inside_array, clamped, clamped_array, index_operand


def _infer_bincount(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, *weights = types
    if x.rank != 1:
        raise InferenceError("rank-mismatch", f"`bincount` counts the elements of a vector, not of {x}", operand=0)
    if weights and weights[0].shape != x.shape:
        message = f"`bincount` needs a weight for each of {x}, not {weights[0]}"
        raise InferenceError("shape-mismatch", message, operand=1)
    size = read_size("bincount", "size", attributes["size"])
    return (TensorType(weights[0].dtype if weights else I64, (size,)),)


def _decompose_bincount(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, *weights = operands
    (result,) = _infer_bincount([v.type for v in operands], attributes)
    zeros = b.full(shape=result.shape, value=0, dtype=result.dtype)
    if not weights:
        return [b.count_indices(zeros, x, mode=attributes["mode"])]
    return [b.scatter_add(zeros, x, weights[0], axis=0, mode=attributes["mode"])]


def _reference_bincount(x: Numbers, weights: Numbers | None = None, *, size: int, mode: str) -> Numbers:
    added = np.ones(x.shape, np.int64) if weights is None else weights
    result = np.zeros(size, added.dtype)
    if size:
        kept = are_inside_array(x, size) if mode == "drop" else np.ones(x.shape, np.bool_)
        np.add.at(result, clamped_array(x, size, mode)[kept], added[kept])
    return result


def _differentiate_bincount(b: Builder, use: Use) -> Sequence[Value | None]:
    if len(use.inputs) == 1 or not use.inputs[1].type.dtype.is_differentiable:
        return [None] * len(use.inputs)
    return [None, b.gather(use.gradient, use.inputs[0], axis=0, mode=use.attributes["mode"])]


_INDICES = np.asarray([3, 0, 3, 1, 3, 0, 2], np.int64)

bincount = Operator(
    name="bincount",
    summary="the number of occurrences of each number from 0 to size - 1 in a vector, or the sum of their weights",
    operands=(Operand("x", INDICES, group="I"), Operand("weights", NUMBERS, optional=True)),
    attributes=(AttributeSpec("size", "size"), MODE),
    infer=_infer_bincount,
    reference=_reference_bincount,
    gradient=_differentiate_bincount,
    decompose=_decompose_bincount,
    cases=LateCases(
        lambda: (
            Case((), {"size": 5}, arrays={0: _INDICES}, dtypes=(I64,)),
            Case(((7,), (7,)), {"size": 5}, arrays={0: _INDICES}, terms=3),
            Case(((7,), (7,)), {"size": 3, "mode": "drop"}, arrays={0: _INDICES}, terms=3),
            Case(((1,), (1,)), {"size": 1}, arrays={0: np.asarray([0])}),
            Case(((0,), (0,)), {"size": 3}, arrays={0: np.zeros(0, np.int64)}),
        )
    ),
    properties=frozenset({"composite", "sequential", "summing"}),
    addresses=lambda types, attributes: (Addressing(0, (attributes["size"],)),),
)


def _infer_count(types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    x, indices = types
    if x.rank != 1 or indices.rank != 1:
        raise InferenceError("rank-mismatch", f"`count_indices` adds to a vector at a vector, not {x} at {indices}")
    return (x,)


def _lower_count(e: Emitter, operands: Sequence[Tensor], mode: str) -> Sequence[Tensor]:
    x, indices = operands

    def position(s: SequenceEmitter, inner: Sequence[Scalar]) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
        index = s.load(indices, inner)
        return [clamped(s, index, x.type.shape[0], mode)], [index]

    return write_values(e, x, indices.type.shape, None, position, [0], mode, add=True)


def _reference_count(x: Numbers, indices: Numbers, mode: str = "error") -> Numbers:
    return np.asarray(x + _reference_bincount(indices, size=len(x), mode=mode))


count_indices = Operator(
    name="count_indices",
    summary="x with 1 added at each of the `indices`",
    operands=(Operand("x", (I64,)), index_operand()),
    attributes=(MODE,),
    infer=lambda types, attributes: _infer_count(types),
    reference=_reference_count,
    gradient=None,
    lower=lambda e, operands, attributes, types: _lower_count(e, operands, attributes["mode"]),
    addresses=lambda types, attributes: (Addressing(1, (types[0].shape[0],)),),
    cases=(
        Case(((5,), ()), arrays={1: np.asarray([0, 4, 2, 2, -1, -5])}),
        *(Case(((5,), ()), {"mode": mode}, arrays={1: np.asarray([0, 5, -6, 2])}) for mode in OTHER_MODES),
        Case(((3,), ()), arrays={1: np.zeros(0, np.int64)}),
        Case(((1,), ()), arrays={1: np.asarray([0])}),
    ),
    properties=frozenset({"sequential", "overwriting", "summing", "internal"}),
)


def _infer_search(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    ordered, values = types
    if not ordered.rank:
        raise InferenceError("rank-mismatch", "`searchsorted` needs an axis of sorted numbers, not a scalar", operand=0)
    if ordered.rank > 1:
        outer = values.shape[:-1]
        if not values.rank or broadcast_shapes([ordered.shape[:-1], outer], "searchsorted") != outer:
            message = f"the rows of {ordered} do not broadcast to those of {values}"
            raise InferenceError("shape-mismatch", message, operand=0)
    return (values.with_dtype(I64),)


_UNROLLED = 24
"""The most steps of a search that are code of their own, which is computed in vectors."""


def _lower_search(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    ordered, values = operands
    size, right, rank = ordered.type.shape[-1], attributes["right"], types[0].rank
    # A range of n elements is empty after as many halvings as n has bits.
    steps, is_never_empty = bounds(size)[1].bit_length(), at_least(size, 1)

    def element(s: BodyEmitter, value: Scalar) -> Scalar:
        zero, one = s.constant(0, I64), s.constant(1, I64)
        outer = [
            zero if n == 1 else s.index(rank - ordered.type.rank + axis)
            for axis, n in enumerate(ordered.type.shape[:-1])
        ]
        total = s.size(size)

        def halve(inner: BodyEmitter, _: Scalar, carried: Sequence[Scalar]) -> Sequence[Scalar]:
            """Halves the range low..high, which holds the first element that is not before the value."""
            low, high = carried
            middle = inner.binary("shr", inner.binary("add", low, high), one)
            inside = inner.compare("lt", low, high)
            if is_never_empty:
                last = inner.binary("sub", total, one)
                found = inner.load(ordered, [*outer, inner.binary("min", middle, last)])
            else:
                found = inner.load_if(inside, ordered, [*outer, middle])
            before = _is_before(inner, found, value, right)
            goes_on = inner.binary("and", inside, before)
            stays = inner.binary("and", inside, inner.unary("not", before))
            return [
                inner.select(goes_on, inner.binary("add", middle, one), low),
                inner.select(stays, middle, high),
            ]

        carried: Sequence[Scalar] = [zero, total]
        if steps > _UNROLLED or not is_never_empty:
            return s.iterate(s.constant(steps, I64), carried, halve)[0]  # type: ignore[arg-type]  # one of them
        for _ in range(steps):
            carried = halve(s, zero, carried)
        return carried[0]

    return [e.map(types[0], [(values, identity(rank))], element)]


def _is_before(s: BodyEmitter, found: Scalar, value: Scalar, right: bool) -> Scalar:
    """Returns whether an element precedes the position of the value; NaN is the greatest number."""
    less = s.compare("le" if right else "lt", found, value)
    if not value.dtype.is_float:
        return less
    is_nan = s.unary("isnan", value)
    return s.binary("or", less, is_nan if right else s.binary("and", is_nan, s.unary("not", s.unary("isnan", found))))


def _reference_search(ordered: Numbers, values: Numbers, right: bool) -> Numbers:
    """Halves the range as the code does, so that both agree for rows that are not sorted, too."""
    rows = np.broadcast_to(ordered, (*values.shape[:-1], ordered.shape[-1])) if ordered.ndim > 1 else ordered
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, ordered.shape[-1], np.int64)
    while (low < high).any():
        middle = (low + high) >> 1
        at = np.minimum(middle, ordered.shape[-1] - 1)
        found = np.take_along_axis(rows, at, -1) if ordered.ndim > 1 else ordered[at]
        before = (found <= values) | np.isnan(values) if right else (found < values) | _only_second_nan(found, values)
        low, high = np.where((low < high) & before, middle + 1, low), np.where((low < high) & ~before, middle, high)
    return low


def _only_second_nan(found: Numbers, values: Numbers) -> Numbers:
    return np.asarray(np.isnan(values) & ~np.isnan(found))


def _sorted(*shape: int) -> Numbers:
    return np.sort(np.random.default_rng(3).integers(0, 9, shape), -1)


searchsorted = Operator(
    name="searchsorted",
    summary="the index at which each value would be inserted into the sorted numbers of the last axis: before equal "
    "ones, or after them if `right`; a binary search",
    operands=(Operand("sorted", tuple(d for d in COMPUTED if d != BOOL)), Operand("values", NUMBERS)),
    attributes=(AttributeSpec("right", "bool", False),),
    infer=_infer_search,
    reference=_reference_search,
    gradient=None,
    lower=_lower_search,
    cases=LateCases(
        lambda: tuple(
            Case(shapes, {"right": right}, arrays={0: _sorted(*shapes[0]), 1: _sorted(*shapes[1])[..., ::-1]})
            for shapes in (((7,), (2, 5)), ((2, 9), (2, 3)), ((1,), (1,)), ((0,), (3,)), ((1, 5), (3, 0)))
            for right in (False, True)
        )
    ),
    properties=frozenset({"costly"}),
)

OPERATORS = (bincount, count_indices, searchsorted)
