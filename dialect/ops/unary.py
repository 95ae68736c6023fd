"""Elementwise operators of one operand: signs, rounding, roots, exponentials, circular and hyperbolic functions, casts.

Outside its domain a function gives NaN, at a pole an infinity, as in IEEE 754 and numpy. f16 and bf16 are computed in
f32 and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import Scalar, ScalarEmitter
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import (
    ANY,
    BF16,
    BOOL,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    STORAGE,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
)
from .support.algebra import Term, gradient_of
from .support.common import (
    SHAPES,
    elementwise_properties,
    lower_elementwise,
    same_type,
    through_f32,
)
from .support.conversion import cast_array
from .support.error_function import erf, erfc


def _unary(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    lower: str | Callable[[ScalarEmitter, Scalar], Scalar],
    derivative: Callable[[Term, Term, Term], Term | None] | None,
    *properties: str,
    dtypes: tuple[DType, ...] = FLOATS,
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Operator:
    """Builds the record from formulas; `derivative(x, result, gradient)` is None if it is zero."""

    def element(s: ScalarEmitter, x: Scalar) -> Scalar:
        return s.unary(lower, x) if isinstance(lower, str) else lower(s, x)

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes),),
        infer=same_type,
        reference=through_f32(reference),
        gradient=None if derivative is None else gradient_of(derivative),
        lower=lower_elementwise(element),
        cases=LateCases(lambda: tuple(Case((shape,), domain=domain) for shape in SHAPES)),
        properties=elementwise_properties(lower, *properties),
    )


_WITH_BITS = (*NUMBERS, *STORAGE)


def _reciprocal(s: ScalarEmitter, x: Scalar) -> Scalar:
    return s.binary("div", s.constant(1, x.dtype), x)


def _infer_cast(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(attributes["dtype"]),)


def _differentiate_cast(b: Builder, use: Use) -> Sequence[Value | None]:
    (x,) = use.inputs
    smooth = x.type.dtype.is_differentiable and use.gradient.type.dtype.is_differentiable
    return [b.cast(use.gradient, dtype=x.type.dtype) if smooth else None]


cast = Operator(
    name="cast",
    summary="x converted to another dtype; float to integer truncates and saturates, NaN becomes 0, integers wrap,"
    " and 8-bit floats saturate",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("dtype", "dtype"),),
    infer=_infer_cast,
    reference=cast_array,
    gradient=_differentiate_cast,
    lower=lower_elementwise(lambda s, x, dtype: s.cast(x, dtype)),
    cases=LateCases(
        lambda: tuple(
            # A rounded value has no finite differences.
            Case((shape,), {"dtype": dtype}, domain=(-300.0, 300.0), gradient=dtype is F64)
            for dtype in DTYPES.values()
            for shape in (SHAPES if dtype is F32 else (SHAPES[0], (17,)))
        )
    ),
    properties=frozenset({"elementwise", "conversion", "idempotent", "exact", "stepped"}),
)


def _infer_bitcast(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, dtype = types[0], attributes["dtype"]
    if dtype not in _WITH_BITS or dtype.bits != x.dtype.bits:
        message = f"`bitcast` reads the bits of {x.dtype} as a number of {x.dtype.bits} bits, not as {dtype}"
        raise InferenceError("dtype-mismatch", message, operand=0)
    return (x.with_dtype(dtype),)


bitcast = Operator(
    name="bitcast",
    summary="the bits of x as numbers of another dtype of the same width; `cast` converts the numbers instead",
    operands=(Operand("x", _WITH_BITS),),
    attributes=(AttributeSpec("dtype", "dtype"),),
    infer=_infer_bitcast,
    reference=lambda x, dtype: x.view(dtype.numpy),
    gradient=None,
    lower=lower_elementwise(lambda s, x, dtype: s.bits(x, dtype)),
    cases=LateCases(lambda: tuple(
        Case((shape,), {"dtype": target}, domain=(-300.0, 300.0), dtypes=(source,), gradient=False)
        for source, target, shape in (
            (F32, I32, (3, 5)), (F32, U32, (0, 4)), (I32, F32, (17,)), (F64, I64, (1,)), (U64, F64, ()),
            (F16, U16, (7,)), (I16, BF16, (7,)), (F8E4M3, I8, (7,)), (U8, F8E5M2, (9,)), (I64, U64, (5,)),
            (U32, F32, (7,)), (U16, F16, (9,)), (BF16, I16, (7,)), (I8, F8E4M3, (9,)), (F8E5M2, U8, (7,)),
        )
    )),
    properties=frozenset({"elementwise", "exact", "stepped", "bitwise"}),
)  # fmt: skip

_LOG_2, _LOG_10, _ERF = math.log(2.0), math.log(10.0), 2.0 / math.sqrt(math.pi)
_POSITIVE, _INSIDE, _ABOVE_1 = (0.1, 3.0), (-0.9, 0.9), (1.1, 3.0)
_BITS = (*INTEGERS, BOOL)


def _flat(x: Term, r: Term, g: Term) -> None:
    """Returns no derivative, for functions that are constant between steps."""


# fmt: off
OPERATORS = (
    _unary("negate", "-x", np.negative, "neg", lambda x, r, g: -g, "involution", "exact", dtypes=NUMBERS),
    _unary("abs", "the magnitude of x", np.abs, "abs", lambda x, r, g: g * x.sign(), "idempotent", "exact",
           dtypes=NUMBERS),
    _unary("sign", "the sign of x: -1, 0 or 1; NaN for NaN", np.sign, "sign", _flat, "idempotent", "exact",
           dtypes=NUMBERS),
    _unary("square", "x * x", np.square, lambda s, x: s.binary("mul", x, x), lambda x, r, g: 2 * g * x, "rounded",
           dtypes=NUMBERS),
    _unary("bitwise_not", "every bit of x inverted", np.invert, "not", None, "involution", dtypes=_BITS),

    _unary("ceil", "the least integer greater than or equal to x", np.ceil, "ceil", _flat, "idempotent", "exact"),
    _unary("floor", "the greatest integer less than or equal to x", np.floor, "floor", _flat, "idempotent", "exact"),
    _unary("round", "the nearest integer; ties round to even", np.rint, "round", _flat, "idempotent", "exact"),
    _unary("trunc", "x rounded toward zero", np.trunc, "trunc", _flat, "idempotent", "exact"),

    _unary("sqrt", "the square root of x", np.sqrt, "sqrt", lambda x, r, g: 0.5 * g / r, "rounded", domain=_POSITIVE),
    _unary("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), "rsqrt",
           lambda x, r, g: -0.5 * g * r / x, domain=_POSITIVE),
    _unary("cbrt", "the cube root of x, also for negative x", np.cbrt, "cbrt", lambda x, r, g: g / (3 * r * r),
           domain=_POSITIVE),
    _unary("reciprocal", "1 / x", lambda x: 1 / x, _reciprocal, lambda x, r, g: -g * r * r, "rounded",
           domain=_POSITIVE),

    _unary("exp", "e ** x", np.exp, "exp", lambda x, r, g: g * r),
    _unary("exp2", "2 ** x", np.exp2, "exp2", lambda x, r, g: g * r * _LOG_2),
    _unary("expm1", "e ** x - 1, accurate near 0", np.expm1, "expm1", lambda x, r, g: g * (r + 1)),
    _unary("log", "the natural logarithm of x", np.log, "log", lambda x, r, g: g / x, domain=_POSITIVE),
    _unary("log2", "the logarithm of x to base 2", np.log2, "log2", lambda x, r, g: g / (x * _LOG_2), domain=_POSITIVE),
    _unary("log10", "the logarithm of x to base 10", np.log10, "log10", lambda x, r, g: g / (x * _LOG_10),
           domain=_POSITIVE),
    _unary("log1p", "log(1 + x), accurate near 0", np.log1p, "log1p", lambda x, r, g: g / (x + 1), domain=_INSIDE),

    _unary("sin", "the sine of x in radians", np.sin, "sin", lambda x, r, g: g * x.cos()),
    _unary("cos", "the cosine of x in radians", np.cos, "cos", lambda x, r, g: -g * x.sin()),
    _unary("tan", "the tangent of x in radians", np.tan, "tan", lambda x, r, g: g * (r * r + 1), domain=_INSIDE),
    _unary("asin", "the arc sine of x, in radians", np.arcsin, "asin", lambda x, r, g: g * (1 - x * x).rsqrt(),
           domain=_INSIDE),
    _unary("acos", "the arc cosine of x, in radians", np.arccos, "acos", lambda x, r, g: -g * (1 - x * x).rsqrt(),
           domain=_INSIDE),
    _unary("atan", "the arc tangent of x, in radians", np.arctan, "atan", lambda x, r, g: g / (x * x + 1)),
    _unary("sinh", "the hyperbolic sine of x", np.sinh, "sinh", lambda x, r, g: g * x.cosh()),
    _unary("cosh", "the hyperbolic cosine of x", np.cosh, "cosh", lambda x, r, g: g * x.sinh()),
    _unary("tanh", "the hyperbolic tangent of x", np.tanh, "tanh", lambda x, r, g: g * (1 - r * r)),
    _unary("asinh", "the inverse hyperbolic sine of x", np.arcsinh, "asinh", lambda x, r, g: g * (x * x + 1).rsqrt()),
    _unary("acosh", "the inverse hyperbolic cosine of x", np.arccosh, "acosh", lambda x, r, g: g * (x * x - 1).rsqrt(),
           domain=_ABOVE_1),
    _unary("atanh", "the inverse hyperbolic tangent of x", np.arctanh, "atanh", lambda x, r, g: g / (1 - x * x),
           domain=_INSIDE),
    _unary("erf", "the error function of x", erf, "erf", lambda x, r, g: g * (_ERF * (-x * x).exp())),
    _unary("erfc", "1 - erf(x), accurate where the result is small", erfc, "erfc",
           lambda x, r, g: -g * (_ERF * (-x * x).exp())),
    cast,
    bitcast,
)
# fmt: on
