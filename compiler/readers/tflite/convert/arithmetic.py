"""Elementwise operators of two operands, with broadcasting.

Quantized sums convert both operands to a common scale with 20 more bits before they add them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import I8, U8
from ...writing.tensors import Tensor, known
from ...writing.truncated import divide_truncated
from ..writing.fixed_point import narrowed, scaled, shifted
from ..writing.use import Convert, Converters, Use


def _plain(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        made = use.g.apply(name, [use.input(0), use.input(1)], {})[0]
        has_activation = use.operator.name in ("ADD", "SUB", "MUL", "DIV")
        return [use.activated(made) if has_activation else made]

    return convert


def require_bytes(use: Use) -> None:
    for x in use.inputs:
        if x.dtype not in (I8, U8):
            use.fail(f"takes quantized {x.dtype}; i8 and u8 are supported", code="unsupported-dtype")


def _on_one_scale(use: Use, bits: int) -> tuple[Tensor, Tensor, float]:
    """Returns both operands in units of twice the greater scale, with `bits` fractional bits, and this common scale."""
    require_bytes(use)
    a, b = use.quantized(0), use.quantized(1)
    twice = 2.0 * max(float(a.scale), float(b.scale))
    if not twice:
        use.fail("has scales of 0", code="wrong-operands")
    raised = []
    for index, each in enumerate((a, b)):
        x = shifted(use, use.input(index), each.zero)
        x = use.g.shift_left(x, known(np.int32(bits)))
        raised.append(scaled(use, x, float(each.scale) / twice))
    return raised[0], raised[1], twice


def _sum(name: str) -> Convert:
    plain = _plain(name)

    def convert(use: Use) -> Sequence[Tensor]:
        if not use.is_quantized:
            return plain(use)
        x, y, twice = _on_one_scale(use, 20)
        to = use.quantized_result
        total = use.g.apply(name, [x, y], {})[0]
        made = scaled(use, total, _quotient(use, twice, (1 << 20) * float(to.scale)))
        return [narrowed(use, made, to.zero, use.limits())]

    return convert


def _quotient(use: Use, dividend: float, divisor: float) -> float:
    if not divisor:
        use.fail("has a scale of 0", code="wrong-operands")
    return dividend / divisor


def _multiply(use: Use) -> Sequence[Tensor]:
    if not use.is_quantized:
        return _plain("multiply")(use)
    require_bytes(use)
    a, b, to = use.quantized(0), use.quantized(1), use.quantized_result
    product = use.g.multiply(shifted(use, use.input(0), a.zero), shifted(use, use.input(1), b.zero))
    factor = _quotient(use, float(a.scale * b.scale), float(to.scale))
    return [narrowed(use, scaled(use, product, factor), to.zero, use.limits())]


def _squared_difference(use: Use) -> Sequence[Tensor]:
    if not use.is_quantized:
        return _plain("squared_difference")(use)
    x, y, twice = _on_one_scale(use, 7)
    to, g = use.quantized_result, use.g
    difference = g.subtract(x, y)
    made = scaled(use, g.multiply(difference, difference), _quotient(use, twice * twice, (1 << 14) * float(to.scale)))
    return [narrowed(use, made, to.zero)]


def _divide(use: Use) -> Sequence[Tensor]:
    if use.is_quantized:
        use.fail("divides quantized values, which is not supported", code="unsupported-dtype")
    x, y, g = use.input(0), use.input(1), use.g
    if x.dtype.is_float:
        return [use.activated(g.divide(x, y))]
    return [use.activated(divide_truncated(g, x, y))]


def _select(name: str) -> Convert:
    """Returns the converter of a maximum or minimum; quantized operands and result must have the same scale."""

    def convert(use: Use) -> Sequence[Tensor]:
        if use.is_quantized and not (use.same_quantization(0) and use.same_quantization(1)):
            use.fail("has operands and a result of different scales", code="unsupported-attribute")
        return [use.g.apply(name, [use.input(0), use.input(1)], {})[0]]

    return convert


def _floats_only(name: str) -> Convert:
    plain = _plain(name)

    def convert(use: Use) -> Sequence[Tensor]:
        if use.is_quantized:
            use.fail("takes quantized values, which is not supported", code="unsupported-dtype")
        return plain(use)

    return convert


def _add_n(use: Use) -> Sequence[Tensor]:
    if use.is_quantized or not use.operands:
        use.fail("takes quantized values, or nothing", code="wrong-operands")
    total = use.input(0)
    for index in range(1, len(use.operands)):
        total = use.g.add(total, use.input(index))
    return [total]


CONVERTERS: Converters = {
    "ADD": _sum("add"),
    "SUB": _sum("subtract"),
    "MUL": _multiply,
    "DIV": _divide,
    "ADD_N": _add_n,
    "MAXIMUM": _select("maximum"),
    "MINIMUM": _select("minimum"),
    "POW": _floats_only("power"),
    "FLOOR_DIV": _floats_only("floor_divide"),
    "FLOOR_MOD": _floats_only("remainder"),
    "ATAN2": _floats_only("atan2"),
    "SQUARED_DIFFERENCE": _squared_difference,
    "BITWISE_XOR": _floats_only("bitwise_xor"),
    "RIGHT_SHIFT": _floats_only("shift_right"),
}
