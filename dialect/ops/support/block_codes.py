"""The quantized values of block-quantized dtypes: their ranges, stored forms, and the largest numbers they represent.

    dtype                range       stored as               largest number
    q8[block 32]         -127..127   i8                      127 times the largest scale
    q8[block 32, zero]   0..255      u8                      255 / 2 times the largest scale
    q4[block 32]         -8..7       4 bits, from 0 on       8 times the largest scale
    q4[block 32, zero]   0..15       4 bits                  15 / 2 times the largest scale
    q4[block 32, nl]     -127..113   4 bits: a table index   127 times the largest scale
    q4[block 32, e2m1]   -12..12     4 bits: a table index   about the largest f32, since scales are bf16

The largest scale of the others is 65504, the largest finite f16 number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...types import F32, I8, U8, DType, TensorType
from .accumulate import Numbers


def scales_dtype(dtype: DType) -> DType:
    assert dtype.scale is not None, dtype
    return dtype.scale


def code_range(dtype: DType) -> tuple[int, int]:
    """Returns the least and the greatest quantized value."""
    if dtype.table:
        return min(dtype.table), max(dtype.table)
    if dtype.has_zero:
        return 0, (1 << dtype.bits) - 1
    return (-127, 127) if dtype.bits == 8 else (-8, 7)


def largest_number(dtype: DType) -> float:
    """Returns the largest representable magnitude. Numbers beyond it saturate, since no scale is large enough for
    them."""
    least, most = code_range(dtype)
    scale = scales_dtype(dtype).float_format
    # A scale that is rounded up must not make a product larger than all f32.
    most_f32 = F32.float_format.largest * (1 - scale.epsilon)
    return min(scale.largest * (most / 2 if dtype.has_zero else float(-least)), most_f32)


def code_shift(dtype: DType) -> int:
    """Returns the offset of stored quantized values: 4-bit values are stored from 0 on, unless they index a table."""
    return code_range(dtype)[0] if dtype.bits == 4 and not dtype.table else 0


def table_steps(dtype: DType) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Returns the indices of the table's values in increasing order, each value once, and the midpoints of
    neighbours, which round to the lower one."""
    order = sorted({value: dtype.table.index(value) for value in dtype.table}.items())
    values = [value for value, _ in order]
    middles = [(low + high) / 2 for low, high in pairwise(values)]
    return tuple(index for _, index in order), tuple(middles)


def nearest_in_table(x: Numbers, dtype: DType) -> Numbers:
    """Returns the nearest quantized values in the dtype's table, of the dtype of x."""
    order, middles = table_steps(dtype)
    ranks = np.searchsorted(np.asarray(middles, x.dtype), x)
    return np.asarray(np.asarray(dtype.table, x.dtype)[np.asarray(order)[ranks]])


def table_indices(codes: Numbers, dtype: DType) -> Numbers:
    """Returns the indices of quantized values in the dtype's table."""
    order, _ = table_steps(dtype)
    values = np.asarray([dtype.table[index] for index in order])
    return np.asarray(np.asarray(order, np.uint8)[np.searchsorted(values, codes)])


def table_words(table: Sequence[int]) -> tuple[int, ...]:
    """Returns a table of signed bytes as words of 32 bits, the first value in the lowest bits."""
    return tuple(np.asarray(table, np.int8).view("<i4").tolist())


def codes_type(type: TensorType) -> TensorType:
    """Returns the type of the codes plane: [..., blocks, block] of 8 bits, or [..., blocks, block / 2] with two 4-bit
    values per byte."""
    dtype = type.dtype
    packed = I8 if dtype.bits == 8 and not dtype.has_zero else U8
    return TensorType(packed, (*type.stored_shape, dtype.block * dtype.bits // 8))
