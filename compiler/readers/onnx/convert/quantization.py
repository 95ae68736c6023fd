"""Quantized tensors: conversions, and contractions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .....dialect.types import F32, F64, I32, U8, DType
from ...writing.tensors import Tensor
from ..writing.narrow import ELEMENTS, NARROW, element_of
from ..writing.use import Converters, Use
from .contractions import integer_matmul, shifted
from .convolutions import convolved
from .narrowing import narrowed


def _spread(use: Use, scale: Tensor, x: Tensor, axis: int) -> Tensor:
    """Returns scales or zero points in a shape that broadcasts to x: a scalar, one for each index of an axis, or one
    for each block."""
    g = use.g
    block = use.integer("block_size", 0)
    if scale.rank == 0 or scale.shape == (1,):
        return g.reshape(scale, shape=())
    if not -x.rank <= axis < x.rank:
        use.fail(f"has no axis {axis}: the operand has rank {x.rank}", code="bad-axis")
    axis = axis % x.rank
    size = x.shape[axis]
    is_single = scale.rank == x.rank and scale.shape[axis] == 1
    if block < 0 or (isinstance(size, int) and block > max(size, 1) and not is_single):
        use.fail(f"has `block_size` = {block} for an axis of {size}", code="bad-attribute")
    if isinstance(size, int):
        block = min(block, max(size, 1))
    if scale.rank == 1 and x.rank >= 1 and not block:
        return g.reshape(scale, shape=(*scale.shape, *(1,) * (x.rank - axis - 1)))
    if block:
        wide = g.repeat_interleave(scale, repeats=block, axis=axis)
        if wide.shape != x.shape:
            wide = g.slice(wide, starts=(None,) * axis + (0,), stops=(None,) * axis + (x.shape[axis],))
        return wide
    return scale


def _dequantize(use: Use) -> Sequence[Tensor]:
    q, scale, zero, g = use.input(0), use.input(1), use.optional(2), use.g
    axis = use.integer("axis", 1)
    number = use.integer("output_dtype", 0)
    dtype = use.dtype(number) if number else scale.dtype
    if not dtype.is_float or dtype.is_storage:
        use.fail(f"has a result of {dtype}, expected a float", code="bad-attribute")
    wide = F32 if scale.dtype.is_half or scale.dtype == F32 else scale.dtype
    value = g.cast(q, dtype=I32) if q.dtype.is_integer and zero is not None else q
    if zero is not None and q.dtype.is_integer:
        value = g.subtract(value, _spread(use, g.cast(zero, dtype=I32), q, axis))
    result = g.multiply(g.cast(value, dtype=wide), _spread(use, g.cast(scale, dtype=wide), q, axis))
    return [g.cast(result, dtype=dtype)]


def _quantize(use: Use) -> Sequence[Tensor]:
    x, scale, zero, g = use.input(0), use.input(1), use.optional(2), use.g
    axis = use.integer("axis", 1)
    number = use.integer("output_dtype", 0)
    element = "" if zero is None else element_of(zero)
    if number and zero is not None and use.element_name(number) != element:
        name = use.element_name(number)
        use.fail(f"has `output_dtype` = {name}, and a zero point of {element}", code="bad-attribute")
    if zero is None and number:
        element = use.element_name(number)
    narrow = NARROW.get(element)
    dtype = ELEMENTS[element] if element else U8
    if narrow is None and not dtype.is_integer and not dtype.is_storage:
        use.fail(f"has a result of {dtype}, expected quantized values", code="bad-attribute")
    precision = use.integer("precision", 0)
    wide = use.dtype(precision) if precision else (F32 if x.dtype.is_half or not x.dtype.is_float else x.dtype)
    if not precision and scale.dtype.is_half and x.dtype == scale.dtype:
        # The quotient has the dtype of the operands.
        ratio = g.cast(g.divide(x, _spread(use, scale, x, axis)), dtype=wide)
    else:
        ratio = _ratio(use, g.cast(x, dtype=wide), _spread(use, g.cast(scale, dtype=wide), x, axis))
    if narrow is not None and not narrow.bits:
        return [narrowed(use, ratio, narrow)]
    if dtype.is_storage:
        return [_stored(use, ratio, dtype)]
    offset = None if zero is None else _spread(use, zero, x, axis)
    if narrow is not None:
        return [replace(saturated(use, g.round(ratio), offset, dtype, narrow.integer_range), element=narrow.name)]
    return [saturated(use, g.round(ratio), offset, dtype)]


def _ratio(use: Use, x: Tensor, scale: Tensor) -> Tensor:
    """Returns x / scale, correctly rounded. A pass may replace the division by a product with the reciprocal, whose
    rounding error changes how ties are quantized. In f64, the error is too small to do so."""
    g = use.g
    if scale.array is not None and scale.rank == 0:
        return g.divide(x, scale)
    return g.cast(g.divide(g.cast(x, dtype=F64), g.cast(scale, dtype=F64)), dtype=x.dtype)


def _stored(use: Use, ratio: Tensor, dtype: DType) -> Tensor:
    if not use.integer("saturate", 1):
        use.fail("does not saturate 8-bit floats")
    return use.g.cast(ratio, dtype=dtype)


def saturated(
    use: Use, rounded: Tensor, zero: Tensor | None, dtype: DType, limits: tuple[int, int] | None = None
) -> Tensor:
    """Returns whole floats plus a zero point, clipped to the range of an integer dtype, or to limits inside of it."""
    g = use.g
    low, high = limits or dtype.integer_range
    if zero is not None:
        rounded = g.add(rounded, g.cast(zero, dtype=rounded.dtype))
    bounded = g.minimum(g.maximum(rounded, g.like(low, rounded)), g.like(high, rounded))
    return g.cast(bounded, dtype=dtype)


def _dynamic_quantize(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    zero = g.like(0, x)
    low, high = g.minimum(g.min(x), zero), g.maximum(g.max(x), zero)
    scale = g.divide(g.subtract(high, low), g.like(255, x))
    point = g.round(g.divide(g.negate(low), g.where(g.equal(scale, zero), g.like(1, x), scale)))
    point = g.minimum(g.maximum(point, zero), g.like(255, x))
    codes = saturated(use, g.round(_ratio(use, x, scale)), point, U8)
    return [codes, scale, g.cast(point, dtype=U8)]


def _qlinear_matmul(use: Use) -> Sequence[Tensor]:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (use.input(i) for i in range(8))
    g = use.g
    total = integer_matmul(use, a, a_zero, b, b_zero)
    rows = a_scale if a_scale.rank != 1 or a_scale.shape == (1,) else g.unsqueeze(a_scale, axes=(1,))
    factor = g.multiply(_f32(use, rows), _f32(use, b_scale))
    return [_requantized(use, total, g.divide(factor, _f32(use, scale)), zero)]


def _f32(use: Use, x: Tensor) -> Tensor:
    wide = use.g.cast(x, dtype=F32)
    return use.g.reshape(wide, shape=()) if wide.shape == (1,) else wide


def _requantized(use: Use, total: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    g = use.g
    scaled = g.round(g.multiply(g.cast(total, dtype=F32), factor))
    return saturated(use, scaled, g.reshape(zero, shape=()) if zero.shape == (1,) else zero, zero.dtype)


def _conv_integer(use: Use) -> Sequence[Tensor]:
    x, weight = use.input(0), use.input(1)
    return [_integer_conv(use, x, use.optional(2), weight, use.optional(3))]


def _integer_conv(use: Use, x: Tensor, x_zero: Tensor | None, weight: Tensor, zero: Tensor | None) -> Tensor:
    return convolved(use, shifted(use, x, x_zero), shifted(use, weight, zero, 0), None)


def _qlinear_conv(use: Use) -> Sequence[Tensor]:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (use.input(i) for i in range(8))
    bias, g = use.optional(8), use.g
    total = _integer_conv(use, x, x_zero, w, w_zero)
    channels = (-1, *(1,) * (x.rank - 2))
    if bias is not None:
        total = g.add(total, g.reshape(bias, shape=channels))
    factor = g.divide(g.multiply(_f32(use, x_scale), _f32(use, w_scale)), _f32(use, scale))
    if factor.rank == 1:
        factor = g.reshape(factor, shape=channels)
    return [_requantized(use, total, factor, zero)]


CONVERTERS: Converters = {
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QLinearMatMul": _qlinear_matmul,
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
}
