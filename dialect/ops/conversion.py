"""Arrays in another dtype: the reference of `cast`, which whoever converts numbers for a model goes by.

Floats to integers truncate toward zero and saturate, NaN gives 0; integers wrap. Floats are rounded once, to nearest,
halves to even. What a float of 8 bits cannot hold saturates at its greatest number, infinities too, and NaN stays NaN,
as the saturating modes of ONNX's `Cast` and of the OCP's specification of such floats have it; other floats overflow to
infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import BOOL, F64, Array, DType, Format, dtype_of
from .common import integer_range


def cast_array(x: Array, dtype: DType) -> Array:
    """The array in another dtype."""
    source = dtype_of(x)
    if source is dtype:
        return x
    if dtype is BOOL:
        return np.not_equal(x, x.dtype.type(0))
    if source.is_float and dtype.is_integer:
        return _truncated(x, dtype)
    if dtype.is_storage:
        return _saturated(x, dtype)
    return x.astype(dtype.numpy)


def _truncated(x: Array, dtype: DType) -> Array:
    least, greatest = integer_range(dtype)
    whole = np.trunc(x.astype(np.float64))
    # 2 ** bits is exact in float64 where the greatest integer is not.
    above, below = whole >= 2.0 ** (dtype.bits - dtype.is_signed), whole < float(least)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(dtype.numpy)
    return np.where(above, dtype.numpy.type(greatest), np.where(below, dtype.numpy.type(least), inside))


def _saturated(x: Array, dtype: DType) -> Array:
    format = dtype.float_format
    # f32 holds whatever is no f64 and within the range of eight bits.
    wide: npt.NDArray[Any] = x.astype(np.float64 if dtype_of(x) is F64 else np.float32)
    with np.errstate(invalid="ignore"):
        inside = np.clip(wide, -format.largest, format.largest)
        # ml_dtypes rounds f64 to f32 first.
        return np.asarray(_on_grid(inside, format) if inside.dtype == F64.numpy else inside).astype(dtype.numpy)


def _on_grid(x: npt.NDArray[Any], format: Format) -> npt.NDArray[Any]:
    """The nearest numbers of the format, halves to even, each in f64, in which all of this is exact."""
    _, exponent = np.frexp(x)
    # The denormal ones are as far apart as the least normal ones.
    step = np.maximum(exponent - 1, 1 - format.bias) - format.fraction
    return np.asarray(np.copysign(np.ldexp(np.rint(np.ldexp(x, -step)), step), x))
