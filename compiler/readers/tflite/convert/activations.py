"""Activations. For quantized values of 8 bits, all except ReLU and its variants become tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...writing.tensors import Elements, Tensor
from ..writing.fixed_point import encode_factor, looked_up, narrowed, scaled, shifted
from ..writing.use import BOUNDS, Convert, Converters, Use, round_away
from .unary import function, quantized_values, tabulated


def _rectified(name: str) -> Convert:
    low, high = BOUNDS[name]
    assert low is not None, name

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.input(), use.g
        if not use.is_quantized:
            if name == "RELU":
                return [g.relu(x) if x.dtype.is_float else g.maximum(x, g.like(0, x))]
            return [g.clip(x, low=low, high=high)]
        from_, to = use.quantized(0), use.quantized_result
        least, greatest = use.dtype.integer_range
        least = max(least, to.zero + round_away(np.float32(low) / to.scale))
        if high is not None:
            greatest = min(greatest, to.zero + round_away(np.float32(high) / to.scale))
        made = scaled(use, shifted(use, x, from_.zero), float(from_.scale / to.scale))
        return [narrowed(use, made, to.zero, (least, greatest))]

    return convert


def _sigmoid(x: Elements) -> Elements:
    # The exponential is computed in f64: f32 exponentials of different libraries differ in the last bit.
    return np.asarray(np.float32(1) / (np.float32(1) + np.exp(-x.astype(np.float64)).astype(np.float32)))


def multiplied(x: int, factor: tuple[int, int]) -> int:
    """Returns a whole number times a fixed-point one, as `fixed_point_multiply`."""
    multiplier, exponent = factor
    high = ((x << max(exponent, 0)) * multiplier + (1 << 30)) >> 31
    return divided(high, max(-exponent, 0))


def divided(x: int, bits: int) -> int:
    """Returns x / 2**bits, rounded to the nearest integer, halves away from zero."""
    return (x + ((1 << bits) >> 1) - (1 if x < 0 and bits else 0)) >> bits


def _leaky_relu(use: Use) -> Sequence[Tensor]:
    slope = use.number("alpha")
    if not use.is_quantized:
        return [use.g.leaky_relu(use.input(), slope=float(slope))]
    from_, to = use.quantized(0), use.quantized_result
    above = encode_factor(float(from_.scale / to.scale))
    below = encode_factor(float(from_.scale * np.float32(slope) / to.scale))
    low, high = use.dtype.integer_range
    steps = [int(value) - from_.zero for value in quantized_values(use)]
    codes = [to.zero + multiplied(step, above if step >= 0 else below) for step in steps]
    return [looked_up(use, use.input(), np.clip(codes, low, high).astype(use.dtype.numpy))]


def _prelu(use: Use) -> Sequence[Tensor]:
    x, slope, g = use.input(0), use.input(1), use.g
    if not use.is_quantized:
        return [g.where(g.greater_equal(x, g.like(0, x)), x, g.multiply(x, slope))]
    from_, by, to = use.quantized(0), use.quantized(1), use.quantized_result
    step = shifted(use, x, from_.zero)
    above = scaled(use, step, float(from_.scale / to.scale))
    below = scaled(use, g.multiply(step, shifted(use, slope, by.zero)), float(from_.scale * by.scale / to.scale))
    return [narrowed(use, g.where(g.greater_equal(step, g.like(0, step)), above, below), to.zero)]


def _hard_swish(use: Use) -> Sequence[Tensor]:
    x = use.input()
    if not use.is_quantized:
        return [use.g.hard_swish(x)]
    from_, to = use.quantized(0), use.quantized_result
    fine = np.float32(1 / 128) * from_.scale
    by, gate = encode_factor(float(fine / to.scale)), encode_factor(float(fine / np.float32(3 / 32768)))
    low, high = use.dtype.integer_range
    codes = [to.zero + _hard_swished(int(v) - from_.zero, by, gate) for v in quantized_values(use)]
    return [looked_up(use, x, np.clip(codes, low, high).astype(use.dtype.numpy))]


def _hard_swished(step: int, by: tuple[int, int], gate: tuple[int, int]) -> int:
    """Returns step * relu6(step + 3) / 6 in 16 bits: the gate is in -1..1 of 15 bits at first, and then in 0..1."""
    fine = step * 128
    product = _high_product(fine, _upper_half(by[0]))
    value, exponent = fine, gate[1]
    if exponent > 0:
        value = _saturated(value << (exponent - 1))
    value = _high_product(value, _upper_half(gate[0]))
    if exponent > 0:
        value = _saturated(value << 1)
    elif exponent < 0:
        value = divided(value, -exponent)
    value = (value + (1 << 15)) >> 1
    return _shifted_result(_doubling_high(value, product), by[1])


def _shifted_result(x: int, exponent: int) -> int:
    return divided(x, -exponent) if exponent < 0 else x << exponent


def _upper_half(multiplier: int) -> int:
    return 32767 if multiplier >= (1 << 31) - (1 << 15) else (multiplier + (1 << 15)) >> 16


def _saturated(x: int) -> int:
    return max(-(1 << 15), min((1 << 15) - 1, x))


def _high_product(x: int, y: int) -> int:
    total = x * y
    nudged = total + ((1 << 14) if total >= 0 else 1 - (1 << 14))
    return math.trunc(nudged / (1 << 15))


def _doubling_high(x: int, y: int) -> int:
    return math.trunc(x * y / (1 << 15))


def _elu(x: Elements) -> Elements:
    return np.where(x < 0, np.expm1(x), x)


def _gelu(use: Use) -> Sequence[Tensor]:
    approximate = use.flag("approximate")
    if not use.is_quantized:
        return [use.g.gelu(use.input(), approximate="tanh" if approximate else "none")]

    def exact(x: Elements) -> Elements:
        return np.asarray([0.5 * v * (1 + math.erf(v * math.sqrt(0.5))) for v in x.tolist()], np.float32)

    def by_tanh(x: Elements) -> Elements:
        return np.asarray(
            0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))
        )

    return [tabulated(use, by_tanh if approximate else exact)]


CONVERTERS: Converters = {
    "RELU": _rectified("RELU"),
    "RELU6": _rectified("RELU6"),
    "RELU_N1_TO_1": _rectified("RELU_N1_TO_1"),
    "RELU_0_TO_1": _rectified("RELU_0_TO_1"),
    "LOGISTIC": function("sigmoid", _sigmoid),
    "TANH": function("tanh", lambda x: np.tanh(x.astype(np.float64))),
    "ELU": function("elu", _elu),
    "GELU": _gelu,
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky_relu,
    "PRELU": _prelu,
}
