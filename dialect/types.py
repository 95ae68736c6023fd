"""Types of values: a dtype and a shape of symbolic sizes.

This module defines the numpy counterparts of the dtypes (bfloat16 and 8-bit floats come from `ml_dtypes`), but no
layout or memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .dims import Shape, Size, Symbol, divide_exactly, evaluate, format_size, product, symbols_of

Array = npt.NDArray[np.generic]


class Kind(Enum):
    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float format, by the bits of its exponent and of its fraction. A `finite` format has no infinities: its
    greatest exponent holds numbers too, and only the pattern with all bits of both set is NaN."""

    exponent: int
    fraction: int
    finite: bool = False

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> float:
        """The greatest number."""
        if self.finite:
            return (2 - 2 * self.epsilon) * 2.0 ** (self.bias + 1)
        return (2 - self.epsilon) * 2.0**self.bias

    @property
    def epsilon(self) -> float:
        return 2.0**-self.fraction

    @property
    def digits(self) -> int:
        """The largest number of bits for which all integers are exact."""
        return self.fraction + 1


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` is its width in arithmetic; a bool is stored in a byte that is 0 or 1.

    A float has a `format`. An 8-bit float is stored, moved, and converted, but never computed with.

    In a block-quantized type, `block` neighbours along the last axis are stored together, as one element of `numpy`: a
    scale, optionally a zero point (`has_zero`), and a quantized value of `bits` for each. These are not computed with.
    """

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[np.generic]
    block: int = 1
    has_zero: bool = False
    format: Format | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """The bytes of an element, or of a block of elements."""
        return self.numpy.itemsize

    @property
    def is_blocked(self) -> bool:
        return self.kind is Kind.BLOCK

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    @property
    def is_storage(self) -> bool:
        """Whether it is a float that is only stored, never computed with."""
        return self.is_float and self.bits == 8

    @property
    def is_differentiable(self) -> bool:
        return self.is_float and not self.is_storage

    @property
    def float_format(self) -> Format:
        """The format of a float."""
        assert self.format is not None, self
        return self.format

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger float; 0 for other kinds."""
        return 0.0 if self.format is None else self.format.epsilon


def _float(name: str, numpy: type[np.generic], exponent: int, fraction: int, *, finite: bool = False) -> DType:
    return DType(
        name, Kind.FLOAT, 1 + exponent + fraction, np.dtype(numpy), format=Format(exponent, fraction, finite=finite)
    )


BOOL = DType("bool", Kind.BOOL, 1, np.dtype(np.bool_))
I8 = DType("i8", Kind.SIGNED, 8, np.dtype(np.int8))
U8 = DType("u8", Kind.UNSIGNED, 8, np.dtype(np.uint8))
I16 = DType("i16", Kind.SIGNED, 16, np.dtype(np.int16))
U16 = DType("u16", Kind.UNSIGNED, 16, np.dtype(np.uint16))
I32 = DType("i32", Kind.SIGNED, 32, np.dtype(np.int32))
U32 = DType("u32", Kind.UNSIGNED, 32, np.dtype(np.uint32))
I64 = DType("i64", Kind.SIGNED, 64, np.dtype(np.int64))
U64 = DType("u64", Kind.UNSIGNED, 64, np.dtype(np.uint64))
F16 = _float("f16", np.float16, 5, 10)
BF16 = _float("bf16", ml_dtypes.bfloat16, 8, 7)
F32 = _float("f32", np.float32, 8, 23)
F64 = _float("f64", np.float64, 11, 52)
F8E4M3 = _float("f8e4m3", ml_dtypes.float8_e4m3fn, 4, 3, finite=True)
F8E5M2 = _float("f8e5m2", ml_dtypes.float8_e5m2, 5, 2)

BLOCK_SIZES = (32, 64, 128)


def _blocked(bits: int, block: int, has_zero: bool) -> DType:
    """Returns a block-quantized type. 8-bit values are i8, or u8 with a zero point. 4-bit values are `pairs`: the low
    half of a byte holds an element of the first half of the block, the high half the element half a block later."""
    wide = bits == 8
    codes = ("codes" if wide else "pairs", np.int8 if wide and not has_zero else np.uint8, (block * bits // 8,))
    fields = [("scale", np.float16), *([("zero", np.uint8)] if has_zero else []), codes]
    name = f"q{bits}[block {block}{', zero' if has_zero else ''}]"
    return DType(name, Kind.BLOCK, bits, np.dtype(fields), block, has_zero)


BLOCKED = tuple(_blocked(bits, block, zero) for bits in (8, 4) for block in BLOCK_SIZES for zero in (False, True))
"""Block-quantized types: a weight is `q * scale`, or with a zero point `(q - zero) * scale`."""

SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = (I8, U8, I16, U16, I32, U32, I64, U64)
FLOATS = (F16, BF16, F32, F64)
"""The floats that arithmetic supports."""
STORAGE = (F8E4M3, F8E5M2)
"""The floats that are only stored."""
NUMBERS = INTEGERS + FLOATS
COMPUTED = (BOOL, *NUMBERS)
"""The dtypes of all kinds that arithmetic supports."""
ANY = (*COMPUTED, *STORAGE)
DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in ANY}
BLOCK_DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in BLOCKED}
_BY_NUMPY = {dtype.numpy: dtype for dtype in (*ANY, *BLOCKED)}


def dtype_of(array: Array) -> DType:
    """Returns the dtype of a numpy array. Raises KeyError if Nacre has none for it."""
    return _BY_NUMPY[array.dtype.newbyteorder("=")]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; rank 0 is a scalar."""

    dtype: DType
    shape: Shape = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(format_size, self.shape))}]" if self.shape else self.dtype.name

    __repr__ = __str__

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Size:
        return product(self.shape)

    @property
    def stored_shape(self) -> Shape:
        """The shape of the numpy array that holds such a tensor: its last axis counts blocks."""
        if not self.dtype.is_blocked:
            return self.shape
        blocks = divide_exactly(self.shape[-1], self.dtype.block) if self.shape else None
        assert blocks is not None, f"{self} is not a whole number of blocks"
        return (*self.shape[:-1], blocks)

    @property
    def bytes(self) -> Size:
        return product((*self.stored_shape, self.dtype.bytes))

    @property
    def is_static(self) -> bool:
        return all(isinstance(s, int) for s in self.shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def with_shape(self, shape: Iterable[Size]) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def symbols(self) -> tuple[Symbol, ...]:
        return symbols_of(self.shape)

    def concrete(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the shape as integers under values of the dims."""
        return tuple(evaluate(s, values) for s in self.shape)
