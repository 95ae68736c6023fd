"""Sorting: sort, argsort, top_k. Equal elements keep their order; NaN counts as greater than every number.

Runs of 1, 2, 4, ... elements are merged pair by pair. Each merge is a parallel map: an element of a merged run finds by
binary search how many of those before it come from the left run. `top_k` keeps only the first k (rounded up to a power
of two) of every run, so that its work shrinks from merge to merge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dims import Size, bounds, ceil_divide, minimum
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import BOOL, COMPUTED, I64, TensorType
from .accumulate import Numbers, widen
from .arguments import read_size
from .common import normalize_axis, same_type

MERGES = 40
"""As many as runs of more elements than fit memory need."""
SHRINKING_MERGES = 4
"""After so many merges that drop elements, those of a symbolic axis take less room."""


def _doublings(size: Size) -> int:
    """How often 1 must be doubled to reach the size, whatever the dims."""
    return min(max(bounds(size)[1] - 1, 0).bit_length(), MERGES)


def _comes_before(s: ScalarEmitter, x: Scalar, y: Scalar, descending: bool) -> Scalar:
    if x.dtype == BOOL:
        x, y = s.cast(x, I64), s.cast(y, I64)
    if descending:
        x, y = y, x
    less = s.compare("lt", x, y)
    if x.dtype.is_float:
        only_y = s.binary("and", s.unary("isnan", y), s.unary("not", s.unary("isnan", x)))
        less = s.binary("or", less, only_y)
    return less


@dataclass(frozen=True, slots=True)
class _Merge:
    """Merges pairs of runs, `width` long but for the last, into runs of which the first `kept` elements remain.

    A run stands for `span` elements of the axis, which has `size`; its first elements lie `width` after the last run's.
    """

    axis: int
    size: Size
    span: int
    width: int
    kept: int
    descending: bool

    def source(self, s: BodyEmitter, place: Scalar, load: Callable[[ScalarEmitter, Scalar], Scalar]) -> Scalar:
        """The place, in the runs, of the element at a place of the merged runs."""

        def number(value: int) -> Scalar:
            return s.constant(value, I64)

        zero = number(0)
        pair = s.binary("div", place, number(self.kept))
        start = s.binary("mul", pair, number(2 * self.width))
        behind = s.binary("add", start, number(self.width))
        left_over = s.binary("sub", s.size(self.size), s.binary("mul", pair, number(2 * self.span)))
        lefts = s.binary("min", left_over, number(self.width))
        rights = s.binary("sub", left_over, number(self.span))
        rights = s.binary("max", s.binary("min", rights, number(self.width)), zero)
        # Places after the last element of the last run hold what nobody reads.
        rank = s.binary("sub", place, s.binary("mul", pair, number(self.kept)))

        def left(inner: ScalarEmitter, i: Scalar) -> Scalar:
            return load(inner, inner.binary("add", start, i))

        def right(inner: ScalarEmitter, i: Scalar) -> Scalar:
            return load(inner, inner.binary("add", behind, i))

        def halve(inner: ScalarEmitter, turn: Scalar, carried: Sequence[Scalar]) -> Sequence[Scalar]:
            low, high = carried
            middle = inner.binary("shr", inner.binary("add", low, high), inner.constant(1, I64))
            other = inner.binary("sub", inner.binary("sub", rank, middle), inner.constant(1, I64))
            # The left element at `middle` comes later than `rank` if the right one before it is smaller.
            later = _comes_before(inner, right(inner, other), left(inner, middle), self.descending)
            later = inner.binary("or", later, inner.compare("ge", low, high))
            after = inner.binary("min", inner.binary("add", middle, inner.constant(1, I64)), high)
            return [inner.select(later, low, after), inner.select(later, middle, high)]

        lowest = s.binary("max", s.binary("sub", rank, rights), zero)
        highest = s.binary("min", rank, lefts)
        # There is nothing to search where there is no right run, as in merges of more elements than there are.
        turns = s.select(s.compare("lt", lowest, highest), number(self.width.bit_length()), zero)
        taken, _ = s.iterate(turns, [lowest, highest], halve)
        other = s.binary("sub", rank, taken)
        from_right = s.compare("ge", taken, lefts)
        right_first = _comes_before(s, right(s, other), left(s, taken), self.descending)
        right_first = s.binary("and", s.compare("lt", other, rights), right_first)
        from_right = s.binary("or", from_right, right_first)
        return s.select(from_right, s.binary("add", behind, other), s.binary("add", start, taken))


def _sorted(
    e: Emitter, x: Tensor, axis: int, descending: bool, count: Size, *, with_indices: bool
) -> tuple[Tensor, Tensor | None]:
    """The first `count` elements in order, and where they were."""
    size, rank = x.type.shape[axis], x.type.rank
    limit = 1 << _doublings(count)
    values, indices = x, None
    span = 1
    for _ in range(_doublings(size)):
        merge = _Merge(axis, size, span, min(span, limit), min(2 * span, limit), descending)
        span *= 2
        # Room for all that remains. A symbolic one shrinks once, since it is one more size to plan memory with.
        dropped = span.bit_length() - limit.bit_length()
        if not isinstance(size, int):
            dropped = SHRINKING_MERGES if dropped >= SHRINKING_MERGES else 0
        length = limit * ceil_divide(size, limit << dropped) if dropped > 0 else size
        values, indices = _merged(e, values, indices, merge, length, with_indices=with_indices)
    if with_indices and indices is None:
        indices = e.map(x.type.with_dtype(I64), [], lambda s: s.index(axis))
    if values.type.shape[axis] == count:
        return values, indices
    shape = [count if a == axis else n for a, n in enumerate(x.type.shape)]
    cut = [None if t is None else e.slice(t, (0,) * rank, shape, (1,) * rank) for t in (values, indices)]
    assert cut[0] is not None
    return cut[0], cut[1]


def _merged(
    e: Emitter, values: Tensor, indices: Tensor | None, merge: _Merge, length: Size, *, with_indices: bool
) -> tuple[Tensor, Tensor | None]:
    type, axis = values.type, merge.axis
    shape = tuple(length if a == axis else n for a, n in enumerate(type.shape))
    last = type.shape[axis] - 1

    def body(s: BodyEmitter, *unused: Scalar) -> Sequence[Scalar]:
        places = [s.index(a) for a in range(type.rank)]

        def at(inner: ScalarEmitter, place: Scalar) -> list[Scalar]:
            # A search may look one beyond a run, where its answer no longer counts; that must not leave the tensor.
            inside = inner.binary("max", inner.binary("min", place, inner.size(last)), inner.constant(0, I64))
            return [*places[:axis], inside, *places[axis + 1 :]]

        source = merge.source(s, places[axis], lambda inner, place: inner.load(values, at(inner, place)))
        found = at(s, source)
        results = [s.load(values, found)]
        if with_indices:
            results.append(found[axis] if indices is None else s.load(indices, found))
        return results

    by_place = identity(type.rank)
    results = [Result(TensorType(type.dtype, shape), by_place)]
    if with_indices:
        results.append(Result(TensorType(I64, shape), by_place))
    done = e.structured([Loop(n) for n in shape], [], results, body)
    return done[0], done[1] if with_indices else None


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
    values, indices = _sorted(e, x, axis, descending, x.type.shape[axis], with_indices=want_indices)
    if want_indices:
        assert indices is not None
        return [indices]
    return [values]


def _differentiate_sort(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    places = b.argsort(x, **use.attributes)
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    return [b.scatter(zeros, places, use.gradient, axis=use.attributes["axis"], mode="clamp")]


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
    summary="the elements in order along an axis; NaN is the greatest",
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
    summary="where the elements in order come from along an axis, as i64; equal elements keep their order",
    operands=(Operand("x", COMPUTED),),
    attributes=_ATTRIBUTES,
    infer=lambda types, attributes: (_infer_sort("argsort", types, attributes)[0].with_dtype(I64),),
    reference=lambda x, axis, descending: _order(x, axis, descending).astype(np.int64),
    gradient=None,
    lower=lambda e, operands, attributes, types: _lower_sort(e, operands, attributes, types, want_indices=True),
    cases=_CASES,
    properties=frozenset({"sequential"}),
)


def _infer_top(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    axis = normalize_axis(attributes["axis"], x.rank, "top_k")
    count = read_size("top_k", "k", attributes["k"])
    size = x.shape[axis]
    if isinstance(count, int) and isinstance(size, int) and count > size:
        raise InferenceError("bad-attribute", f"`top_k` cannot take {count} of {size} elements")
    shape = (*x.shape[:axis], minimum(count, size), *x.shape[axis + 1 :])
    return x.with_shape(shape), TensorType(I64, shape)


def _reference_top(x: Numbers, k: int, axis: int, largest: bool) -> tuple[Numbers, Any]:
    order = np.take(_order(x, axis, largest), np.arange(min(k, x.shape[axis])), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def _lower_top(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = normalize_axis(attributes["axis"], x.type.rank, "top_k")
    values, indices = _sorted(e, x, axis, attributes["largest"], types[0].shape[axis], with_indices=True)
    assert indices is not None
    return [values, indices]


def _differentiate_top(b: Builder, use: Use) -> Sequence[Value | None]:
    (x,) = use.inputs
    if use.gradients[0] is None:
        return [None]
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    return [b.scatter(zeros, use.outputs[1], use.gradients[0], axis=use.attributes["axis"], mode="clamp")]


top_k = Operator(
    name="top_k",
    summary="the k largest (or smallest) elements along an axis, in order, and where they are; all, where a symbolic "
    "axis has fewer",
    operands=(Operand("x", COMPUTED),),
    attributes=(AttributeSpec("k", "size"), AttributeSpec("axis", "axis", -1), AttributeSpec("largest", "bool", True)),
    infer=_infer_top,
    reference=_reference_top,
    gradient=_differentiate_top,
    lower=_lower_top,
    cases=(
        Case(((7,),), {"k": 3}),
        Case(((2, 33),), {"k": 1}),
        Case(((2, 33),), {"k": 5, "largest": False}),
        Case(((5, 6),), {"k": 4, "axis": 0}),
        Case(((4,),), {"k": 4}),
        Case(((1,),), {"k": 1}),
        Case(((3,),), {"k": 0}),
        Case(((0, 3),), {"k": 2}),
        Case(((9,),), {"k": 6}, arrays={0: np.asarray([3, 1, 3, 2, 1, 1, 3, 0, 2], np.int64)}, dtypes=(I64,)),
    ),
    results=("values", "indices"),
    properties=frozenset({"sequential", "exact"}),
)

OPERATORS = (sort, argsort, top_k)
