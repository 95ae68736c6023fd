"""Reductions over axes: sums, products, extremes, logic, positions of extremes, and statistics made of them.

`axis` is an axis, several, or None for all; `keepdims` keeps the reduced axes with size 1. Integers wrap; f16 and bf16
are accumulated in f32. A sum of nothing is 0, a product 1, a mean NaN; an extreme of nothing is refused where the axis
is known to be empty, and is the dtype's lowest or highest value where that shows at run time only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Shape, add, maximum
from ..emitter import Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity, loops
from ..graph import Value
from ..operator import (
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    Gradient,
    InferenceError,
    Lower,
    Operand,
    Operator,
    Use,
)
from ..types import ANY, BOOL, FLOATS, I64, NUMBERS, DType, TensorType
from .algebra import Term, decomposition
from .common import (
    compute_dtype,
    count,
    expand_to,
    highest,
    is_empty,
    kept_shape,
    lower_cast,
    lowest,
    normalize_axes,
    normalize_axis,
    size_as,
    through_f32,
)

KEEPDIMS = AttributeSpec("keepdims", "bool", False)
AXES = (AttributeSpec("axis", "axes", None), KEEPDIMS)

_CASES: tuple[tuple[tuple[int, ...], Attributes], ...] = (
    ((3, 5), {"axis": 1}),
    ((3, 5), {}),
    ((3, 5), {"axis": -2, "keepdims": True}),
    ((2, 3, 7), {"axis": (0, 2)}),
    ((2, 3, 7), {"axis": (-1, 1), "keepdims": True}),
    ((), {}),
    ((1,), {"axis": 0}),
    ((0, 3), {"axis": 1}),
    ((0, 3), {"axis": (), "keepdims": True}),
    ((17, 33), {"axis": 0}),
)
_EMPTY_CASES: tuple[tuple[tuple[int, ...], Attributes], ...] = (((0,), {}), ((2, 0, 3), {"axis": 1}))


def _reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    return kept_shape(shape, axes) if keepdims else tuple(s for i, s in enumerate(shape) if i not in axes)


def _infer(name: str, result: DType | None, *, admits_empty: bool) -> Callable[..., tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        (x,) = types
        axes = normalize_axes(attributes["axis"], x.rank, name)
        if not admits_empty and any(is_empty(x.shape[a]) for a in axes):
            raise InferenceError("empty-reduction", f"`{name}` over no elements has no value", label=f"this is {x}")
        return (TensorType(result or x.dtype, _reduced_shape(x.shape, axes, attributes["keepdims"])),)

    return infer


def _cases(
    cases: Sequence[tuple[tuple[int, ...], Attributes]], domain: tuple[float, float] = (-2.0, 2.0)
) -> tuple[Case, ...]:
    return tuple(
        Case((shape,), attributes, domain, terms=max(1, math.prod(shape[a] for a in _axes(shape, attributes))))
        for shape, attributes in cases
    )


def _axes(shape: Shape, attributes: Attributes) -> tuple[int, ...]:
    return normalize_axes(attributes.get("axis"), len(shape), "reduction")


def _lower(initial: Callable[[DType], float | int | bool], step: str) -> Lower:
    """A reduction that combines elements with the emitter's function `step`."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (x,) = operands
        axes = _axes(x.type.shape, attributes)
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


Derivative = Callable[..., Term]
"""`derivative(x, result, gradient, axes, **other attributes)`, where result and gradient kept the reduced axes."""


def _along_axes(derivative: Derivative) -> Gradient:
    def differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
        (x,) = use.inputs
        attributes = dict(use.attributes)
        del attributes["keepdims"]
        axes = normalize_axes(attributes.pop("axis"), x.type.rank, "reduction")
        shape = kept_shape(x.type.shape, axes)
        r, g = (
            Term(b, value if value.type.shape == shape else b.reshape(value, shape=shape))
            for value in (use.outputs[0], use.gradient)
        )
        part = derivative(Term(b, x), r, g, axes, **attributes)
        return [expand_to(b, part.value, x.type.shape)]

    return differentiate


def _reduction(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    initial: Callable[[DType], float | int | bool],
    step: str,
    derivative: Derivative | None,
    *,
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
        infer=_infer(name, result, admits_empty=not extreme),
        reference=through_f32(reference),
        gradient=None if derivative is None else _along_axes(derivative),
        lower=_lower(initial, step),
        cases=_cases(_CASES if extreme else _CASES + _EMPTY_CASES, domain),
        properties=frozenset({"reduction"}),
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
    """A reduction of floats that is written with others: `formula(x, axis, keepdims, **attributes)`."""
    decompose = decomposition(formula)
    cases = _CASES + _EMPTY_CASES if empty else _CASES
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", FLOATS),),
        attributes=(*AXES, *attributes),
        infer=_infer(name, None, admits_empty=True),
        reference=through_f32(reference),
        gradient=by_decomposition(decompose) if derivative is None else _along_axes(derivative),
        decompose=decompose,
        cases=tuple(c for given in variants for c in _cases([(s, {**a, **given}) for s, a in cases], domain)),
        properties=frozenset({"reduction"}),
    )


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A numpy reduction in the dtype of its operand."""
    return lambda x, axis, keepdims: np.asarray(function(x, axis=axis, keepdims=keepdims, dtype=x.dtype))


def _extreme(function: Callable[..., Any], bound: Callable[[DType], float | int]) -> Callable[..., Any]:
    def reference(x: Any, axis: Any, keepdims: bool) -> Any:
        initial = x.dtype.type(bound(next(d for d in NUMBERS if d.numpy == x.dtype)))
        return np.asarray(function(x, axis=axis, keepdims=keepdims, initial=initial))

    return reference


def _among_equal(x: Term, r: Term, g: Term, axes: tuple[int, ...]) -> Term:
    """Elements that share the extreme share the gradient."""
    chosen = x.equal(r).cast(dtype=x.dtype)
    return g * chosen / chosen.sum(axis=axes, keepdims=True)


def _product_of_others(x: Term, r: Term, g: Term, axes: tuple[int, ...]) -> Term:
    """Without a division, since an element may be 0; one axis after another."""
    if not axes:
        return g
    *outer, axis = axes
    if outer:
        inner = x.prod(axis=axis, keepdims=True)
        g = _product_of_others(inner, r, g, tuple(outer))
    before = x.cumprod(axis=axis, exclusive=True)
    after = x.cumprod(axis=axis, exclusive=True, reverse=True)
    return g * before * after


def _count(x: Term, axes: Sequence[int], correction: int = 0) -> Term:
    """The number of reduced elements, less a correction, not below 0."""
    size = maximum(add(count(x.shape, axes), -correction), 0)
    return Term(x.builder, size_as(x.builder, size, x.dtype))


def _mean(x: Term, axis: Any, keepdims: bool) -> Term:
    return x.sum(axis=axis, keepdims=keepdims) / _count(x, normalize_axes(axis, x.rank, "mean"))


def _mean_array(x: Any, axis: Any, keepdims: bool) -> Any:
    number = math.prod(x.shape[a] for a in _axes(x.shape, {"axis": axis}))
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims)) / x.dtype.type(number)


def _variance(x: Term, axis: Any, keepdims: bool, correction: int) -> Term:
    axes = normalize_axes(axis, x.rank, "variance")
    distance = x - x.mean(axis=axes, keepdims=True)
    return (distance * distance).sum(axis=axes, keepdims=keepdims) / _count(x, axes, correction)


def _variance_array(x: Any, axis: Any, keepdims: bool, correction: int) -> Any:
    axes = _axes(x.shape, {"axis": axis})
    number = max(math.prod(x.shape[a] for a in axes) - correction, 0)
    squares = np.square(x - _mean_array(x, axes, True))
    return np.asarray(np.sum(squares, axis=axes, keepdims=keepdims)) / x.dtype.type(number)


def _variance_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], correction: int) -> Term:
    return 2 * g / _count(x, axes, correction) * (x - x.mean(axis=axes, keepdims=True))


def _deviation_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], correction: int) -> Term:
    """Where all elements are equal the root has no slope; it is taken to be 0."""
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
        return np.asarray(getattr(np, _LARGEST[order])(np.abs(x), **where))
    if order == 1:
        return np.asarray(np.sum(np.abs(x), **where))
    if order == 2:
        return np.asarray(np.sqrt(np.sum(x * x, **where)))
    return np.asarray(np.power(np.sum(np.power(np.abs(x), order), **where), x.dtype.type(1 / order)))


def _infer_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    order = attributes["order"]
    if not order > 0 and order != float("-inf"):
        raise InferenceError("bad-attribute", f"`norm` has the order {order}, expected a positive number or -inf")
    return _infer("norm", None, admits_empty=order not in _LARGEST)(types, attributes)


def _norm_gradient(x: Term, r: Term, g: Term, axes: tuple[int, ...], order: float) -> Term:
    if order in _LARGEST:
        return _among_equal(x.abs(), r, g, axes) * x.sign()
    if order == 1:
        return g * x.sign()
    # |x| ** (order - 2) * x / r ** (order - 1); the gradient at 0 is taken to be 0.
    ratio = x / _nonzero(r)
    return g * ratio if order == 2 else g * ratio.abs().power(order - 1) * x.sign()


def _norm_operator() -> Operator:
    decompose = decomposition(_norm)
    small = _CASES[0], _CASES[1], _CASES[4]
    orders = {2: _CASES + _EMPTY_CASES, 1: _CASES, 3.5: small, float("inf"): small, float("-inf"): small}
    return Operator(
        name="norm",
        summary="(sum of |x| ** order) ** (1 / order); the greatest or least |x| for order inf or -inf",
        operands=(Operand("x", FLOATS),),
        attributes=(*AXES, AttributeSpec("order", "float", 2)),
        infer=_infer_norm,
        reference=through_f32(_norm_array),
        gradient=_along_axes(_norm_gradient),
        decompose=decompose,
        cases=tuple(
            case for order, cases in orders.items() for case in _cases([(s, {**a, "order": order}) for s, a in cases])
        ),
        properties=frozenset({"reduction"}),
    )


def _logsumexp(x: Term, axis: Any, keepdims: bool) -> Term:
    axes = normalize_axes(axis, x.rank, "logsumexp")
    if any(is_empty(x.shape[a]) for a in axes):
        return x.exp().sum(axis=axes, keepdims=keepdims).log()
    most = x.max(axis=axes, keepdims=True)
    # Infinite maxima would give inf - inf.
    shift = most.isfinite().select(most, 0.0)
    total = (x - shift).exp().sum(axis=axes, keepdims=True).log() + shift
    return total if keepdims else total.reshape(shape=_reduced_shape(x.shape, axes, False))


def _logsumexp_array(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = _axes(x.shape, {"axis": axis})
    most = np.max(x, axis=axes, keepdims=True, initial=float("-inf"))
    shift = np.where(np.isfinite(most), most, x.dtype.type(0))
    total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return total.reshape(_reduced_shape(x.shape, axes, keepdims))


def _position(name: str, summary: str, predicate: str, bound: Callable[[DType], float | int]) -> Operator:
    """The first place of the greatest or least element along one axis; NaN counts as beyond everything."""
    choose = np.argmax if predicate == "gt" else np.argmin

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        (x,) = types
        axis = normalize_axis(attributes["axis"], x.rank, name)
        if is_empty(x.shape[axis]):
            raise InferenceError("empty-reduction", f"`{name}` over no elements has no value", label=f"this is {x}")
        return (TensorType(I64, _reduced_shape(x.shape, (axis,), attributes["keepdims"])),)

    def reference(x: Any, axis: int, keepdims: bool) -> Any:
        if x.shape[axis] == 0:
            return np.zeros(_reduced_shape(x.shape, (axis % x.ndim,), keepdims), np.int64)
        return np.asarray(choose(x, axis=axis, keepdims=keepdims), np.int64)

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (x,) = operands
        axis = attributes["axis"] % x.type.rank
        dtype = x.type.dtype
        kept = [i for i in range(x.type.rank) if i != axis]
        shape = tuple(x.type.shape[i] for i in kept)

        def choose_first(s: Any, element: Scalar, best: Scalar, place: Scalar) -> Sequence[Scalar]:
            better = s.compare(predicate, element, best)
            if dtype.is_float:
                first_nan = s.binary("and", s.unary("isnan", element), s.unary("not", s.unary("isnan", best)))
                better = s.binary("or", better, first_nan)
            return [s.select(better, element, best), s.select(better, s.index(axis), place)]

        _, places = e.structured(
            [Loop(size, parallel=i != axis) for i, size in enumerate(x.type.shape)],
            [(x, identity(x.type.rank))],
            [
                Result(TensorType(dtype, shape), loops(*kept), bound(dtype)),
                Result(TensorType(I64, shape), loops(*kept), 0),
            ],
            choose_first,
        )
        return [e.reshape(places, types[0].shape)]

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", NUMBERS),),
        attributes=(AttributeSpec("axis", "axis", -1), KEEPDIMS),
        infer=infer,
        reference=reference,
        gradient=None,
        lower=lower,
        cases=tuple(
            Case((shape,), attributes)
            for shape, attributes in (
                ((3, 5), {}),
                ((3, 5), {"axis": 0, "keepdims": True}),
                ((2, 3, 7), {"axis": 1}),
                ((1,), {}),
                ((0, 3), {}),
                ((17, 33), {"axis": -2}),
            )
        ),
        properties=frozenset({"reduction"}),
    )


_SMALL = (0.5, 1.5)
"""Products of many elements stay within f16."""

# fmt: off
OPERATORS = (
    _reduction("sum", "the sum over axes; 0 over nothing", _numpy(np.sum), lambda d: 0, "add",
               lambda x, r, g, axes: g),
    _reduction("prod", "the product over axes; 1 over nothing", _numpy(np.prod), lambda d: 1, "mul",
               _product_of_others, domain=_SMALL),
    _reduction("max", "the greatest element over axes, NaN if one is NaN", _extreme(np.max, lowest), lowest, "max",
               _among_equal, extreme=True),
    _reduction("min", "the least element over axes, NaN if one is NaN", _extreme(np.min, highest), highest, "min",
               _among_equal, extreme=True),
    _reduction("any", "is an element not 0?", lambda x, axis, keepdims: np.any(x != 0, axis=axis, keepdims=keepdims),
               lambda d: False, "or", None, dtypes=ANY, result=BOOL),
    _reduction("all", "is no element 0?", lambda x, axis, keepdims: np.all(x != 0, axis=axis, keepdims=keepdims),
               lambda d: True, "and", None, dtypes=ANY, result=BOOL),
    _position("argmax", "the index of the first greatest element along an axis", "gt", lowest),
    _position("argmin", "the index of the first least element along an axis", "lt", highest),
    _statistic("mean", "the sum over axes divided by the number of elements; NaN over nothing", _mean_array, _mean,
               lambda x, r, g, axes: g / _count(x, axes)),
    _statistic("variance", "the mean squared distance from the mean; `correction` lowers the divisor", _variance_array,
               _variance, _variance_gradient, attributes=(AttributeSpec("correction", "int", 0),),
               variants=({}, {"correction": 1})),
    _statistic("standard_deviation", "the square root of the variance",
               lambda x, axis, keepdims, correction: np.sqrt(_variance_array(x, axis, keepdims, correction)),
               lambda x, axis, keepdims, correction: x.variance(axis=axis, keepdims=keepdims,
                                                                correction=correction).sqrt(),
               _deviation_gradient,
               attributes=(AttributeSpec("correction", "int", 0),), variants=({}, {"correction": 1})),
    _statistic("logsumexp", "log(sum(exp(x))) without overflow; -inf over nothing", _logsumexp_array, _logsumexp,
               lambda x, r, g, axes: g * (x - r).exp()),
    _norm_operator(),
)
# fmt: on
