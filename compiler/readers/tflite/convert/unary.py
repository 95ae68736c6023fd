"""Elementwise functions of one operand. For quantized values of 8 bits, they become tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .....dialect.types import I8, U8
from ...writing.tensors import Elements, Tensor
from ..writing.fixed_point import looked_up
from ..writing.use import Convert, Converters, Use

Function = Callable[[Elements], Elements]


def quantized_values(use: Use) -> Elements:
    """Returns all values of the dtype of the operand, in order. Fails if it has more than 8 bits."""
    dtype = use.input().dtype
    if dtype not in (I8, U8) or use.dtype != dtype:
        use.fail(f"takes quantized {dtype}; i8 and u8 are supported", code="unsupported-dtype")
    low, high = dtype.integer_range
    return np.arange(low, high + 1, dtype=np.int64)


def tabulated(use: Use, function: Function) -> Tensor:
    """Returns the table of a function of floats, which rounds halves away from zero."""
    values = quantized_values(use)
    from_, to = use.quantized(0), use.quantized_result
    with np.errstate(all="ignore"):
        x = from_.scale * (values - from_.zero).astype(np.float32)
        y = function(x).astype(np.float32) * (np.float32(1) / to.scale)
        nearest = np.trunc(y + np.copysign(np.float32(0.5), y).astype(np.float64))
    low, high = use.dtype.integer_range
    codes = np.clip(np.nan_to_num(nearest) + to.zero, low, high).astype(use.dtype.numpy)
    return looked_up(use, use.input(), codes)


def function(name: str, table: Function | None = None) -> Convert:
    """Returns the converter of an operator of the graph; `table` computes it for quantized values."""

    def convert(use: Use) -> Sequence[Tensor]:
        if not use.is_quantized:
            return [use.g.apply(name, [use.input()], {})[0]]
        if table is None:
            use.fail("takes quantized values, which is not supported", code="unsupported-dtype")
        return [tabulated(use, table)]

    return convert


def _square(use: Use) -> Sequence[Tensor]:
    if use.is_quantized:
        use.fail("takes quantized values, which is not supported", code="unsupported-dtype")
    return [use.g.square(use.input())]


CONVERTERS: Converters = {
    "ABS": function("abs"),
    "CEIL": function("ceil"),
    "COS": function("cos"),
    "EXP": function("exp", lambda x: np.exp(x.astype(np.float64))),
    "FLOOR": function("floor"),
    "LOG": function("log", lambda x: np.log(x.astype(np.float64))),
    "NEG": function("negate"),
    "ROUND": function("round"),
    "RSQRT": function("rsqrt"),
    "SIGN": function("sign"),
    "SIN": function("sin"),
    "SQRT": function("sqrt"),
    "SQUARE": _square,
}
