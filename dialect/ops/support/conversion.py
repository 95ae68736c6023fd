"""Arrays in another dtype: the reference of `cast`, which defines all conversions of numbers for a model.

Floats to integers truncate toward zero and saturate, NaN gives 0; integers wrap. Floats are rounded once, to nearest,
halves to even; f64 and integers are rounded to f32 before they become bf16, as in PyTorch. Numbers and infinities
beyond the range of an 8-bit float saturate at its greatest number, and NaN stays NaN, as in the saturating modes of
ONNX's `Cast` and of the OCP's 8-bit float specification; other floats overflow to infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...types import BOOL, F64, Array, DType, Format, dtype_of
from .common import integer_range


def cast_array(x: Array, dtype: DType) -> Array:
    """Returns the array in another dtype."""
    source = dtype_of(x)
    if source is dtype:
        return x
    if dtype is BOOL:
        return np.not_equal(x, x.dtype.type(0))
    if source.is_float and dtype.is_integer:
        return _truncated(x, dtype)
    if dtype.is_storage:
        return _saturated(x, dtype)
    if dtype.through_f32:
        # How ml_dtypes rounds f64 and integers depends on its version.
        with np.errstate(over="ignore"):
            return x.astype(np.float32).astype(dtype.numpy)
    return x.astype(dtype.numpy)


def first_changed(x: Array, dtype: DType) -> tuple[int, ...] | None:
    """Returns the index of the first number that is not a value of an integer or boolean dtype; None if there is
    none."""
    least, greatest = (0, 1) if dtype is BOOL else integer_range(dtype)
    if dtype_of(x).is_float:
        number = x.astype(np.float64)
        # 2 ** bits is exact in float64 where the greatest integer is not.
        fits = (number >= least) & (number < greatest + 1) & (np.trunc(number) == number)
    else:
        if not x.size or (least <= int(x.min()) and int(x.max()) <= greatest):
            return None
        number = x.astype(object)
        fits = (number >= least) & (number <= greatest)
    unfit = np.argwhere(~fits.astype(bool))
    return tuple(int(i) for i in unfit[0]) if len(unfit) else None


def _truncated(x: Array, dtype: DType) -> Array:
    least, greatest = integer_range(dtype)
    whole = np.trunc(x.astype(np.float64))
    # 2 ** bits is exact in float64 where the greatest integer is not.
    above, below = whole >= 2.0 ** (dtype.bits - dtype.is_signed), whole < float(least)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(dtype.numpy)
    return np.where(above, dtype.numpy.type(greatest), np.where(below, dtype.numpy.type(least), inside))


def _saturated(x: Array, dtype: DType) -> Array:
    format = dtype.float_format
    # f32 holds the values of every other dtype exactly within the range of 8-bit floats.
    wide: npt.NDArray[Any] = x.astype(np.float64 if dtype_of(x) is F64 else np.float32)
    with np.errstate(invalid="ignore"):
        inside = np.clip(wide, -format.largest, format.largest)
        # ml_dtypes rounded f64 to f32 first up to 0.6.
        return np.asarray(_on_grid(inside, format) if inside.dtype == F64.numpy else inside).astype(dtype.numpy)


def _on_grid(x: npt.NDArray[Any], format: Format) -> npt.NDArray[Any]:
    """Returns the nearest numbers of the format, halves to even, in f64, in which the computation is exact."""
    _, exponent = np.frexp(x)
    # Denormal numbers have the same spacing as the smallest normal ones.
    step = np.maximum(exponent - 1, 1 - format.bias) - format.fraction
    return np.asarray(np.copysign(np.ldexp(np.rint(np.ldexp(x, -step)), step), x))
