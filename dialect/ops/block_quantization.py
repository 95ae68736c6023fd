"""Block-quantized values: each block of neighbours along the last axis has a separate scale, and short integers.

`quantize_blocks` quantizes a tensor, and `dequantize_blocks` restores the represented numbers exactly. No other
operator computes with such a value. Its planes, `block_codes`, `block_scales` and `block_zeros`, are ordinary tensors,
which code generation supports. `join_blocks` assembles a value from given planes, for quantized values from another
method.

A scale is rounded to its dtype before it is used to quantize. Without a zero point, 8 bits hold -127 to 127, and 4 bits
hold -8 to 7, or 16 values of a table. For 4 bits, the sign of the scale maps the number of largest magnitude to the
least value, such as -8, which makes it as exact as its scale. With a zero point, quantized values begin at 0, and 0
itself is always representable. NaN counts as 0; infinities saturate. The table `nl` has no 0, so that 0 becomes the
least positive value of its block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import divide_exactly
from ..operator import Attributes, AttributeSpec, InferenceError, Operand, Operator
from ..types import BF16, BLOCKED, F16, F32, FLOATS, I8, U8, DType, TensorType, dtype_of
from .support.accumulate import Numbers
from .support.block_codes import (
    code_range,
    code_shift,
    codes_type,
    largest_number,
    nearest_in_table,
    scales_dtype,
    table_indices,
)

_BLOCKED = frozenset({"blocked"})


def check_blocks(type: TensorType) -> None:
    """Raises InferenceError if the last axis is not a whole number of blocks."""
    if not type.dtype.is_blocked:
        return
    if type.rank == 0 or divide_exactly(type.shape[-1], type.dtype.block) is None:
        what = f"its last axis has size {type.shape[-1]}" if type.rank else "it has no axis"
        message = f"`{type.dtype}` holds blocks of {type.dtype.block} along the last axis"
        raise InferenceError("bad-block", message, label=what, operand=0)


# The codec


def _halves(codes: Numbers) -> Numbers:
    """Packs two 4-bit values per byte: the low half of a byte belongs to the first half of the block."""
    half = codes.shape[-1] // 2
    return np.asarray(codes[..., :half] | codes[..., half:] << 4)


def _quantize(x: Numbers, dtype: DType) -> Numbers:
    wide = x.astype(np.float32)
    limit = np.float32(largest_number(dtype))
    finite = np.clip(np.where(np.isnan(wide), np.float32(0), wide), -limit, limit)
    blocks = finite.reshape(*x.shape[:-1], x.shape[-1] // dtype.block, dtype.block)
    least, most = code_range(dtype)
    low, high = blocks.min(-1, keepdims=True), blocks.max(-1, keepdims=True)
    if dtype.has_zero:
        low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
        raw = (high - low) / np.float32(most)
    elif dtype.bits == 8:
        raw = np.maximum(-low, high) / np.float32(most)
    else:
        raw = np.where(-low > high, low, high) / np.float32(least)
    scale = raw.astype(scales_dtype(dtype).numpy)
    inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale.astype(np.float32))
    zero = np.clip(np.round(-low * inverse), least, most) if dtype.has_zero else np.zeros_like(low)
    if dtype.table:
        codes = nearest_in_table(blocks * inverse, dtype).astype(np.int16)
    else:
        codes = np.clip(np.round(blocks * inverse) + zero, least, most).astype(np.int16)
    return _join(packed_codes(codes, dtype), scale[..., 0], zero[..., 0] if dtype.has_zero else None, dtype)


def packed_codes(codes: Numbers, dtype: DType) -> Numbers:
    """Returns quantized values [..., blocks, block] in their stored form."""
    if dtype.table:
        return _halves(table_indices(codes, dtype))
    if dtype.bits == 4:
        return _halves((codes - code_shift(dtype)).astype(np.uint8))
    return np.asarray(codes.astype(np.uint8 if dtype.has_zero else np.int8))


def _join(codes: Numbers, scales: Numbers, zeros: Numbers | None, dtype: DType) -> Numbers:
    result = np.empty(scales.shape, dtype.numpy)
    result["scale"], result[_field(dtype)] = scales, codes
    if zeros is not None:
        result["zero"] = zeros
    return result


def _field(dtype: DType) -> str:
    """Returns the name of the field of quantized values in the stored form."""
    assert dtype.numpy.names is not None, dtype
    return dtype.numpy.names[-1]


def _codes(q: Numbers, dtype: DType) -> Numbers:
    """Returns the quantized values as numbers, [..., blocks, block]."""
    codes = q[_field(dtype)]
    if dtype.bits == 4:
        codes = np.concatenate([codes & 15, codes >> 4], -1)
    if dtype.table:
        return np.asarray(np.asarray(dtype.table, np.int16)[codes])
    return np.asarray(codes.astype(np.int16) + code_shift(dtype))


def _dequantize(q: Numbers, dtype: DType) -> Numbers:
    stored = dtype_of(q)
    codes = _codes(q, stored)
    if stored.has_zero:
        codes = codes - q["zero"][..., None].astype(np.int16)
    # A quantized value has at most 9 bits and a scale 11: no product is rounded, unless it is denormal.
    numbers = codes.astype(np.float32) * q["scale"][..., None].astype(np.float32)
    return numbers.reshape(*q.shape[:-1], q.shape[-1] * stored.block).astype(dtype.numpy)


# Operators


def _infer_quantize(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype: DType = attributes["dtype"]
    if not dtype.is_blocked:
        accepted = ", ".join(d.name for d in BLOCKED)
        raise InferenceError("bad-attribute", f"`{dtype}` is not divided into blocks", label=f"accepted: {accepted}")
    result = types[0].with_dtype(dtype)
    check_blocks(result)
    return (result,)


def _infer_dequantize(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype: DType = attributes["dtype"]
    if not dtype.is_float:
        raise InferenceError("bad-attribute", f"`dequantize` gives floats, not {dtype}")
    return (types[0].with_dtype(dtype),)


def _infer_join(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype: DType = attributes["dtype"]
    codes, scales, *zeros = types
    if not dtype.is_blocked or dtype.has_zero != bool(zeros):
        raise InferenceError("bad-attribute", f"`{dtype}` does not have these {len(types)} planes")
    if scales.rank == 0:
        raise InferenceError("bad-block", f"`{dtype}` holds blocks along the last axis", operand=1)
    result = TensorType(dtype, (*scales.shape[:-1], scales.shape[-1] * dtype.block))
    wanted = (codes_type(result), _scales_type(result), _zeros_type(result))
    for number, (type, expected) in enumerate(zip((codes, scales, *zeros), wanted, strict=False)):
        if type != expected:
            message = f"the planes of {result} are not {type} and {scales}"
            raise InferenceError("shape-mismatch", message, label=f"expected {expected}", operand=number)
    return (result,)


def _scales_type(type: TensorType) -> TensorType:
    return TensorType(scales_dtype(type.dtype), type.stored_shape)


def _zeros_type(type: TensorType) -> TensorType:
    return TensorType(U8, type.stored_shape)


def _infer_zeros(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    if not types[0].dtype.has_zero:
        raise InferenceError("dtype-mismatch", f"{types[0]} has no zero points", operand=0)
    return (_zeros_type(types[0]),)


quantize_blocks = Operator(
    name="quantize_blocks",
    summary="x quantized in blocks along its last axis, each with a scale and optionally a zero point",
    operands=(Operand("x", FLOATS),),
    attributes=(AttributeSpec("dtype", "dtype"),),
    infer=_infer_quantize,
    reference=lambda x, dtype: _quantize(x, dtype),
    gradient=None,
    cases=(),
    properties=_BLOCKED | {"stepped"},
)

dequantize_blocks = Operator(
    name="dequantize_blocks",
    summary="the float values of a block-quantized tensor",
    operands=(Operand("q", BLOCKED),),
    attributes=(AttributeSpec("dtype", "dtype", F32),),
    infer=_infer_dequantize,
    reference=lambda q, dtype: _dequantize(q, dtype),
    gradient=None,
    cases=(),
    properties=_BLOCKED,
)

join_blocks = Operator(
    name="join_blocks",
    summary="the block-quantized tensor with the given quantized values, scales and zero points",
    operands=(
        Operand("codes", (I8, U8), "codes"),
        Operand("scales", (F16, BF16), "scales"),
        Operand("zeros", (U8,), "zeros", optional=True),
    ),
    attributes=(AttributeSpec("dtype", "dtype"),),
    infer=_infer_join,
    reference=lambda codes, scales, zeros=None, *, dtype: _join(codes, scales, zeros, dtype),
    gradient=None,
    cases=(),
    properties=_BLOCKED | {"internal"},
)

block_codes = Operator(
    name="block_codes",
    summary="the quantized values of a block-quantized tensor, as stored",
    operands=(Operand("q", BLOCKED),),
    infer=lambda types, attributes: (codes_type(types[0]),),
    reference=lambda q: np.ascontiguousarray(q[_field(dtype_of(q))]),
    gradient=None,
    cases=(),
    properties=_BLOCKED | {"internal"},
)

block_scales = Operator(
    name="block_scales",
    summary="the scales of a block-quantized tensor",
    operands=(Operand("q", BLOCKED),),
    infer=lambda types, attributes: (_scales_type(types[0]),),
    reference=lambda q: np.ascontiguousarray(q["scale"]),
    gradient=None,
    cases=(),
    properties=_BLOCKED | {"internal"},
)

block_zeros = Operator(
    name="block_zeros",
    summary="the zero points of a block-quantized tensor",
    operands=(Operand("q", BLOCKED),),
    infer=_infer_zeros,
    reference=lambda q: np.ascontiguousarray(q["zero"]),
    gradient=None,
    cases=(),
    properties=_BLOCKED | {"internal"},
)

OPERATORS = (quantize_blocks, dequantize_blocks, join_blocks, block_codes, block_scales, block_zeros)
