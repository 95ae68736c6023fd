"""Activations."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import F32
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .arithmetic import extreme


def _plain(name: str) -> Convert:
    return lambda use: [use.g.apply(name, [use.tensor()], {})[0]]


def _relu(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    return [g.relu(x) if x.dtype.is_float else g.maximum(x, g.like(0, x))]


def _gelu(use: Use) -> Sequence[Tensor]:
    return [use.g.gelu(use.tensor(), approximate=use.word("approximate", "none"))]


def _elu(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    alpha, scale, inner = (float(use.number(name)) for name in ("alpha", "scale", "input_scale"))
    if scale == inner == 1:
        return [g.elu(x, alpha=alpha)]
    wide = use.to(x, F32) if x.dtype.is_half else x
    low = g.multiply(g.expm1(g.multiply(wide, g.like(inner, wide))), g.like(alpha * scale, wide))
    found = g.where(g.greater(wide, g.like(0, wide)), g.multiply(wide, g.like(scale, wide)), low)
    return [use.to(found, x.dtype)]


def _clip(use: Use, low: str, high: str) -> Sequence[Tensor]:
    x = use.cast("self", use.dtype)
    if use.has(low):
        x = extreme(use, x, use.cast(low, use.dtype), "maximum")
    if use.has(high):
        x = extreme(use, x, use.cast(high, use.dtype), "minimum")
    return [x]


def _leaky_relu(use: Use) -> Sequence[Tensor]:
    return [use.g.leaky_relu(use.tensor(), slope=float(use.number("negative_slope")))]


def _prelu(use: Use) -> Sequence[Tensor]:
    x, weight, g = use.tensor(), use.tensor("weight"), use.g
    if weight.type.elements != 1 and x.rank > 1:
        weight = g.reshape(weight, shape=(weight.type.elements, *(1,) * (x.rank - 2)))
    return [g.where(g.greater(x, g.like(0, x)), x, g.multiply(x, weight))]


def _softplus(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    beta, threshold = float(use.number("beta")), float(use.number("threshold"))
    wide = use.to(x, F32) if x.dtype.is_half else x
    scaled = g.multiply(wide, g.like(beta, wide))
    smooth = g.divide(g.softplus(scaled), g.like(beta, wide))
    return [use.to(g.where(g.greater(scaled, g.like(threshold, scaled)), wide, smooth), x.dtype)]


def _celu(use: Use) -> Sequence[Tensor]:
    return [use.g.celu(use.tensor(), alpha=float(use.number("alpha")))]


def _glu(use: Use) -> Sequence[Tensor]:
    g = use.g
    a, b = g.apply("split", [use.tensor()], {"parts": 2, "axis": use.axis()})
    return [g.multiply(a, g.sigmoid(b))]


def _threshold(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    return [g.where(g.greater(x, use.cast("threshold", x.dtype)), x, use.cast("value", x.dtype))]


def _soft_shrink(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    return [use.g.soft_shrink(x, threshold=float(use.number("lambd")))]


CONVERTERS: Converters = {
    "relu.default": _relu,
    "gelu.default": _gelu,
    "elu.default": _elu,
    "celu.default": _celu,
    "leaky_relu.default": _leaky_relu,
    "prelu.default": _prelu,
    "_prelu_kernel.default": _prelu,
    "hardtanh.default": lambda use: _clip(use, "min_val", "max_val"),
    "clamp.default": lambda use: _clip(use, "min", "max"),
    "clamp.Tensor": lambda use: _clip(use, "min", "max"),
    "clamp_min.default": lambda use: _clip(use, "min", "none"),
    "clamp_max.default": lambda use: _clip(use, "none", "max"),
    "clamp_min.Tensor": lambda use: _clip(use, "min", "none"),
    "clamp_max.Tensor": lambda use: _clip(use, "none", "max"),
    "softplus.default": _softplus,
    "threshold.default": _threshold,
    "glu.default": _glu,
    "softshrink.default": _soft_shrink,
    **{
        f"{name}.default": _plain(target)
        for name, target in (
            ("relu6", "relu6"), ("silu", "silu"), ("selu", "selu"), ("mish", "mish"), ("hardswish", "hard_swish"),
            ("hardsigmoid", "hard_sigmoid"), ("log_sigmoid", "log_sigmoid"),
        )
    },
}  # fmt: skip
