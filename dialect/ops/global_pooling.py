"""Pooling over all spatial axes of x [N, C, *spatial], which become 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..dims import product
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import FLOATS, TensorType
from .support.accumulate import Numbers, widen
from .support.common import is_empty


def _global(name: str, summary: str, reduction: str, reference: Callable[..., Numbers]) -> Operator:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        (x,) = types
        if x.rank < 3:
            raise InferenceError("rank-mismatch", f"`{name}` takes a tensor [N, C, *spatial], not {x}", operand=0)
        if reduction == "max" and any(map(is_empty, x.shape[2:])):
            raise InferenceError("empty-reduction", f"`{name}` of no elements is undefined", label=f"this is {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *(1,) * (x.rank - 2))),)

    def decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        (x,) = operands
        return b.apply(reduction, [x], {"axis": tuple(range(2, x.type.rank)), "keepdims": True})

    def differentiate(b: Builder, use: Use) -> Sequence[Value]:
        (x,) = use.inputs
        g = use.gradient
        if reduction == "mean":
            count = b.cast(b.size_value(size=product(x.type.shape[2:])), dtype=x.type.dtype)
            return [b.broadcast_to(b.divide(g, count), shape=x.type.shape)]
        # Equal elements share the gradient.
        hit = b.cast(b.equal(x, use.outputs[0]), dtype=x.type.dtype)
        share = b.divide(g, b.sum(hit, axis=tuple(range(2, x.type.rank)), keepdims=True))
        return [b.multiply(hit, share)]

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", FLOATS),),
        infer=infer,
        reference=reference,
        gradient=differentiate,
        decompose=decompose,
        cases=LateCases(
            lambda: tuple(
                Case((shape,), terms=int(np.prod(shape[2:])))
                for shape in ((2, 3, 5, 7), (1, 1, 1), (0, 3, 4), (2, 2, 9))
            )
        ),
        properties=frozenset({"reduction"}),
        row_axes=lambda x, attributes: tuple(range(2, x.rank)),
    )


def _mean(x: Numbers) -> Numbers:
    total = widen(x).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    with np.errstate(invalid="ignore"):  # the mean of no elements is NaN
        return np.asarray(total / np.float64(np.prod(x.shape[2:]))).astype(x.dtype)


def _max(x: Numbers) -> Numbers:
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True, initial=-np.inf))


OPERATORS = (
    _global("global_avg_pool", "the average over the spatial axes; their sizes become 1", "mean", _mean),
    _global("global_max_pool", "the largest element over the spatial axes; their sizes become 1", "max", _max),
)
