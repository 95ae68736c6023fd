"""Block-quantized values as ordinary tensors: quantization and dequantization with operators that have lowerings.

The results equal those of the references in `dialect/ops/block_quantization.py` bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Value
from ...lazy_dataclass import dataclass
from ...operator import Builder
from ...types import F32, I32, U8, DType, TensorType
from .block_codes import code_range, code_shift, codes_type, largest_number, scales_dtype, table_steps, table_words


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of a block-quantized value: the quantized values, one scale per block, and optional zero points."""

    type: TensorType
    codes: Value
    scales: Value
    zeros: Value | None = None


def read_planes(b: Builder, q: Value) -> Planes:
    """Returns the planes of an existing value."""
    zeros = b.block_zeros(q) if q.type.dtype.has_zero else None
    return Planes(q.type, b.block_codes(q), b.block_scales(q), zeros)


def quantize_planes(b: Builder, x: Value, dtype: DType) -> Planes:
    """Quantizes x and returns its planes."""
    type = x.type.with_dtype(dtype)
    shape = (*type.stored_shape, dtype.block)
    least, most = code_range(dtype)
    wide = b.reshape(b.cast(x, dtype=F32), shape=shape)
    limit = largest_number(dtype)
    wide = b.clip(b.where(b.isnan(wide), b.scalar(0.0, F32), wide), low=-limit, high=limit)
    low, high = (getattr(b, name)(wide, axis=-1, keepdims=True) for name in ("min", "max"))
    zeros = None
    if dtype.has_zero:
        low, high = b.minimum(low, b.scalar(0.0, F32)), b.maximum(high, b.scalar(0.0, F32))
        raw = b.divide(b.subtract(high, low), b.scalar(most, F32))
    elif dtype.bits == 8:
        raw = b.divide(b.maximum(b.negate(low), high), b.scalar(most, F32))
    else:
        raw = b.divide(b.where(b.greater(b.negate(low), high), low, high), b.scalar(least, F32))
    scales = b.cast(raw, dtype=scales_dtype(dtype))
    rounded = b.cast(scales, dtype=F32)
    inverse = b.where(b.equal(rounded, b.scalar(0.0, F32)), b.scalar(0.0, F32), b.reciprocal(rounded))
    codes = b.multiply(wide, inverse)
    if dtype.table:
        codes = _nearest_indices(b, codes, dtype)
    else:
        codes = b.round(codes)
        if dtype.has_zero:
            zero = b.clip(b.round(b.multiply(b.negate(low), inverse)), low=float(least), high=float(most))
            codes = b.add(codes, zero)
            zeros = b.reshape(b.cast(zero, dtype=U8), shape=type.stored_shape)
        codes = b.subtract(b.clip(codes, low=float(least), high=float(most)), b.scalar(code_shift(dtype), F32))
        codes = b.cast(codes, dtype=codes_type(type).dtype)
    if dtype.bits == 4:
        low_half, high_half = b.apply("split", (codes,), {"parts": 2, "axis": -1})
        codes = b.bitwise_or(low_half, b.shift_left(high_half, b.scalar(4, U8)))
    return Planes(type, codes, b.reshape(scales, shape=type.stored_shape), zeros)


def _nearest_indices(b: Builder, x: Value, dtype: DType) -> Value:
    """Returns the indices of the nearest values of a table."""
    (first, *order), middles = table_steps(dtype)
    found = b.scalar(first, U8)
    for index, middle in zip(order, middles, strict=True):
        found = b.where(b.greater(x, b.scalar(middle, F32)), b.scalar(index, U8), found)
    return found


def _look_up(b: Builder, codes: Value, table: Sequence[int]) -> Value:
    """Returns the values of a table of sixteen signed bytes as i32. Four values are in a word; the lower two bits of
    an index select a byte of it by shifts."""

    def number(value: int) -> Value:
        return b.scalar(value, I32)

    def has(bit: int) -> Value:
        return b.not_equal(b.bitwise_and(index, number(bit)), number(0))

    index = b.cast(codes, dtype=I32)
    first, second, third, fourth = map(number, table_words(table))
    second_of_pair = has(4)
    word = b.where(has(8), b.where(second_of_pair, fourth, third), b.where(second_of_pair, second, first))
    for bit in (2, 1):
        word = b.where(has(bit), b.shift_right(word, number(8 * bit)), word)
    return b.shift_right(b.shift_left(word, number(24)), number(24))


def dequantize_planes(b: Builder, planes: Planes, dtype: DType) -> Value:
    """Returns the numbers that the planes represent."""
    stored = planes.type.dtype
    blocks = planes.type.stored_shape
    # The two halves of a 4-bit block form a separate axis.
    parts = (2, stored.block // 2) if stored.bits == 4 else (1, stored.block)
    codes = b.reshape(planes.codes, shape=(*blocks, 1, planes.codes.type.shape[-1]))
    if stored.bits == 4:
        shifts = b.multiply(b.reshape(b.iota(shape=2, dtype=U8), shape=(2, 1)), b.scalar(4, U8))
        codes = b.bitwise_and(b.shift_right(codes, shifts), b.scalar(15, U8))
    numbers = b.cast(_look_up(b, codes, stored.table) if stored.table else codes, dtype=F32)
    if planes.zeros is not None:
        numbers = b.subtract(numbers, b.reshape(b.cast(planes.zeros, dtype=F32), shape=(*blocks, 1, 1)))
    elif code_shift(stored):
        numbers = b.add(numbers, b.scalar(code_shift(stored), F32))
    scaled = b.multiply(numbers, b.reshape(b.cast(planes.scales, dtype=F32), shape=(*blocks, 1, 1)))
    assert scaled.type.shape == (*blocks, *parts), (scaled, planes)
    return b.cast(b.reshape(scaled, shape=planes.type.shape), dtype=dtype)
