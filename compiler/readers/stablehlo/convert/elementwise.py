"""Functions of one element, arithmetic, comparisons, selection and conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....dialect.types import BOOL, I8, I16, I32, I64, U8, U16, U32, U64, DType
from ...writing.tensors import Tensor
from ...writing.truncated import divide_truncated, remainder_of_dividend
from ..writing.items import Item
from ..writing.use import Convert, Converters, Use

_UNARY: Mapping[str, str] = {
    "abs": "abs", "cbrt": "cbrt", "ceil": "ceil", "cosine": "cos", "exponential": "exp",
    "exponential_minus_one": "expm1", "floor": "floor", "log": "log", "log_plus_one": "log1p", "logistic": "sigmoid",
    "negate": "negate", "round_nearest_even": "round", "rsqrt": "rsqrt", "sine": "sin", "sqrt": "sqrt", "tan": "tan",
    "tanh": "tanh", "is_finite": "isfinite", "chlo.erf": "erf", "chlo.erfc": "erfc", "chlo.acos": "acos",
    "chlo.acosh": "acosh", "chlo.asin": "asin", "chlo.asinh": "asinh", "chlo.atan": "atan", "chlo.atanh": "atanh",
    "chlo.cosh": "cosh", "chlo.sinh": "sinh", "chlo.square": "square", "chlo.tan": "tan",
}  # fmt: skip
_BINARY: Mapping[str, str] = {
    "add": "add", "atan2": "atan2", "maximum": "maximum", "minimum": "minimum", "multiply": "multiply",
    "power": "power", "shift_left": "shift_left", "subtract": "subtract",
}  # fmt: skip
_SIGNED: Mapping[DType, DType] = {U8: I8, U16: I16, U32: I32, U64: I64}
_TRUTH: Mapping[str, str] = {
    "add": "logical_or", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and",
    "and": "logical_and", "or": "logical_or", "xor": "logical_xor",
}  # fmt: skip
_COMPARISONS: Mapping[str, str] = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal",
}  # fmt: skip


def _unary(name: str) -> Convert:
    return lambda use: use.g.apply(name, [use.x], {})


def _binary(name: str, plain: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        chosen = _TRUTH.get(name, plain) if use.x.dtype == BOOL else plain
        return use.g.apply(chosen, list(use.operands), {})

    return convert


def _divide(use: Use) -> Sequence[Tensor]:
    """Divides; quotients of integers are truncated."""
    x, y = use.operands
    return [use.g.divide(x, y) if x.dtype.is_float else divide_truncated(use.g, x, y)]


def _remainder(use: Use) -> Sequence[Tensor]:
    """Returns the remainder with the sign of the dividend."""
    x, y = use.operands
    return [remainder_of_dividend(use.g, x, y)]


def _shift_right_arithmetic(use: Use) -> Sequence[Tensor]:
    """Shifts copies of the highest bit in, also for unsigned integers."""
    g, signed = use.g, _SIGNED.get(use.dtype)
    if signed is None:
        return [g.shift_right(*use.operands)]
    return [g.bitcast(g.shift_right(*(g.bitcast(each, dtype=signed) for each in use.operands)), dtype=use.dtype)]


def _compare(use: Use) -> Sequence[Tensor]:
    x, y = use.operands
    if x.dtype == BOOL and use.word("comparison_direction") not in ("EQ", "NE"):
        x, y = (use.g.cast(each, dtype=I64) for each in (x, y))
    return use.g.apply(_COMPARISONS[use.word("comparison_direction")], [x, y], {})


def _convert(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    if use.dtype == BOOL and x.dtype != BOOL:
        return [g.not_equal(x, g.like(0, x))]
    return [x if x.dtype == use.dtype else g.cast(x, dtype=use.dtype)]


def _clamp(use: Use) -> Sequence[Tensor]:
    low, x, high = use.operands
    return [use.g.minimum(use.g.maximum(x, low), high)]


def _not(use: Use) -> Sequence[Tensor]:
    return [use.g.logical_not(use.x) if use.x.dtype == BOOL else use.g.bitwise_not(use.x)]


def _sign(use: Use) -> Sequence[Tensor]:
    return [use.g.sign(use.x)]


def _select(use: Use) -> Sequence[Tensor]:
    return [use.g.where(*use.operands)]


def _spread(convert: Convert) -> Convert:
    """Returns the converter of a CHLO operation that broadcasts. Like the graph, it must align the last axes."""

    def converted(use: Use) -> Sequence[Item]:
        ranks = sorted(each.rank for each in use.operands)
        if use.has("broadcast_dimensions") and use.integers("broadcast_dimensions") != tuple(
            range(ranks[-1] - ranks[0], ranks[-1])
        ):
            use.fail("broadcasts axes that are not aligned at the last one")
        return convert(use)

    return converted


_PLAIN: Converters = {
    **{name: _unary(target) for name, target in _UNARY.items()},
    **{name: _binary(name, target) for name, target in _BINARY.items()},
    **{name: _binary(name, f"bitwise_{name}") for name in ("and", "or", "xor")},
    "divide": _divide,
    "remainder": _remainder,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "compare": _compare,
    "convert": _convert,
    "clamp": _clamp,
    "not": _not,
    "sign": _sign,
    "select": _select,
}

_SPREAD = (
    "add", "and", "atan2", "compare", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder", "select",
    "shift_left", "shift_right_arithmetic", "subtract", "xor",
)  # fmt: skip
CONVERTERS: Converters = {**_PLAIN, **{f"chlo.broadcast_{name}": _spread(_PLAIN[name]) for name in _SPREAD}}
