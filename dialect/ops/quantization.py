"""Numbers as integers of few bits with a scale and an optional zero point: quantize, dequantize, and requantize.

A quantized value `q` represents `(q - zero) * scale`. Scales and zero points broadcast against the tensor: one for all
of it, for each channel, or for each row. Rounding is to the nearest integer, halves to even, after one product in f32
(and one addition, for sums), so that compiled code in any form can match these references bit for bit. NaN counts as 0,
and infinities saturate.

    quantize(0.3, scale=0.1, zero=128) == 131        dequantize(131, scale=0.1, zero=128) == 0.3 up to rounding

8-bit floats are quantized values too, and represent themselves times a scale: there is no zero point, rounding is that
of `cast`, and NaN stays NaN.

A quantized value has no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..emitter import Scalar, ScalarEmitter, clamp
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, FLOATS, I8, I16, I32, STORAGE, U8, DType, TensorType, dtype_of
from .support.accumulate import Numbers
from .support.common import (
    broadcast_shapes,
    elementwise_properties,
    integer_range,
    lower_elementwise,
    sum_to,
)
from .support.conversion import cast_array

STEPS = (I8, U8, I16)
"""The integer dtypes of quantized values, which may have a zero point."""
CODES = (*STEPS, *STORAGE)
"""The dtypes of quantized values."""


def _shape(operator: str, types: Sequence[TensorType]) -> TensorType:
    """Returns the type of the first operand. Raises InferenceError if the others do not broadcast to it."""
    x = types[0]
    for number, type in enumerate(types[1:], 1):
        if broadcast_shapes([x.shape, type.shape], operator) != x.shape:
            raise InferenceError(
                "shape-mismatch",
                f"`{operator}` cannot broadcast {type} to {x}",
                label=f"this is {type}",
                operand=number,
            )
    return x


def _check_zero(operator: str, types: Sequence[TensorType], dtype: DType) -> None:
    if len(types) > 2 and dtype.is_storage:
        raise InferenceError(
            "dtype-mismatch",
            f"quantized values of {dtype} have no zero point: 0 is one of them",
            label=f"this is {types[2]}",
            operand=2,
            help=f"leave it out: `{operator}` gives the same for 0",
        )
    if len(types) > 2 and types[2].dtype != dtype:
        raise InferenceError(
            "dtype-mismatch",
            f"the zero point of `{operator}` must be {dtype}, the dtype of the quantized values",
            label=f"this is {types[2]}",
            operand=2,
        )


def _infer_codes(
    operator: str, types: Sequence[TensorType], attributes: Attributes, codes: Sequence[DType] = CODES
) -> tuple[TensorType, ...]:
    dtype: DType = attributes["dtype"]
    if dtype not in codes:
        choices = " or ".join(map(str, codes))
        raise InferenceError("bad-attribute", f"`dtype` of `{operator}` is {dtype}, expected {choices}")
    _check_zero(operator, types, dtype)
    return (_shape(operator, types).with_dtype(dtype),)


def _infer_numbers(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype: DType = attributes["dtype"]
    if not dtype.is_float:
        raise InferenceError("bad-attribute", f"`dtype` of `dequantize` is {dtype}, expected a float")
    _check_zero("dequantize", types, types[0].dtype)
    return (_shape("dequantize", types).with_dtype(dtype),)


# References


def _encode(scaled: Numbers, zero: Numbers | None, dtype: DType) -> Numbers:
    """Rounds scaled f32 numbers to quantized values."""
    if dtype.is_storage:
        return cast_array(scaled, dtype)
    steps = np.rint(scaled)
    if zero is not None:
        steps = np.where(np.isnan(steps), np.float32(0), steps) + zero.astype(np.float32)
    return cast_array(steps, dtype)


def _quantize(x: Numbers, scale: Numbers, zero: Numbers | None = None, *, dtype: DType) -> Numbers:
    inverse = np.float32(1) / scale.astype(np.float32)
    return _encode(x.astype(np.float32) * inverse, zero, dtype)


def _requantize(
    total: Numbers, multiplier: Numbers, zero: Numbers | None = None, offset: Numbers | None = None, *, dtype: DType
) -> Numbers:
    scaled = total.astype(np.float32) * multiplier.astype(np.float32)
    return _encode(scaled if offset is None else scaled + offset.astype(np.float32), zero, dtype)


def _dequantize(q: Numbers, scale: Numbers, zero: Numbers | None = None, *, dtype: DType) -> Numbers:
    wide = (F64 if scale.dtype == F64.numpy else F32).numpy
    steps = q if dtype_of(q).is_float else q.astype(np.int32)
    if zero is not None:
        steps = steps - zero.astype(np.int32)
    return cast_array(np.asarray(steps.astype(wide) * scale.astype(wide)), dtype)


# Lowerings


def _lower_encoded(s: ScalarEmitter, scaled: Scalar, zero: Scalar | None, dtype: DType) -> Scalar:
    """Clamps values to the range before rounding, which is equivalent to clamping afterwards."""
    if dtype.is_storage:
        return s.cast(scaled, dtype)
    ends: list[Scalar] = [s.constant(end, F32) for end in integer_range(dtype)]
    if zero is not None:
        ends = [s.binary("sub", end, s.cast(zero, F32)) for end in ends]
    inside = clamp(s, scaled, *ends)
    known = s.select(s.compare("eq", inside, inside), inside, s.constant(0, F32))
    code = s.whole(s.unary("round", known), I32)
    if zero is not None:
        code = s.binary("add", code, s.cast(zero, I32))
    return s.cast(code, dtype)


def _lower_quantize(s: ScalarEmitter, x: Scalar, scale: Scalar, zero: Scalar | None = None, *, dtype: DType) -> Scalar:
    inverse = s.binary("div", s.constant(1, F32), scale)
    return _lower_encoded(s, s.binary("mul", s.cast(x, F32), inverse), zero, dtype)


def _lower_requantize(
    s: ScalarEmitter,
    total: Scalar,
    multiplier: Scalar,
    zero: Scalar | None = None,
    offset: Scalar | None = None,
    *,
    dtype: DType,
) -> Scalar:
    scaled = s.binary("mul", s.cast(total, F32), multiplier)
    return _lower_encoded(s, scaled if offset is None else s.binary("add", scaled, offset), zero, dtype)


def _lower_dequantize(
    s: ScalarEmitter, q: Scalar, scale: Scalar, zero: Scalar | None = None, *, dtype: DType
) -> Scalar:
    wide = F64 if scale.dtype is F64 else F32
    steps = q if q.dtype.is_storage else s.cast(q, I32)
    if zero is not None:
        steps = s.binary("sub", steps, s.cast(zero, I32))
    return s.cast(s.binary("mul", s.cast(steps, wide), s.cast(scale, wide)), dtype)


def _differentiate_dequantize(b: Builder, use: Use) -> Sequence[Value | None]:
    q, scale, *zero = use.inputs
    # d (q - zero) * scale / d scale == q - zero
    dtype = F64 if scale.type.dtype is F64 else F32
    steps = b.dequantize(q, b.scalar(1.0, dtype), *zero, dtype=dtype)
    whole = sum_to(b, b.multiply(b.cast(use.gradient, dtype=dtype), steps), scale.type.shape)
    return [None, b.cast(whole, dtype=scale.type.dtype), *(None for _ in zero)]


# Cases

_SPECIAL = np.asarray(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.5, 128.5, -128.5, 4e4, -4e4, 1e-7]
)
"""Ties, and values out of every range."""
_ONE = np.asarray(1.0, np.float32)
_SCALES: Mapping[tuple[int, ...], Any] = {
    (): np.asarray(0.013, np.float32),
    (5,): np.asarray([0.1, 0.02, 1e-3, 3.0, 0.0], np.float32),
    (3, 1): np.asarray([[0.1], [0.02], [1e-30]], np.float32),
    (2, 3, 1): np.linspace(0.001, 0.1, 6, dtype=np.float32).reshape(2, 3, 1),
    (0, 1): np.zeros((0, 1), np.float32),
}
_SHAPES = (
    ((), ()),
    ((17,), ()),
    ((5,), (5,)),
    ((3, 5), (3, 1)),
    ((2, 3, 7), (2, 3, 1)),
    ((0, 3), (0, 1)),
    ((1, 1), ()),
)


def _zeros(dtype: DType, shape: tuple[int, ...]) -> Any:
    middle = 128 if dtype is U8 else -3
    return np.arange(middle, middle + int(np.prod(shape))).astype(dtype.numpy).reshape(shape)


def _encoding_cases(first: Any, domain: tuple[float, float] = (-2.0, 2.0)) -> tuple[Case, ...]:
    """Returns cases of operators that produce integer quantized values; `first` is an operand with the corner cases."""
    cases = []
    for dtype in STEPS:
        for zero in (False, True):
            given = {0: first, 1: _ONE} | ({2: _zeros(dtype, ())} if zero else {})
            cases.append(Case(((),) * len(given), {"dtype": dtype}, arrays=given))
        for shape, scales in _SHAPES:
            arrays = {1: _SCALES[scales], 2: _zeros(dtype, scales)}
            cases.append(Case((shape, scales, scales), {"dtype": dtype}, arrays=arrays, domain=domain))
    return tuple(cases)


def _float_cases() -> tuple[Case, ...]:
    """Returns cases of operators that produce 8-bit floats."""
    cases = []
    for dtype in STORAGE:
        largest = dtype.float_format.largest
        corners = np.asarray([*_SPECIAL, 464.0, 465.0, 61440.0, 2.0**-10, 3 * 2.0**-10, 2.0**-17, 3 * 2.0**-17, 1.0625])
        cases.append(Case(((), ()), {"dtype": dtype}, arrays={0: corners, 1: _ONE}))
        for shape, scales in _SHAPES:
            arrays = {1: _SCALES[scales]}
            cases.append(
                Case((shape, scales), {"dtype": dtype}, arrays=arrays, domain=(-0.02 * largest, 0.02 * largest))
            )
    return tuple(cases)


def _decoding_cases() -> tuple[Case, ...]:
    cases = []
    for dtype in STORAGE:
        for shape, scales in _SHAPES:
            cases.append(Case((shape, scales), mixed={0: dtype}, domain=(0.01, 0.1)))
    for dtype in STEPS:
        mixed = {0: dtype, 2: dtype}
        for shape, scales in _SHAPES:
            arrays = {2: _zeros(dtype, scales)}
            cases.append(Case((shape, scales, scales), arrays=arrays, mixed=mixed, domain=(0.01, 0.1)))
        cases.append(Case(((9,), ()), {"dtype": F32}, mixed=mixed, domain=(0.01, 0.1)))
    return tuple(cases)


def _offset_cases() -> tuple[Case, ...]:
    cases = []
    for dtype in STEPS:
        for shape, scales in _SHAPES:
            arrays = {1: _SCALES[scales], 2: _zeros(dtype, ()), 3: _SCALES[scales] * 100 - 1}
            cases.append(Case((shape, scales, (), scales), {"dtype": dtype}, arrays=arrays))
    return tuple(cases)


quantize = Operator(
    name="quantize",
    summary="x quantized to integers, `saturate(round(x * (1 / scale)) + zero)` with ties to even, or to 8-bit "
    "floats, `cast(x * (1 / scale))`",
    operands=(
        Operand("x", FLOATS),
        Operand("scale", (F32,), "scale"),
        Operand("zero", STEPS, "codes", optional=True),
    ),
    attributes=(AttributeSpec("dtype", "dtype", I8),),
    infer=lambda types, attributes: _infer_codes("quantize", types, attributes),
    reference=_quantize,
    gradient=None,
    lower=lower_elementwise(_lower_quantize),
    cases=LateCases(lambda: _encoding_cases(_SPECIAL) + _float_cases()),
    properties=elementwise_properties(None, "conversion", "stepped"),
)

requantize = Operator(
    name="requantize",
    summary="an integer sum of quantized products, quantized again with another scale: `saturate(round(total * "
    "multiplier + offset) + zero)`; `offset` is the bias divided by the result's scale",
    operands=(
        Operand("total", (I32,)),
        Operand("multiplier", (F32,), "multiplier"),
        Operand("zero", STEPS, "codes", optional=True),
        Operand("offset", (F32,), "multiplier", optional=True),
    ),
    attributes=(AttributeSpec("dtype", "dtype", I8),),
    infer=lambda types, attributes: _infer_codes("requantize", types, attributes, STEPS),
    reference=_requantize,
    gradient=None,
    lower=lower_elementwise(_lower_requantize),
    cases=LateCases(
        lambda: (
            *_encoding_cases(
                np.asarray([0, 1, -1, 127, 128, -128, -129, 255, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
            ),
            *_offset_cases(),
        )
    ),
    properties=elementwise_properties(None, "stepped"),
)

dequantize = Operator(
    name="dequantize",
    summary="the float values of a quantized tensor: `(q - zero) * scale`",
    operands=(
        Operand("q", CODES, "codes", mixed=True),
        Operand("scale", FLOATS),
        Operand("zero", STEPS, "codes", optional=True, mixed=True),
    ),
    attributes=(AttributeSpec("dtype", "dtype", F32),),
    infer=_infer_numbers,
    reference=_dequantize,
    gradient=_differentiate_dequantize,
    lower=lower_elementwise(_lower_dequantize),
    cases=LateCases(lambda: _decoding_cases()),
    properties=elementwise_properties(None, "conversion", "rounded"),
)

OPERATORS = (quantize, requantize, dequantize)
