"""Elementwise operators: arithmetic, comparisons, logic, and functions of one element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....dialect.types import F32, I64
from ...writing.tensors import Tensor
from ...writing.truncated import divide_truncated, remainder_of_dividend
from ..writing.use import Convert, Converters, Use

_UNARY: Mapping[str, str] = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp",
    "Floor": "floor", "Log": "log", "Neg": "negate", "Not": "logical_not", "Reciprocal": "reciprocal",
    "Round": "round", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_BINARY: Mapping[str, str] = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "Less": "less", "LessOrEqual": "less_equal", "Mul": "multiply", "Or": "logical_or", "Sub": "subtract",
    "Xor": "logical_xor",
}  # fmt: skip


def _unary(name: str) -> Convert:
    return lambda use: use.g.apply(name, [use.input()], {})


def _binary(name: str) -> Convert:
    return lambda use: use.g.apply(name, [use.input(0), aligned(use)], {})


def aligned(use: Use) -> Tensor:
    """Returns the second operand, aligned with the first one. Before version 7, the attributes `broadcast` and `axis`
    specify the alignment."""
    x, y = use.input(0), use.input(1)
    if use.version >= 7 or not use.integer("broadcast", 0):
        return y
    axis = use.integer("axis", x.rank - y.rank)
    after = x.rank - axis % max(x.rank, 1) - y.rank
    return use.g.reshape(y, shape=(*y.shape, *(1,) * after)) if after > 0 else y


def divide(use: Use) -> Sequence[Tensor]:
    x, y, g = use.input(0), aligned(use), use.g
    if x.dtype.is_float:
        return [g.divide(x, y)]
    return [divide_truncated(g, x, y)]


def _mod(use: Use) -> Sequence[Tensor]:
    x, y, g = use.input(0), use.input(1), use.g
    has_sign_of_x = use.integer("fmod", 0)
    if has_sign_of_x not in (0, 1):
        use.fail(f"has `fmod` = {has_sign_of_x}, expected 0 or 1", code="bad-attribute")
    # The remainder of C has the sign of x; the graph's has the sign of y.
    return [remainder_of_dividend(g, x, y) if has_sign_of_x else g.remainder(x, y)]


def _power(use: Use) -> Sequence[Tensor]:
    x, y, g = use.input(0), aligned(use), use.g
    if x.dtype == y.dtype:
        return [g.power(x, y)]
    if x.dtype.is_float:
        return [g.power(x, g.cast(y, dtype=x.dtype))]
    if y.dtype.is_float:
        # An integer to a float power is computed in the exponent's dtype and truncated.
        return [g.cast(g.power(g.cast(x, dtype=y.dtype), y), dtype=x.dtype)]
    wide = g.power(g.cast(x, dtype=I64), g.cast(y, dtype=I64))
    return [g.cast(wide, dtype=x.dtype)]


def _variadic(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        total, *rest = use.inputs
        for x in rest:
            total = use.g.apply(name, [total, x], {})[0]
        return [total]

    return convert


def _mean(use: Use) -> Sequence[Tensor]:
    (total,) = _variadic("add")(use)
    assert isinstance(total, Tensor)
    return [use.g.divide(total, use.g.like(len(use.inputs), total))]


def _shift(use: Use) -> Sequence[Tensor]:
    direction = use.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        use.fail(f"has the direction {direction!r}", code="bad-attribute")
    return [use.g.apply("shift_left" if direction == "LEFT" else "shift_right", use.inputs, {})[0]]


def _is_inf(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if x.dtype.is_storage:
        x = g.cast(x, dtype=F32)
    found = g.isinf(x)
    if not use.integer("detect_positive", 1):
        found = g.logical_and(found, g.less(x, g.like(0, x)))
    if not use.integer("detect_negative", 1):
        found = g.logical_and(found, g.greater(x, g.like(0, x)))
    return [found]


def _is_nan(use: Use) -> Sequence[Tensor]:
    x = use.input()
    return [use.g.isnan(use.g.cast(x, dtype=F32) if x.dtype.is_storage else x)]


def _where(use: Use) -> Sequence[Tensor]:
    return [use.g.where(*use.inputs)]


def _clip_by_attributes(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    low, high = use.number("min"), use.number("max")
    if low is not None:
        x = g.maximum(x, g.like(low, x))
    return [x if high is None else g.minimum(x, g.like(high, x))]


def _clip(use: Use) -> Sequence[Tensor]:
    x, low, high = use.input(), use.optional(1), use.optional(2)
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            x = use.g.apply(name, [x, _scalar(use, bound)], {})[0]
    return [x]


def _scalar(use: Use, x: Tensor) -> Tensor:
    return x if x.rank == 0 else use.g.reshape(x, shape=())


def _identity(use: Use) -> Sequence[Tensor]:
    held = use.operands[0]
    assert held is not None
    return [held]  # type: ignore[list-item]  # a sequence passes as well


def _prelu(use: Use) -> Sequence[Tensor]:
    x, slope, g = use.input(0), use.input(1), use.g
    if use.version < 7 and slope.rank == 1 and x.rank > 2 and slope.shape != (1,):
        slope = g.reshape(slope, shape=(*slope.shape, *(1,) * (x.rank - 2)))
    if x.dtype.is_float:
        return [g.prelu(x, slope)]
    return [g.where(g.less(x, g.like(0, x)), g.multiply(x, slope), x)]


CONVERTERS: Converters = {
    **{name: _unary(operator) for name, operator in _UNARY.items()},
    **{name: _binary(operator) for name, operator in _BINARY.items()},
    "Div": divide,
    "Mod": _mod,
    "Pow": _power,
    "Max": _variadic("maximum"),
    "Min": _variadic("minimum"),
    "Sum": _variadic("add"),
    "Mean": _mean,
    "BitShift": _shift,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "Where": _where,
    "Clip": {1: _clip_by_attributes, 11: _clip},
    "Identity": _identity,
    "PRelu": _prelu,
}
