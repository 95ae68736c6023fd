"""Functions of one element, and conversions of dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use

_OF_FLOATS: Mapping[str, str] = {
    name: name
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "log",
        "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
    )
}  # fmt: skip
"""Functions whose operand becomes a float first, by their names in the graph."""
_ROUNDING = ("ceil", "floor", "round", "trunc")


def of_float(name: str) -> Convert:
    """Returns the converter of an operator of the graph, applied in the dtype of the result."""
    return lambda use: [use.g.apply(name, [use.cast("self", use.dtype)], {})[0]]


def _rounding(name: str) -> Convert:
    """Returns the converter of a rounding, which leaves integers unchanged."""

    def convert(use: Use) -> Sequence[Tensor]:
        x = use.tensor()
        return [use.g.apply(name, [x], {})[0] if x.dtype.is_float else x]

    return convert


def _round_decimals(use: Use) -> Sequence[Tensor]:
    x, g, decimals = use.tensor(), use.g, use.number("decimals")
    if not x.dtype.is_float:
        return [x]
    factor = g.like(10.0 ** abs(decimals), x)
    if decimals >= 0:
        return [g.divide(g.round(g.multiply(x, factor)), factor)]
    return [g.multiply(g.round(g.divide(x, factor)), factor)]


def _abs(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    return [use.g.abs(x) if x.dtype.is_float or x.dtype.is_signed else x]


def _sign(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if x.dtype.name == "bool":
        return [x]
    if x.dtype.is_signed and not x.dtype.is_float:
        return [g.sign(x)]
    if not x.dtype.is_float:
        return [g.cast(g.greater(x, g.like(0, x)), dtype=x.dtype)]
    # PyTorch has sign(NaN) = 0.
    above, below = g.greater(x, g.like(0, x)), g.less(x, g.like(0, x))
    return [g.subtract(g.cast(above, dtype=x.dtype), g.cast(below, dtype=x.dtype))]


def _bitwise_not(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    return [g.logical_not(x) if x.dtype.name == "bool" else g.bitwise_not(x)]


def _same(use: Use) -> Sequence[Tensor]:
    return [use.tensor()]


def _converted(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if use.dtype.name == "bool" and x.dtype.name != "bool":
        return [g.not_equal(x, g.like(0, x))]
    return [use.to(x, use.dtype)]


CONVERTERS: Converters = {
    **{f"{name}.default": of_float(target) for name, target in _OF_FLOATS.items()},
    **{f"{name}.default": _rounding(name) for name in _ROUNDING},
    "special_erf.default": of_float("erf"),
    "special_expm1.default": of_float("expm1"),
    "round.decimals": _round_decimals,
    "abs.default": _abs,
    "neg.default": lambda use: [use.g.negate(use.tensor())],
    "sign.default": _sign,
    "square.default": lambda use: [use.g.square(use.tensor())],
    "bitwise_not.default": _bitwise_not,
    "_to_copy.default": _converted,
    "to.dtype": _converted,
    "to.device": _converted,
    "to.dtype_layout": _converted,
    "type_as.default": _converted,
    **dict.fromkeys(
        (
            "alias.default", "clone.default", "contiguous.default", "detach.default", "lift_fresh_copy.default",
            "lift_fresh.default", "detach_.default", "positive.default",
        ),
        _same,
    ),
    "dropout.default": lambda use: _dropout(use),
    "native_dropout.default": lambda use: _native_dropout(use),
}  # fmt: skip


def _refuse_dropout(use: Use) -> None:
    use.fail("draws random numbers", code="random-numbers", help="call `eval()` on the module before it is read")


def _dropout(use: Use) -> Sequence[Tensor]:
    if use.flag("train") and use.number("p") != 0:
        _refuse_dropout(use)
    return [use.tensor("input")]


def _native_dropout(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor("input"), use.g
    if use.flag("train") and use.number("p") != 0:
        _refuse_dropout(use)
    return [x, g.broadcast_to(g.scalar(True, use.types[1].dtype), shape=x.shape) if use.types[1] else x]
