"""Arithmetic of two operands, which are promoted to the dtype of the result as PyTorch promotes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

from .....dialect.types import F32, F64, I16, I32, I64, DType
from ...writing.tensors import Tensor
from ...writing.truncated import divide_truncated, remainder_of_dividend
from ..writing.use import Convert, Converters, Use

Combine: TypeAlias = Callable[[Use, Tensor, Tensor], Tensor]


def _pair(use: Use, dtype: DType) -> tuple[Tensor, Tensor]:
    return use.cast("self", dtype), use.cast("other", dtype)


def binary(combine: Combine) -> Convert:
    """Returns a converter that combines both operands in the dtype of the result."""
    return lambda use: [combine(use, *_pair(use, use.dtype))]


def named(name: str) -> Convert:
    return binary(lambda use, x, y: use.g.apply(name, [x, y], {})[0])


def _scaled(use: Use, y: Tensor) -> Tensor:
    alpha = use.arguments.get("alpha")
    if alpha is None or alpha == 1:
        return y
    return use.g.multiply(y, use.cast("alpha", y.dtype))


def _add(use: Use) -> Sequence[Tensor]:
    x, y = _pair(use, use.dtype)
    if use.dtype.name == "bool":
        return [use.g.logical_or(x, y)]
    return [use.g.add(x, _scaled(use, y))]


def _subtract(use: Use) -> Sequence[Tensor]:
    x, y = _pair(use, use.dtype)
    return [use.g.subtract(x, _scaled(use, y))]


def _subtract_reversed(use: Use) -> Sequence[Tensor]:
    x, y = _pair(use, use.dtype)
    return [use.g.subtract(y, _scaled(use, x))]


def _multiply(use: Use, x: Tensor, y: Tensor) -> Tensor:
    return use.g.logical_and(x, y) if use.dtype.name == "bool" else use.g.multiply(x, y)


def truncated(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns x / y rounded toward zero."""
    g = use.g
    return g.trunc(g.divide(x, y)) if x.dtype.is_float else divide_truncated(g, x, y)


def _divide_by_mode(use: Use) -> Sequence[Tensor]:
    mode = use.arguments.get("rounding_mode")
    x, y = _pair(use, use.dtype)
    if mode is None:
        return [use.g.divide(x, y)]
    wide = F32 if x.dtype.is_half else x.dtype
    x, y = use.to(x, wide), use.to(y, wide)
    found = truncated(use, x, y) if mode == "trunc" else use.g.floor_divide(x, y)
    return [use.to(found, use.dtype)]


def _floor_divide(use: Use, x: Tensor, y: Tensor) -> Tensor:
    wide = F32 if x.dtype.is_half else x.dtype
    return use.to(use.g.floor_divide(use.to(x, wide), use.to(y, wide)), use.dtype)


def _fmod(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns the remainder with the sign of x."""
    wide = F32 if x.dtype.is_half else F64 if x.dtype.is_float else x.dtype
    return use.to(remainder_of_dividend(use.g, use.to(x, wide), use.to(y, wide)), x.dtype)


def _remainder(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns the remainder with the sign of y."""
    g = use.g
    if not x.dtype.is_float:
        return g.remainder(x, y)
    wide = F32 if x.dtype.is_half else F64
    return use.to(g.remainder(use.to(x, wide), use.to(y, wide)), x.dtype)


def _power(use: Use) -> Sequence[Tensor]:
    g = use.g
    held = use.arguments.get("exponent")
    x = use.cast("self", use.dtype)
    if held == 2 and not isinstance(held, Tensor):
        return [g.square(x)]
    if held == 0.5 and x.dtype.is_float:
        # PyTorch computes a power of 0.5 as a square root, too.
        return [g.sqrt(x)]
    return [g.power(x, use.cast("exponent", use.dtype))]


def extreme(use: Use, x: Tensor, y: Tensor, name: str) -> Tensor:
    """Returns `maximum` or `minimum`; of truth values, "or" and "and"."""
    if x.dtype.name == "bool":
        name = "logical_or" if name == "maximum" else "logical_and"
    return use.g.apply(name, [x, y], {})[0]


def _addcmul(use: Use) -> Sequence[Tensor]:
    g = use.g
    x, a, b = (use.cast(name, use.dtype) for name in ("self", "tensor1", "tensor2"))
    return [g.add(x, g.multiply(g.multiply(a, b), use.cast("value", use.dtype)))]


def _addcdiv(use: Use) -> Sequence[Tensor]:
    g = use.g
    x, a, b = (use.cast(name, use.dtype) for name in ("self", "tensor1", "tensor2"))
    return [g.add(x, g.multiply(g.divide(a, b), use.cast("value", use.dtype)))]


def _lerp(use: Use) -> Sequence[Tensor]:
    g = use.g
    x, y, weight = (use.cast(name, use.dtype) for name in ("self", "end", "weight"))
    way = g.subtract(y, x)
    # PyTorch starts from the nearer end, so that both ends are exact.
    after = g.add(x, g.multiply(weight, way))
    before = g.subtract(y, g.multiply(way, g.subtract(g.like(1, weight), weight)))
    return [g.where(g.less(g.abs(weight), g.like(0.5, weight)), after, before)]


def _hypotenuse(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns the square root of x * x + y * y, whose squares do not overflow."""
    g, dtype = use.g, x.dtype
    wide = F32 if dtype.is_half else dtype
    a, b = g.abs(use.to(x, wide)), g.abs(use.to(y, wide))
    longer, shorter = g.maximum(a, b), g.minimum(a, b)
    is_plain = g.logical_and(g.greater(longer, g.like(0, a)), g.less(longer, g.like(inf, a)))
    share = g.divide(shorter, g.where(is_plain, longer, g.like(1, a)))
    length = g.multiply(longer, g.sqrt(g.add(g.square(share), g.like(1, a))))
    # Of an infinity and NaN, the length is infinite, as by IEEE 754.
    either = g.logical_or(g.equal(a, g.like(inf, a)), g.equal(b, g.like(inf, b)))
    made = g.where(either, g.like(inf, a), g.where(is_plain, length, longer))
    return use.to(made, dtype)


_WORDS = {16: I16, 32: I32, 64: I64}


def _copy_sign(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns the magnitude of x with the sign bit of y, which zeros and NaN have too."""
    g = use.g
    word = g.bitcast(y, dtype=_WORDS[y.dtype.bits])
    size = g.abs(x)
    return g.where(g.less(word, g.like(0, word)), g.negate(size), size)


def _numbers_first(name: str) -> Convert:
    """Returns the converter of a maximum or a minimum of two operands; where one is NaN, it is the other one."""

    def combine(use: Use, x: Tensor, y: Tensor) -> Tensor:
        g = use.g
        made = extreme(use, x, y, name)
        return g.where(g.isnan(x), y, g.where(g.isnan(y), x, made)) if x.dtype.is_float else made

    return binary(combine)


_DIVIDE = named("divide")
CONVERTERS: Converters = {
    "hypot.default": binary(_hypotenuse),
    **dict.fromkeys(("copysign.Tensor", "copysign.Scalar"), binary(_copy_sign)),
    "fmax.default": _numbers_first("maximum"),
    "fmin.default": _numbers_first("minimum"),
    **dict.fromkeys(("add.Tensor", "add.Scalar"), _add),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), _subtract),
    **dict.fromkeys(("rsub.Tensor", "rsub.Scalar"), _subtract_reversed),
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), binary(_multiply)),
    **dict.fromkeys(("div.Tensor", "div.Scalar", "true_divide.Tensor"), _DIVIDE),
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode"), _divide_by_mode),
    **dict.fromkeys(("floor_divide.default", "floor_divide.Scalar"), binary(_floor_divide)),
    **dict.fromkeys(("fmod.Tensor", "fmod.Scalar"), binary(_fmod)),
    **dict.fromkeys(("remainder.Tensor", "remainder.Scalar"), binary(_remainder)),
    **dict.fromkeys(("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar"), _power),
    **dict.fromkeys(("atan2.default", "atan2.out"), named("atan2")),
    "maximum.default": binary(lambda use, x, y: extreme(use, x, y, "maximum")),
    "minimum.default": binary(lambda use, x, y: extreme(use, x, y, "minimum")),
    "addcmul.default": _addcmul,
    "addcdiv.default": _addcdiv,
    **dict.fromkeys(("lerp.Tensor", "lerp.Scalar"), _lerp),
}
