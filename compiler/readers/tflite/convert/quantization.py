"""Conversions between floats and quantized values, and between dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import F32, I32
from ...writing.tensors import Elements, Tensor, known
from ..writing.fixed_point import narrowed, scaled, shifted
from ..writing.use import Converters, Use


def _quantize(use: Use) -> Sequence[Tensor]:
    x, g, to = use.input(), use.g, use.quantized_result
    if not x.dtype.is_float:
        from_ = use.quantized(0)
        if x.dtype == use.dtype and use.same_quantization():
            return [x]
        factor = float(from_.scale) / float(to.scale)
        return [narrowed(use, scaled(use, shifted(use, x, from_.zero), factor), to.zero)]
    ratio = g.divide(g.cast(x, dtype=F32), _spread(to.scales, to.axis, x.rank))
    nearest = rounded_away(use, ratio)
    zero = _spread(to.zeros.astype(np.float32), to.axis, x.rank)
    low, high = use.dtype.integer_range
    return [g.cast(g.clip(g.add(nearest, zero), low=low, high=high), dtype=use.dtype)]


def rounded_away(use: Use, x: Tensor) -> Tensor:
    """Returns floats rounded to the nearest integer, halves away from zero."""
    g = use.g
    whole = g.trunc(x)
    far = g.greater_equal(g.abs(g.subtract(x, whole)), g.like(0.5, x))
    return g.add(whole, g.where(far, g.sign(x), g.like(0, x)))


def _spread(values: Elements, axis: int, rank: int) -> Tensor:
    return known(values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (rank - axis - 1)))


def _dequantize(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if x.dtype.is_float:
        return [g.cast(x, dtype=use.dtype)]
    from_ = use.quantized(0)
    steps = g.cast(x, dtype=I32)
    if np.any(from_.zeros):
        steps = g.subtract(steps, known(np.asarray(_spread(from_.zeros.astype(np.int32), from_.axis, x.rank).array)))
    scales = _spread(from_.scales, from_.axis, x.rank)
    return [g.cast(g.multiply(g.cast(steps, dtype=F32), scales), dtype=use.dtype)]


def _cast(use: Use) -> Sequence[Tensor]:
    return [use.g.cast(use.input(), dtype=use.dtype)]


CONVERTERS: Converters = {"QUANTIZE": _quantize, "DEQUANTIZE": _dequantize, "CAST": _cast}
