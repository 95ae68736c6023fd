"""Elementwise activation functions, each decomposed to simpler operators, which passes support.

Functions that only compare and select are exact in every dtype; the others compute f16 and bf16 in f32 and round once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..operator import Attributes, AttributeSpec, Case, Gradient, InferenceError, LateCases, Operand, Operator
from ..types import FLOATS, NUMBERS, DType, TensorType
from .support.algebra import Term, decomposition, gradient_of
from .support.common import (
    SHAPES,
    broadcast_shapes,
    format_shape,
    greater_of,
    integer_range,
    lesser_of,
    same_type,
    through_f32,
)
from .support.error_function import erf


def _activation(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    formula: Callable[..., Term],
    gradient: Gradient | None = None,
    *,
    attributes: tuple[AttributeSpec, ...] = (),
    variants: Sequence[Attributes] = ({},),
    exact: bool = False,
    dtypes: tuple[DType, ...] = FLOATS,
    properties: Sequence[str] = (),
    domain: tuple[float, float] = (-2.0, 2.0),
    tolerance: float = 4.0,
) -> Operator:
    """Builds the record of an activation. Without a `gradient`, the gradient is derived from the formula."""
    decompose = decomposition(formula, exact=exact)
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes),),
        attributes=attributes,
        infer=same_type,
        reference=through_f32(reference),
        gradient=gradient or by_decomposition(decompose),
        decompose=decompose,
        cases=LateCases(
            lambda: tuple(Case((shape,), given, domain, tolerance=tolerance) for given in variants for shape in SHAPES)
        ),
        properties=frozenset({"elementwise", *properties}),
    )


def _float(name: str, default: float) -> tuple[AttributeSpec, ...]:
    return (AttributeSpec(name, "float", default),)


def _softplus(x: Any) -> Any:
    return greater_of(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Any) -> Any:
    # exp of a negative number only: neither branch overflows.
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def _sigmoid_term(x: Term) -> Term:
    # With e = exp(-|x|), which does not overflow, e / (1 + e) = e - e * (e / (1 + e)): the rounding error of the last
    # term matters less, the smaller the result is. The other half is sigmoid(x) = 1 - sigmoid(-x).
    decay = (-x.abs()).exp()
    below = decay - decay * (decay / (decay + 1))
    return x.less(0).select(below, 1 - below)


def _clamped(x: Term, low: float | None, high: float | None) -> Term:
    bounded = x if low is None else x.maximum(low)
    return bounded if high is None else bounded.minimum(high)


def _clip_array(x: Any, low: float | None, high: float | None) -> Any:
    bounded = x if low is None else greater_of(x, low)
    return bounded if high is None else lesser_of(bounded, high)


def _infer_clip(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    low, high = attributes["low"], attributes["high"]
    dtype = types[0].dtype
    if low is not None and high is not None and low > high:
        raise InferenceError("bad-attribute", f"`clip` has low {low} above high {high}")
    if dtype.is_integer:
        least, greatest = integer_range(dtype)
        for bound in (low, high):
            if bound is not None and not (bound == int(bound) and least <= bound <= greatest):
                raise InferenceError("bad-attribute", f"`clip` has the bound {bound}, which {dtype} cannot represent")
    return (types[0],)


def _clip_gradient(x: Term, r: Term, g: Term, low: float | None, high: float | None) -> Term:
    for bound, inside in ((low, "greater_equal"), (high, "less_equal")):
        if bound is not None:
            g = getattr(x, inside)(bound).select(g, 0.0)
    return g


_ONE = SHAPES[:1]
_CLIP = decomposition(_clamped, exact=True)

clip = Operator(
    name="clip",
    summary="x clipped to the range from `low` to `high`",
    operands=(Operand("x", NUMBERS),),
    attributes=(AttributeSpec("low", "float?", None), AttributeSpec("high", "float?", None)),
    infer=_infer_clip,
    reference=through_f32(_clip_array),
    gradient=gradient_of(_clip_gradient),
    decompose=_CLIP,
    cases=LateCases(
        lambda: tuple(
            Case((shape,), {"low": low, "high": high})
            for low, high, shapes in (
                (0, 1, SHAPES),
                (1, None, SHAPES[:1]),
                (None, 1, SHAPES[:1]),
                (None, None, SHAPES[:1]),
            )
            for shape in shapes
        )
    ),
    properties=frozenset({"elementwise", "idempotent"}),
)


def _infer_prelu(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, slope = types
    if broadcast_shapes([x.shape, slope.shape], "prelu") != x.shape:
        raise InferenceError(
            "shape-mismatch",
            f"`prelu` cannot broadcast the slope {format_shape(slope.shape)} to {format_shape(x.shape)}",
            operand=1,
        )
    return (x,)


_PRELU = decomposition(lambda x, slope: x.greater(0).select(x, slope * x))

prelu = Operator(
    name="prelu",
    summary="x where it is positive, else slope * x; the slope is a tensor and broadcasts to x",
    operands=(Operand("x", FLOATS), Operand("slope", FLOATS)),
    infer=_infer_prelu,
    reference=through_f32(lambda x, slope: np.where(x > 0, x, slope * x)),
    gradient=by_decomposition(_PRELU),
    decompose=_PRELU,
    cases=LateCases(
        lambda: tuple(
            Case(shapes)
            for shapes in (
                ((3, 5), (5,)),
                ((), ()),
                ((1,), (1,)),
                ((0, 3), (3,)),
                ((2, 3, 7), (3, 1)),
                ((3, 5), (3, 5)),
            )
        )
    ),
    properties=frozenset({"elementwise"}),
)


def _gelu_array(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x)))


def _gelu(x: Term, approximate: str) -> Term:
    if approximate == "none":
        return 0.5 * x * ((x * math.sqrt(0.5)).erf() + 1)
    return 0.5 * x * ((_TANH_SCALE * (x + _TANH_CUBE * x * x * x)).tanh() + 1)


def _gelu_gradient(x: Term, r: Term, g: Term, approximate: str) -> Term:
    if approximate == "none":
        density = (-0.5 * x * x).exp() * (1 / math.sqrt(2 * math.pi))
        return g * (0.5 * ((x * math.sqrt(0.5)).erf() + 1) + x * density)
    t = (_TANH_SCALE * (x + _TANH_CUBE * x * x * x)).tanh()
    return g * 0.5 * (t + 1 + x * (1 - t * t) * (_TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x)))


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
"""https://arxiv.org/abs/1606.08415"""
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
"""https://arxiv.org/abs/1706.02515"""


def _elu(x: Term, alpha: float) -> Term:
    # The exponential in the branch that is not selected must not overflow: its gradient would be 0 * inf.
    return x.greater(0).select(x, alpha * x.minimum(0).expm1())


def _elu_array(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(lesser_of(x, 0)))


def _celu(x: Term, alpha: float) -> Term:
    return x.greater(0).select(x, alpha * (x.minimum(0) / alpha).expm1())


def _celu_array(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(lesser_of(x, 0) / alpha))


def _soft_shrink(x: Term, threshold: float) -> Term:
    return x.greater(threshold).select(x - threshold, x.less(-threshold).select(x + threshold, x * 0.0))


def _soft_shrink_array(x: Any, threshold: float) -> Any:
    return np.where(x > threshold, x - threshold, np.where(x < -threshold, x + threshold, x * 0))


_IDEMPOTENT = ["idempotent"]
_WIDE = (-8.0, 8.0)

# fmt: off
OPERATORS = (
    _activation("relu", "max(x, 0)", lambda x: greater_of(x, 0), lambda x: x.maximum(0),
                gradient_of(lambda x, r, g: x.greater(0).select(g, 0.0)), dtypes=NUMBERS,
                exact=True, properties=_IDEMPOTENT),
    _activation("relu6", "x clipped to the range from 0 to 6",
                lambda x: _clip_array(x, 0, 6), lambda x: _clamped(x, 0, 6),
                gradient_of(lambda x, r, g: x.greater(0).logical_and(x.less(6)).select(g, 0.0)),
                exact=True, properties=_IDEMPOTENT, domain=_WIDE),
    _activation("leaky_relu", "x where it is positive, else slope * x",
                lambda x, slope: np.where(x > 0, x, slope * x), lambda x, slope: x.greater(0).select(x, x * slope),
                attributes=_float("slope", 0.01), variants=({}, {"slope": 0.3})),
    prelu,
    _activation("elu", "x where it is positive, else alpha * (exp(x) - 1)", _elu_array, _elu,
                attributes=_float("alpha", 1.0), variants=({}, {"alpha": 0.7})),
    _activation("selu", "elu with the scales that preserve mean 0 and variance 1",
                lambda x: _SELU_SCALE * _elu_array(x, _SELU_ALPHA), lambda x: _SELU_SCALE * _elu(x, _SELU_ALPHA)),
    _activation("celu", "x where it is positive, else alpha * (exp(x / alpha) - 1)", _celu_array, _celu,
                attributes=_float("alpha", 1.0), variants=({}, {"alpha": 0.7})),
    _activation("gelu", "x times the normal distribution function of x, computed with erf or approximated with tanh",
                _gelu_array, _gelu,
                gradient_of(_gelu_gradient), variants=({}, {"approximate": "tanh"}),
                attributes=(AttributeSpec("approximate", "str", "none", ("none", "tanh")),)),
    _activation("quick_gelu", "x * sigmoid(1.702 * x)", lambda x: x * _sigmoid(1.702 * x),
                lambda x: x * (1.702 * x).sigmoid()),
    _activation("sigmoid", "1 / (1 + exp(-x))", _sigmoid, _sigmoid_term,
                gradient_of(lambda x, r, g: g * r * (1 - r)), domain=_WIDE),
    _activation("silu", "x * sigmoid(x)", lambda x: x * _sigmoid(x), lambda x: x * x.sigmoid()),
    _activation("softplus", "log(1 + exp(x))", _softplus, lambda x: x.maximum(0) + (-x.abs()).exp().log1p(),
                gradient_of(lambda x, r, g: g * x.sigmoid()), domain=_WIDE),
    _activation("log_sigmoid", "log(sigmoid(x))", lambda x: lesser_of(x, 0) - np.log1p(np.exp(-np.abs(x))),
                lambda x: x.minimum(0) - (-x.abs()).exp().log1p(),
                gradient_of(lambda x, r, g: g * (-x).sigmoid()), domain=_WIDE),
    _activation("mish", "x * tanh(softplus(x))", lambda x: x * np.tanh(_softplus(x)),
                lambda x: x * x.softplus().tanh()),
    _activation("softsign", "x / (1 + |x|)", lambda x: x / (1 + np.abs(x)), lambda x: x / (x.abs() + 1)),
    _activation("tanh_shrink", "x - tanh(x)", lambda x: x - np.tanh(x), lambda x: x - x.tanh(),
                # Cancellation: the difference is small where its terms are not.
                tolerance=32.0),
    _activation("soft_shrink", "x moved toward 0 by `threshold`; 0 where |x| is at most `threshold`",
                _soft_shrink_array, _soft_shrink,
                attributes=_float("threshold", 0.5), variants=({}, {"threshold": 1.25})),
    _activation("hard_swish", "x * relu6(x + 3) / 6", lambda x: x * _clip_array(x + 3, 0, 6) / 6,
                lambda x: x * _clamped(x + 3, 0, 6) / 6, domain=_WIDE),
    _activation("hard_sigmoid", "relu6(x + 3) / 6", lambda x: _clip_array(x + 3, 0, 6) / 6,
                lambda x: _clamped(x + 3, 0, 6) / 6, domain=_WIDE),
    _activation("hard_tanh", "x clipped to the range from `low` to `high`", _clip_array, _clamped,
                gradient_of(_clip_gradient), attributes=(*_float("low", -1.0), *_float("high", 1.0)),
                variants=({}, {"low": -0.5, "high": 1.5}), exact=True, properties=_IDEMPOTENT),
    clip,
)
# fmt: on
