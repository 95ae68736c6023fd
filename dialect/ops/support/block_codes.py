"""The quantized values of block-quantized dtypes: their ranges, stored forms, and the largest numbers they represent.

    dtype                range       stored as           largest number
    q8[block 32]         -127..127   i8                  127 times the largest scale
    q8[block 32, zero]   0..255      u8                  255 / 2 times the largest scale
    q4[block 32]         -8..7       4 bits, from 0 on   8 times the largest scale
    q4[block 32, zero]   0..15       4 bits              15 / 2 times the largest scale

The largest scale is 65504, the largest finite f16 number.
"""

from __future__ import annotations

from ...types import I8, U8, DType, TensorType

_LARGEST_SCALE = 65504
"""The largest finite f16 number."""


def code_range(dtype: DType) -> tuple[int, int]:
    """Returns the least and the greatest quantized value."""
    if dtype.has_zero:
        return 0, (1 << dtype.bits) - 1
    return (-127, 127) if dtype.bits == 8 else (-8, 7)


def largest_number(dtype: DType) -> float:
    """Returns the largest representable magnitude. Numbers beyond it saturate, since no scale is large enough for
    them."""
    least, most = code_range(dtype)
    return _LARGEST_SCALE * (most / 2 if dtype.has_zero else float(-least))


def code_shift(dtype: DType) -> int:
    """Returns the offset of stored quantized values: 4-bit values are stored from 0 on."""
    return code_range(dtype)[0] if dtype.bits == 4 else 0


def codes_type(type: TensorType) -> TensorType:
    """Returns the type of the codes plane: [..., blocks, block] of 8 bits, or [..., blocks, block / 2] with two 4-bit
    values per byte."""
    dtype = type.dtype
    packed = I8 if dtype.bits == 8 and not dtype.has_zero else U8
    return TensorType(packed, (*type.stored_shape, dtype.block * dtype.bits // 8))
