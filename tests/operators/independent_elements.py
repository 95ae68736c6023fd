"""Operators on single elements, by Python's own numbers and the C library's functions: no numpy computes anything here.

Integers are exact and wrap around when they are stored.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from nacre.dialect.types import F8E4M3, F8E5M2, F16, F32, Array, DType, dtype_of

Function = Callable[..., Any]
"""`function(*arrays, **attributes)` gives an array of Python numbers, or several."""


GREATEST: Mapping[DType, float] = {F8E4M3: 448.0, F8E5M2: 57344.0}
"""Where floats of 8 bits saturate, infinities too."""


def stored(values: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Python numbers as an array: integers wrap around, floats are rounded once."""
    if dtype.is_integer:
        wrapped = np.array([int(v) % (1 << dtype.bits) for v in values], np.uint64)
        return wrapped.astype(f"u{dtype.bits // 8}").view(dtype.numpy).reshape(shape)
    if dtype in GREATEST:
        values = [min(max(v, -GREATEST[dtype]), GREATEST[dtype]) for v in values]
    return np.asarray([float(v) if dtype.is_float else bool(v) for v in values]).astype(dtype.numpy).reshape(shape)


def each(function: Callable[..., Any]) -> Function:
    """Applies a function of numbers element by element, after broadcasting."""

    def computed(*arrays: Array, **attributes: Any) -> Any:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        rows = [np.broadcast_to(a, shape).ravel().tolist() for a in arrays]
        result = np.empty(math.prod(shape), object)
        for i, numbers in enumerate(zip(*rows, strict=True)):
            result[i] = _real(function, numbers, attributes)
        return result.reshape(shape)

    return computed


def _real(function: Callable[..., Any], numbers: Any, attributes: Mapping[str, Any]) -> Any:
    try:
        return function(*numbers, **attributes)
    except OverflowError:
        return math.copysign(math.inf, numbers[0])
    except ValueError:
        return math.nan


def exact(function: Callable[[Fraction, Fraction], Any]) -> Function:
    """A function of two numbers computed with fractions; an integer divided by 0 is 0."""

    def of_two(x: Any, y: Any) -> Any:
        if y == 0:
            assert isinstance(y, int), "no case divides a float by 0"
            return 0
        value = function(Fraction(x), Fraction(y))
        return int(value) if isinstance(x, int) else float(value)

    return each(of_two)


def _power(x: Any, y: Any) -> Any:
    if isinstance(x, int) and y < 0:
        return x ** (y & 1) if x in (1, -1) else 0
    return pow(x, y, 1 << 64) if isinstance(x, int) else math.pow(x, y)


def shifted(left: bool) -> Function:
    def computed(x: Array, y: Array) -> Any:
        bits = dtype_of(x).bits

        def one(a: int, n: int) -> int:
            if not 0 <= n < bits:
                return 0 if left or a >= 0 else -1
            return a << n if left else a >> n

        return each(one)(x, y)

    return computed


def _bits(of_bools: Callable[[Any, Any], Any]) -> Function:
    return each(lambda x, y: of_bools(x, y))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_FORMATS = {F16: "e", F32: "f"}


def _cast(x: Array, dtype: DType) -> Any:
    def one(value: Any) -> Any:
        if dtype.is_integer and isinstance(value, float):
            low, high = (0, (1 << dtype.bits) - 1) if not dtype.is_signed else _signed(dtype)
            return 0 if math.isnan(value) else low if value <= low else high if value >= high else math.trunc(value)
        if dtype in _FORMATS and not isinstance(value, bool):
            return struct.unpack(_FORMATS[dtype], struct.pack(_FORMATS[dtype], float(value)))[0]
        return value

    # f16 and bf16 have no Python numbers of their own, but every one of them is a float.
    return each(one)(x.astype(np.float64) if dtype_of(x).is_float else x)


def _signed(dtype: DType) -> tuple[int, int]:
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _range(dtype: DType) -> tuple[int, int]:
    return _signed(dtype) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


def _f32(value: float) -> float:
    """The nearest f32. Overflows become infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _encoded(scaled: float, zero: int, dtype: DType) -> float:
    if dtype.is_float:
        return scaled
    low, high = _range(dtype)
    if math.isnan(scaled):
        return min(max(zero, low), high)
    return high if scaled == math.inf else low if scaled == -math.inf else min(max(round(scaled) + zero, low), high)


def _quantize(x: Array, scale: Array, zero: Array | None = None, *, dtype: DType) -> Any:
    def one(value: float, step: float, middle: int) -> float:
        inverse = _f32(1 / step) if step else math.inf
        return _encoded(_f32(_f32(value) * inverse), middle, dtype)

    return each(one)(x.astype(np.float64), scale, np.zeros((), int) if zero is None else zero)


def _requantize(
    total: Array, multiplier: Array, zero: Array | None = None, offset: Array | None = None, *, dtype: DType
) -> Any:
    def one(value: float, factor: float, middle: int, shift: float) -> float:
        # A product of two f32 is exact in f64, and so is rounded once.
        return _encoded(_f32(_f32(_f32(value) * factor) + shift), middle, dtype)

    nothing = np.zeros((), np.float32)
    return each(one)(
        total, multiplier, np.zeros((), int) if zero is None else zero, nothing if offset is None else offset
    )


def _dequantize(q: Array, scale: Array, zero: Array | None = None, *, dtype: DType) -> Any:
    codes = q.astype(np.float64) if dtype_of(q).is_float else q
    return each(lambda c, s, z: (c - z) * s)(
        codes, scale.astype(np.float64), np.zeros((), int) if zero is None else zero
    )


def _fixed_point_multiply(x: Array, multiplier: Array, exponent: Array, *, rounding: str) -> Any:
    half = Fraction(1, 2)

    def one(value: int, factor: int, power: int) -> int:
        least, greatest = -(1 << 31), (1 << 31) - 1
        if rounding == "once":
            return max(least, min(math.floor(value * factor * Fraction(2) ** (power - 31) + half), greatest))
        high = min(math.floor(Fraction(value * 2 ** max(power, 0) * factor, 1 << 31) + half), greatest)
        quotient = Fraction(high, 1 << max(-power, 0))
        return math.floor(quotient + half) if quotient >= 0 else math.ceil(quotient - half)

    return each(one)(x, multiplier, exponent)


ELEMENTS: Mapping[str, Function] = {
    "add": each(operator.add),
    "subtract": each(operator.sub),
    "multiply": each(operator.mul),
    "divide": exact(operator.truediv),
    "floor_divide": exact(operator.floordiv),
    "remainder": exact(operator.mod),
    "power": each(_power),
    "maximum": each(max),
    "minimum": each(min),
    "atan2": each(math.atan2),
    "squared_difference": each(lambda x, y: (x - y) * (x - y)),
    "bitwise_and": _bits(operator.and_),
    "bitwise_or": _bits(operator.or_),
    "bitwise_xor": _bits(operator.xor),
    "shift_left": shifted(left=True),
    "shift_right": shifted(left=False),
    "equal": each(operator.eq),
    "not_equal": each(operator.ne),
    "less": each(operator.lt),
    "less_equal": each(operator.le),
    "greater": each(operator.gt),
    "greater_equal": each(operator.ge),
    "logical_and": each(lambda x, y: bool(x) and bool(y)),
    "logical_or": each(lambda x, y: bool(x) or bool(y)),
    "logical_xor": each(lambda x, y: bool(x) is not bool(y)),
    "logical_not": each(operator.not_),
    "isnan": each(lambda x: math.isnan(x)),
    "isinf": each(lambda x: math.isinf(x)),
    "isfinite": each(lambda x: math.isfinite(x)),
    "where": each(lambda chosen, x, y: x if chosen else y),
    "negate": each(operator.neg),
    "abs": each(abs),
    "sign": each(lambda x: (x > 0) - (x < 0)),
    "square": each(lambda x: x * x),
    "bitwise_not": each(lambda x: not x if isinstance(x, bool) else ~x),
    "ceil": each(math.ceil),
    "floor": each(math.floor),
    "round": each(round),
    "trunc": each(math.trunc),
    "sqrt": each(math.sqrt),
    "rsqrt": each(lambda x: 1 / math.sqrt(x)),
    "cbrt": each(math.cbrt),
    "reciprocal": each(lambda x: float(1 / Fraction(x))),
    "exp": each(math.exp),
    "exp2": each(math.exp2),
    "expm1": each(math.expm1),
    "log": each(math.log),
    "log2": each(math.log2),
    "log10": each(math.log10),
    "log1p": each(math.log1p),
    "sin": each(math.sin),
    "cos": each(math.cos),
    "tan": each(math.tan),
    "asin": each(math.asin),
    "acos": each(math.acos),
    "atan": each(math.atan),
    "sinh": each(math.sinh),
    "cosh": each(math.cosh),
    "tanh": each(math.tanh),
    "asinh": each(math.asinh),
    "acosh": each(math.acosh),
    "atanh": each(math.atanh),
    "erf": each(math.erf),
    "erfc": each(math.erfc),
    "cast": _cast,
    "bitcast": lambda x, dtype: np.frombuffer(x.tobytes(), dtype.numpy).reshape(x.shape),
    "quantize": _quantize,
    "requantize": _requantize,
    "fixed_point_multiply": _fixed_point_multiply,
    "dequantize": _dequantize,
    "sigmoid": each(_sigmoid),
    "log_sigmoid": each(lambda x: -math.log1p(math.exp(-x))),
    "softsign": each(lambda x: float(Fraction(x) / (1 + abs(Fraction(x))))),
    "tanh_shrink": each(lambda x: x - math.tanh(x)),
}
