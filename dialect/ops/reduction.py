"""Reductions over axes: sums, products, extremes, logic, and the positions of extremes.

`axis` is an axis, several, or None for all; `keepdims` keeps the reduced axes with size 1. Integers wrap; f16 and bf16
are accumulated in f32. An empty sum is 0, an empty product 1. An extreme over an axis that is known to be empty is
refused; over an axis that is empty only at run time, it is the dtype's lowest or highest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import bounds
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity, loops
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Lower, Operand, Operator
from ..types import BOOL, COMPUTED, I32, I64, NUMBERS, DType, TensorType
from .support.algebra import Term
from .support.common import (
    compute_dtype,
    highest,
    integer_range,
    is_empty,
    lower_cast,
    lowest,
    normalize_axis,
    through_f32,
)
from .support.reducing import (
    AXES,
    CASES,
    EMPTY_CASES,
    KEEPDIMS,
    Derivative,
    along_axes,
    infer_reduction,
    reduced_axes,
    reduced_shape,
    reduction_cases,
    row_axes,
    share_among_equal,
)


def _lower(initial: Callable[[DType], float | int | bool], step: str) -> Lower:
    """Returns the lowering of a reduction that combines elements with the emitter's function `step`."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (x,) = operands
        axes = reduced_axes(x.type.shape, attributes)
        kept = [i for i in range(x.type.rank) if i not in axes]
        dtype = compute_dtype(types[0].dtype)

        def combine(s: ScalarEmitter, element: Scalar, total: Scalar) -> Sequence[Scalar]:
            return [s.binary(step, total, s.cast(element, dtype))]

        (total,) = e.structured(
            [Loop(size, parallel=i not in axes) for i, size in enumerate(x.type.shape)],
            [(x, identity(x.type.rank))],
            [Result(TensorType(dtype, tuple(x.type.shape[i] for i in kept)), loops(*kept), initial(dtype))],
            combine,
        )
        return [e.reshape(lower_cast(e, total, types[0].dtype), types[0].shape)]

    return lower


_EXTREME = ("exact", "extreme")


def _reduction(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    initial: Callable[[DType], float | int | bool],
    step: str,
    derivative: Derivative | None,
    *properties: str,
    dtypes: tuple[DType, ...] = NUMBERS,
    result: DType | None = None,
    extreme: bool = False,
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes),),
        attributes=AXES,
        infer=infer_reduction(name, result, admits_empty=not extreme),
        reference=through_f32(reference),
        gradient=None if derivative is None else along_axes(derivative),
        lower=_lower(initial, step),
        cases=LateCases(lambda: reduction_cases(CASES if extreme else CASES + EMPTY_CASES, domain)),
        properties=frozenset({"reduction", *properties, *(_EXTREME if extreme else ())}),
        row_axes=row_axes,
    )


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a numpy reduction in the dtype of its operand."""
    return lambda x, axis, keepdims: np.asarray(function(x, axis=axis, keepdims=keepdims, dtype=x.dtype))


def _extreme(function: Callable[..., Any], bound: Callable[[DType], float | int]) -> Callable[..., Any]:
    def reference(x: Any, axis: Any, keepdims: bool) -> Any:
        initial = x.dtype.type(bound(next(d for d in NUMBERS if d.numpy == x.dtype)))
        return np.asarray(function(x, axis=axis, keepdims=keepdims, initial=initial))

    return reference


def _product_of_others(x: Term, r: Term, g: Term, axes: tuple[int, ...]) -> Term:
    """Computes products without a division, since an element may be 0; one axis after another."""
    if not axes:
        return g
    *outer, axis = axes
    if outer:
        inner = x.prod(axis=axis, keepdims=True)
        g = _product_of_others(inner, r, g, tuple(outer))
    before = x.cumprod(axis=axis, exclusive=True)
    after = x.cumprod(axis=axis, exclusive=True, reverse=True)
    return g * before * after


_MOST_I32 = (1 << 31) - 1
"""The longest axis whose indices are counted in i32; a vector holds twice as many i32 as i64."""


def _position(name: str, summary: str, function: str, bound: Callable[[DType], float | int]) -> Operator:
    """Builds the record for the first index of the greatest or least element along one axis; NaN counts as beyond
    all."""
    choose: Callable[..., Any] = np.argmax if function == "max" else np.argmin

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        (x,) = types
        axis = normalize_axis(attributes["axis"], x.rank, name)
        if is_empty(x.shape[axis]) and attributes["empty"] == "error":
            raise InferenceError("empty-reduction", f"`{name}` of no elements is undefined", label=f"this is {x}")
        return (TensorType(I64, reduced_shape(x.shape, (axis,), attributes["keepdims"])),)

    def reference(x: Any, axis: int, keepdims: bool, empty: str = "error") -> Any:
        if x.shape[axis] == 0 and empty == "zero":
            return np.zeros(reduced_shape(x.shape, (axis % x.ndim,), keepdims), np.int64)
        return np.asarray(choose(x, axis=axis, keepdims=keepdims), np.int64)

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (x,) = operands
        axis = attributes["axis"] % x.type.rank
        wide = compute_dtype(x.type.dtype)
        kept = [i for i in range(x.type.rank) if i != axis]
        shape, position = tuple(x.type.shape[i] for i in kept), loops(*kept)
        nest = [Loop(size, parallel=i != axis) for i, size in enumerate(x.type.shape)]
        # Two reductions of one result each: the best element, then the least index of an element that equals it.
        counter = I32 if bounds(x.type.shape[axis])[1] <= _MOST_I32 else I64
        nowhere = integer_range(counter)[1]

        def better(s: ScalarEmitter, element: Scalar, best: Scalar) -> Sequence[Scalar]:
            return [s.binary(function, best, s.cast(element, wide))]

        def first(s: BodyEmitter, element: Scalar, best: Scalar, found: Scalar) -> Sequence[Scalar]:
            element = s.cast(element, wide)
            equal = s.compare("eq", element, best)
            if wide.is_float:
                # The best is NaN only if an element is NaN.
                equal = s.binary("or", equal, s.unary("isnan", element))
            here = s.select(equal, s.cast(s.index(axis), counter), s.constant(nowhere, counter))
            return [s.binary("min", found, here)]

        whole = identity(x.type.rank)
        (best,) = e.structured(nest, [(x, whole)], [Result(TensorType(wide, shape), position, bound(wide))], better)
        (found,) = e.structured(
            nest, [(x, whole), (best, position)], [Result(TensorType(counter, shape), position, nowhere)], first
        )

        def or_zero(s: ScalarEmitter, number: Scalar) -> Scalar:
            empty = s.compare("eq", number, s.constant(nowhere, counter))
            return s.cast(s.select(empty, s.constant(0, counter), number), I64)

        def widened(s: ScalarEmitter, number: Scalar) -> Scalar:
            return s.cast(number, I64)

        finish = or_zero if attributes["empty"] == "zero" else widened
        positions = e.map(TensorType(I64, shape), [(found, identity(len(shape)))], finish)
        return [e.reshape(positions, types[0].shape)]

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", NUMBERS),),
        attributes=(
            AttributeSpec("axis", "axis", -1),
            KEEPDIMS,
            AttributeSpec("empty", "str", "error", choices=("error", "zero")),
        ),
        infer=infer,
        reference=reference,
        gradient=None,
        lower=lower,
        cases=LateCases(
            lambda: tuple(
                Case((shape,), attributes)
                for shape, attributes in (
                    ((3, 5), {}),
                    ((3, 5), {"axis": 0, "keepdims": True}),
                    ((2, 3, 7), {"axis": 1}),
                    ((1,), {}),
                    ((0, 3), {}),
                    ((17, 33), {"axis": -2}),
                    ((3, 0), {"empty": "zero"}),
                )
            )
        ),
        properties=frozenset({"reduction"}),
        row_axes=row_axes,
        needed=lambda types, attributes: (
            (types[0].shape[attributes["axis"] % types[0].rank],) if attributes["empty"] == "error" else ()
        ),
    )


_SMALL = (0.5, 1.5)
"""A domain in which products of many elements stay within f16."""

# fmt: off
OPERATORS = (
    _reduction("sum", "the sum over axes; 0 for an empty axis", _numpy(np.sum), lambda d: 0, "add",
               lambda x, r, g, axes: g, "summing"),
    _reduction("prod", "the product over axes; 1 for an empty axis", _numpy(np.prod), lambda d: 1, "mul",
               _product_of_others, domain=_SMALL),
    _reduction("max", "the greatest element over axes; NaN if any is NaN; the least number for an empty axis",
               _extreme(np.max, lowest), lowest, "max",
               share_among_equal, extreme=True),
    _reduction("min", "the least element over axes; NaN if any is NaN; the greatest number for an empty axis",
               _extreme(np.min, highest), highest, "min",
               share_among_equal, extreme=True),
    _reduction("any", "true if any element over axes is not 0",
               lambda x, axis, keepdims: np.any(x != 0, axis=axis, keepdims=keepdims),
               lambda d: False, "or", None, dtypes=COMPUTED, result=BOOL),
    _reduction("all", "true if no element over axes is 0",
               lambda x, axis, keepdims: np.all(x != 0, axis=axis, keepdims=keepdims),
               lambda d: True, "and", None, dtypes=COMPUTED, result=BOOL),
    _position("argmax", "the index of the first greatest element along an axis (or NaN); an empty axis fails "
              "the call, or gives 0 if `empty` is \"zero\"", "max", lowest),
    _position("argmin", "the index of the first least element along an axis (or NaN); an empty axis fails "
              "the call, or gives 0 if `empty` is \"zero\"", "min", highest),
)
# fmt: on
