"""Softmax, its logarithm, and division by the Euclidean norm, each along one axis and written with simpler operators.

f16 and bf16 are computed in f32 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..operator import Attributes, AttributeSpec, Case, Gradient, LateCases, Operand, Operator
from ..types import FLOATS, TensorType
from .support.algebra import Term, decomposition, gradient_of
from .support.common import is_empty, normalize_axis, through_f32


def _centred(x: Term, axis: int) -> Term:
    """Subtracts the greatest element from all, so that no exponential overflows."""
    return x if is_empty(x.shape[axis]) else x - x.max(axis=axis, keepdims=True)


def _softmax(x: Term, axis: int) -> Term:
    e = _centred(x, axis).exp()
    return e / e.sum(axis=axis, keepdims=True)


def _log_softmax(x: Term, axis: int) -> Term:
    centred = _centred(x, axis)
    return centred - centred.exp().sum(axis=axis, keepdims=True).log()


def _l2_normalize(x: Term, axis: int, eps: float) -> Term:
    return x / x.norm(axis=axis, keepdims=True).maximum(eps)


def _centred_array(x: Any, axis: int) -> Any:
    return x - np.max(x, axis=axis, keepdims=True, initial=float("-inf"))


def _softmax_array(x: Any, axis: int) -> Any:
    e = np.exp(_centred_array(x, axis))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax_array(x: Any, axis: int) -> Any:
    centred = _centred_array(x, axis)
    return centred - np.log(np.sum(np.exp(centred), axis=axis, keepdims=True))


def _l2_normalize_array(x: Any, axis: int, eps: float) -> Any:
    return x / np.maximum(np.sqrt(np.sum(x * x, axis=axis, keepdims=True)), x.dtype.type(eps))


_ALONG: tuple[tuple[tuple[int, ...], int], ...] = (
    ((3, 5), -1),
    ((3, 5), 0),
    ((2, 7, 3), 1),
    ((1,), 0),
    ((0,), 0),
    ((3, 0), -1),
    ((0, 3), -1),
    ((17, 33), -1),
)


def _along(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    formula: Callable[..., Term],
    gradient: Gradient | None = None,
    attributes: tuple[AttributeSpec, ...] = (),
    properties: tuple[str, ...] = (),
) -> Operator:
    """Builds the record of a shape-preserving operator along one axis. Without a `gradient`, it is derived from the
    formula."""

    def infer(types: Sequence[TensorType], given: Attributes) -> tuple[TensorType, ...]:
        normalize_axis(given["axis"], types[0].rank, name)
        return (types[0],)

    decompose = decomposition(formula)
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", FLOATS),),
        attributes=(AttributeSpec("axis", "axis", -1), *attributes),
        infer=infer,
        reference=through_f32(reference),
        gradient=gradient or by_decomposition(decompose),
        decompose=decompose,
        cases=LateCases(
            lambda: tuple(
                Case((shape,), {"axis": axis}, (-5.0, 5.0), terms=max(1, shape[axis])) for shape, axis in _ALONG
            )
        ),
        properties=frozenset({"rowwise", *properties}),
        row_axes=lambda x, given: (given["axis"] % x.rank,),
    )


# fmt: off
OPERATORS = (
    _along("softmax", "exp(x) divided by its sum along an axis", _softmax_array, _softmax,
           gradient_of(lambda x, r, g, axis: r * (g - (g * r).sum(axis=axis, keepdims=True)))),
    _along("log_softmax", "the logarithm of softmax, accurate where softmax is small", _log_softmax_array, _log_softmax,
           gradient_of(lambda x, r, g, axis: g - r.exp() * g.sum(axis=axis, keepdims=True))),
    _along("l2_normalize", "x divided by the greater of `eps` and its Euclidean norm along an axis",
           _l2_normalize_array, _l2_normalize, attributes=(AttributeSpec("eps", "float", 1e-12),),
           properties=("reading",)),
)
# fmt: on
