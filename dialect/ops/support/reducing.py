"""Helpers shared by reductions over axes: their attributes, inference, cases, and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...dims import Shape
from ...graph import Value
from ...operator import (
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    Gradient,
    InferenceError,
    Use,
)
from ...types import DType, TensorType
from .algebra import Term
from .common import expand_to, is_empty, kept_shape, normalize_axes

KEEPDIMS = AttributeSpec("keepdims", "bool", False)
AXES = (AttributeSpec("axis", "axes", None), KEEPDIMS)

CASES: tuple[tuple[tuple[int, ...], Attributes], ...] = (
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
EMPTY_CASES: tuple[tuple[tuple[int, ...], Attributes], ...] = (((0,), {}), ((2, 0, 3), {"axis": 1}))


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    return kept_shape(shape, axes) if keepdims else tuple(s for i, s in enumerate(shape) if i not in axes)


def infer_reduction(name: str, result: DType | None, *, admits_empty: bool) -> Callable[..., tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        (x,) = types
        axes = normalize_axes(attributes["axis"], x.rank, name)
        if not admits_empty and any(is_empty(x.shape[a]) for a in axes):
            raise InferenceError("empty-reduction", f"`{name}` of no elements is undefined", label=f"this is {x}")
        return (TensorType(result or x.dtype, reduced_shape(x.shape, axes, attributes["keepdims"])),)

    return infer


def reduction_cases(
    cases: Sequence[tuple[tuple[int, ...], Attributes]], domain: tuple[float, float] = (-2.0, 2.0)
) -> tuple[Case, ...]:
    return tuple(
        Case((shape,), attributes, domain, terms=max(1, math.prod(shape[a] for a in reduced_axes(shape, attributes))))
        for shape, attributes in cases
    )


def reduced_axes(shape: Shape, attributes: Attributes) -> tuple[int, ...]:
    return normalize_axes(attributes.get("axis"), len(shape), "reduction")


def row_axes(x: TensorType, attributes: Attributes) -> tuple[int, ...]:
    return reduced_axes(x.shape, attributes)


Derivative = Callable[..., Term]
"""`derivative(x, result, gradient, axes, **other attributes)`; result and gradient keep the reduced axes."""


def along_axes(derivative: Derivative) -> Gradient:
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


def share_among_equal(x: Term, r: Term, g: Term, axes: tuple[int, ...]) -> Term:
    """Divides the gradient equally among elements that share the extreme."""
    chosen = x.equal(r).cast(dtype=x.dtype)
    return g * chosen / chosen.sum(axis=axes, keepdims=True)
