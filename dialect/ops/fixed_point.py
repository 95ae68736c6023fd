"""Products of integers with fixed-point numbers, as integer-only inference computes them.

    x * multiplier * 2 ** (exponent - 31), rounded once with halves upwards, or twice:
    high   = round(x * 2 ** max(exponent, 0) * multiplier / 2 ** 31)     halves upwards, saturated to i32
    result = round(high / 2 ** max(-exponent, 0))                        halves away from zero

See Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018.
The product by a power of two wraps, as the reference of the operator shows. Exponents are in -62..30; a product that is
rounded once saturates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..emitter import Scalar, ScalarEmitter, clamp
from ..operator import Attributes, AttributeSpec, Case, Operand, Operator
from ..types import I32, I64, TensorType
from .support.accumulate import Numbers
from .support.common import broadcast_shapes, elementwise_properties, lower_elementwise

_BITS = 31


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    return (TensorType(I32, broadcast_shapes([type.shape for type in types], "fixed_point_multiply")),)


def _reference(x: Numbers, multiplier: Numbers, exponent: Numbers, *, rounding: str) -> Numbers:
    if rounding == "once":
        shift = np.asarray(_BITS - exponent, np.int64)
        product = x.astype(np.int64) * multiplier + (np.int64(1) << np.minimum(shift - 1, 62))
        whole = product >> np.minimum(shift, 63)
        return np.clip(whole, -(1 << _BITS), (1 << _BITS) - 1).astype(np.int32)
    left, right = np.maximum(exponent, 0), np.maximum(-exponent, 0).astype(np.int64)
    large = (x << left).astype(np.int64)
    high = np.minimum((large * multiplier + (1 << (_BITS - 1))) >> _BITS, (1 << _BITS) - 1)
    half = (np.int64(1) << right) >> 1
    return np.asarray((high + half - ((high < 0) & (right > 0))) >> right).astype(np.int32)


def _lower(s: ScalarEmitter, x: Scalar, multiplier: Scalar, exponent: Scalar, *, rounding: str) -> Scalar:
    zero, one, bits = s.constant(0, I32), s.constant(1, I64), s.constant(_BITS, I64)
    if rounding == "once":
        shift = s.cast(s.binary("sub", s.constant(_BITS, I32), exponent), I64)
        half = s.binary("shl", one, s.binary("min", s.binary("sub", shift, one), s.constant(62, I64)))
        product = s.binary("mul", s.cast(x, I64), s.cast(multiplier, I64))
        whole = s.binary("shr", s.binary("add", product, half), shift)
        return s.cast(clamp(s, whole, *(s.constant(end, I64) for end in I32.integer_range)), I32)
    left = s.binary("max", exponent, zero)
    right = s.cast(s.binary("max", s.binary("sub", zero, exponent), zero), I64)
    product = s.binary("mul", s.cast(s.binary("shl", x, left), I64), s.cast(multiplier, I64))
    nearest = s.binary("add", product, s.constant(1 << (_BITS - 1), I64))
    high = s.binary("min", s.binary("shr", nearest, bits), s.constant((1 << _BITS) - 1, I64))
    half = s.binary("shr", s.binary("shl", one, right), one)
    # For right == 0 nothing is rounded: the half is 0 too.
    downwards = s.binary("min", s.binary("and", s.binary("shr", high, s.constant(63, I64)), one), half)
    return s.cast(s.binary("shr", s.binary("sub", s.binary("add", high, half), downwards), right), I32)


_CORNERS = np.asarray([0, 1, -1, 2, -2, 3, -3, 127, -128, 2**20 + 1, -(2**20), 2**31 - 1, -(2**31)], np.int32)


def _cases(x: Numbers, multiplier: Numbers | int, exponent: Numbers | int) -> tuple[Case, ...]:
    arrays = {i: np.asarray(each, np.int32) for i, each in enumerate((x, multiplier, exponent))}
    return tuple(Case((), {"rounding": rounding}, arrays=arrays) for rounding in ("twice", "once"))


def _ramp(*shape: int) -> Numbers:
    return (np.arange(int(np.prod(shape)), dtype=np.int32) * 7919 - 40_000).reshape(shape)


_CASES = (
    *(c for m in (2**30, 2**31 - 1, 1518500250, -(2**31)) for e in (-31, -9, -1, 0) for c in _cases(_CORNERS, m, e)),
    *_cases(_CORNERS[:9], 1518500250, 3),
    *_cases(_ramp(3, 5), np.asarray([1, 2**30, 1518500250, 2**31 - 1, 0]), np.asarray([0, -1, -4, -12, 1])),
    *_cases(_ramp(3, 5), np.abs(_ramp(3, 5)) * 20_000, -np.arange(15).reshape(3, 5)),
    *_cases(_ramp(17), 1073741825, -7),
    *_cases(_ramp(3, 1), _ramp(1, 3) * 20_000, -3),
    *_cases(_ramp(0, 3), 1073741825, -7),
    *_cases(_ramp(1), 1073741825, -7),
    *_cases(np.asarray(1000), 1073741825, -7),
)

fixed_point_multiply = Operator(
    name="fixed_point_multiply",
    summary="x times a fixed-point number, `x * multiplier * 2 ** (exponent - 31)`, rounded once with halves upwards, "
    "or twice: the high product with halves upwards, then its quotient by a power of two with halves away from zero",
    operands=(Operand("x", (I32,)), Operand("multiplier", (I32,)), Operand("exponent", (I32,))),
    attributes=(AttributeSpec("rounding", "str", "twice", choices=("twice", "once")),),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=lower_elementwise(_lower),
    cases=_CASES,
    properties=elementwise_properties(None, "stepped"),
)

OPERATORS = (fixed_point_multiply,)
"""The operators of this family."""
