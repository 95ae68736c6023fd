"""Statistics over axes, written with sums: mean, variance, norms, and the logarithm of a sum of exponentials.

`axis` and `keepdims` are those of `sum`. f16 and bf16 are computed in f32 throughout. An empty mean is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import add, maximum
from ..operator import Attributes, AttributeSpec, InferenceError, LateCases, Operand, Operator
from ..types import FLOATS, TensorType
from .support.algebra import Term, decomposition
from .support.common import count, is_empty, normalize_axes, size_as, through_f32
from .support.reducing import (
    AXES,
    CASES,
    EMPTY_CASES,
    Derivative,
    along_axes,
    infer_reduction,
    reduced_axes,
    reduced_shape,
    reduction_cases,
    row_axes,
    share_among_equal,
)


def _statistic(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    formula: Callable[..., Term],
    derivative: Derivative | None = None,
    *,
    attributes: tuple[AttributeSpec, ...] = (),
    variants: Sequence[Attributes] = ({},),
    empty: bool = True,
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Operator:
    """Builds the record of a float reduction that is written with others: `formula(x, axis, keepdims,
    **attributes)`."""
    decompose = decomposition(formula)
    cases = CASES + EMPTY_CASES if empty else CASES
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", FLOATS),),
        attributes=(*AXES, *attributes),
        infer=infer_reduction(name, None, admits_empty=True),
        reference=through_f32(reference),
        gradient=by_decomposition(decompose) if derivative is None else along_axes(derivative),
        decompose=decompose,
        cases=LateCases(
            lambda: tuple(
                c for given in variants for c in reduction_cases([(s, {**a, **given}) for s, a in cases], domain)
            )
        ),
        properties=frozenset({"reduction"}),
        row_axes=row_axes,
    )


def _count(x: Term, axes: Sequence[int], correction: int = 0) -> Term:
    """Returns the number of reduced elements, less a correction, not below 0."""
    size = maximum(add(count(x.shape, axes), -correction), 0)
    return Term(x.builder, size_as(x.builder, size, x.dtype))


def _mean(x: Term, axis: Any, keepdims: bool) -> Term:
    return x.sum(axis=axis, keepdims=keepdims) / _count(x, normalize_axes(axis, x.rank, "mean"))


def _mean_array(x: Any, axis: Any, keepdims: bool) -> Any:
    number = math.prod(x.shape[a] for a in reduced_axes(x.shape, {"axis": axis}))
    return np.asarray(x.sum(axis=axis, keepdims=keepdims)) / x.dtype.type(number)


def _variance(x: Term, axis: Any, keepdims: bool, correction: int) -> Term:
    axes = normalize_axes(axis, x.rank, "variance")
    distance = x - x.mean(axis=axes, keepdims=True)
    return (distance * distance).sum(axis=axes, keepdims=keepdims) / _count(x, axes, correction)


def _variance_array(x: Any, axis: Any, keepdims: bool, correction: int) -> Any:
    axes = reduced_axes(x.shape, {"axis": axis})
    number = max(math.prod(x.shape[a] for a in axes) - correction, 0)
    squares: Any = np.square(x - _mean_array(x, axes, True))
    return np.asarray(squares.sum(axis=axes, keepdims=keepdims)) / x.dtype.type(number)


def _variance_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], correction: int) -> Term:
    return 2 * g / _count(x, axes, correction) * (x - x.mean(axis=axes, keepdims=True))


def _deviation_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], correction: int) -> Term:
    """Returns the gradient, defined as 0 if all elements are equal."""
    distance = x - x.mean(axis=axes, keepdims=True)
    return g * distance / (_nonzero(r) * _count(x, axes, correction))


def _nonzero(r: Term) -> Term:
    return r.equal(0).select(1.0, r)


_LARGEST = {float("inf"): "max", float("-inf"): "min"}


def _norm(x: Term, axis: Any, keepdims: bool, order: float) -> Term:
    where = {"axis": axis, "keepdims": keepdims}
    if order in _LARGEST:
        extreme: Term = getattr(x.abs(), _LARGEST[order])(**where)
        return extreme
    if order == 1:
        return x.abs().sum(**where)
    if order == 2:
        return (x * x).sum(**where).sqrt()
    return x.abs().power(order).sum(**where).power(1 / order)


def _norm_array(x: Any, axis: Any, keepdims: bool, order: float) -> Any:
    where = {"axis": axis, "keepdims": keepdims}
    if order in _LARGEST:
        return np.asarray(getattr(np, _LARGEST[order])(np.abs(x), **where, initial=-order))
    if order == 1:
        return np.asarray(np.sum(np.abs(x), **where))
    if order == 2:
        return np.asarray(np.sqrt(np.sum(x * x, **where)))
    return np.asarray(np.power(np.sum(np.power(np.abs(x), order), **where), x.dtype.type(1 / order)))


def _infer_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    order = attributes["order"]
    if not order > 0 and order != float("-inf"):
        raise InferenceError("bad-attribute", f"`norm` has the order {order}, expected a positive number or -inf")
    return infer_reduction("norm", None, admits_empty=order not in _LARGEST)(types, attributes)


def _norm_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], order: float) -> Term:
    if order in _LARGEST:
        return share_among_equal(x.abs(), r, g, axes) * x.sign()
    if order == 1:
        return g * x.sign()
    # |x| ** (order - 2) * x / r ** (order - 1); the gradient at 0 is taken to be 0.
    ratio = x / _nonzero(r)
    return g * ratio if order == 2 else g * ratio.abs().power(order - 1) * x.sign()


def _norm_operator() -> Operator:
    decompose = decomposition(_norm)
    small = CASES[0], CASES[1], CASES[4]
    orders = {2: CASES + EMPTY_CASES, 1: CASES, 3.5: small, float("inf"): small, float("-inf"): small}
    cases = [(shape, {**given, "order": order}) for order, tried in orders.items() for shape, given in tried]
    return Operator(
        name="norm",
        summary="(sum of |x| ** order) ** (1 / order); the greatest or least |x| for order inf or -inf",
        operands=(Operand("x", FLOATS),),
        attributes=(*AXES, AttributeSpec("order", "float", 2)),
        infer=_infer_norm,
        reference=through_f32(_norm_array),
        gradient=along_axes(_norm_gradient),
        decompose=decompose,
        cases=LateCases(lambda: reduction_cases(cases)),
        properties=frozenset({"reduction"}),
        row_axes=row_axes,
    )


def _logsumexp(x: Term, axis: Any, keepdims: bool) -> Term:
    axes = normalize_axes(axis, x.rank, "logsumexp")
    if any(is_empty(x.shape[a]) for a in axes):
        return x.exp().sum(axis=axes, keepdims=keepdims).log()
    most = x.max(axis=axes, keepdims=True)
    # Infinite maxima would give inf - inf.
    shift = most.isfinite().select(most, 0.0)
    total = (x - shift).exp().sum(axis=axes, keepdims=True).log() + shift
    return total if keepdims else total.reshape(shape=reduced_shape(x.shape, axes, False))


def _logsumexp_array(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = reduced_axes(x.shape, {"axis": axis})
    most = np.max(x, axis=axes, keepdims=True, initial=float("-inf"))
    shift = np.where(np.isfinite(most), most, x.dtype.type(0))
    total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return total.reshape(reduced_shape(x.shape, axes, keepdims))


# fmt: off
OPERATORS = (
    _statistic("mean", "the mean over axes; NaN for an empty axis", _mean_array, _mean,
               lambda x, r, g, axes: g / _count(x, axes)),
    _statistic("variance", "the variance over axes; `correction` is subtracted from the divisor", _variance_array,
               _variance, _variance_gradient, attributes=(AttributeSpec("correction", "int", 0),),
               variants=({}, {"correction": 1})),
    _statistic("standard_deviation", "the square root of the variance over axes",
               lambda x, axis, keepdims, correction: np.sqrt(_variance_array(x, axis, keepdims, correction)),
               lambda x, axis, keepdims, correction: x.variance(axis=axis, keepdims=keepdims,
                                                                correction=correction).sqrt(),
               _deviation_gradient,
               attributes=(AttributeSpec("correction", "int", 0),), variants=({}, {"correction": 1})),
    _statistic("logsumexp", "log(sum(exp(x))) without overflow; -inf for an empty axis", _logsumexp_array, _logsumexp,
               lambda x, r, g, axes: g * (x - r).exp()),
    _norm_operator(),
)
# fmt: on
