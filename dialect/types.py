"""Types of values: a dtype and a shape of symbolic sizes.

The dtypes' numpy counterparts stand here (bfloat16 and floats of 8 bits come from `ml_dtypes`); layout and memory do
not.
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
    """A binary format of floats, by the bits of its exponent and of its fraction. Without infinities, as of `finite`
    ones, the greatest exponent holds numbers too, and NaN alone is where all bits of both are ones."""

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
        """How many bits whole numbers may have that all are exact."""
        return self.fraction + 1


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` is its width in arithmetic; a bool is stored in a byte that is 0 or 1.

    A float has a `format`. Nothing is computed in one of 8 bits: it is stored, moved, and converted.

    Of a block-quantised one, `block` neighbours along the last axis are stored together, as one element of `numpy`: a
    scale, perhaps a zero point (`has_zero`), and a code of `bits` for each. Nothing is computed with these codes.
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
        """Of an element, or of a block of them."""
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
        """Is it a float that nothing is computed in?"""
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
    """Codes of 8 bits are i8, or u8 with a zero point. Those of 4 bits are `pairs`: the low half of a byte holds one of
    the first half of the block, the high half the one half a block further on."""
    wide = bits == 8
    codes = ("codes" if wide else "pairs", np.int8 if wide and not has_zero else np.uint8, (block * bits // 8,))
    fields = [("scale", np.float16), *([("zero", np.uint8)] if has_zero else []), codes]
    name = f"q{bits}[block {block}{', zero' if has_zero else ''}]"
    return DType(name, Kind.BLOCK, bits, np.dtype(fields), block, has_zero)


BLOCKED = tuple(_blocked(bits, block, zero) for bits in (8, 4) for block in BLOCK_SIZES for zero in (False, True))
"""Block-quantised types: a weight is `code * scale`, or with a zero point `(code - zero) * scale`."""

SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = (I8, U8, I16, U16, I32, U32, I64, U64)
FLOATS = (F16, BF16, F32, F64)
"""Those that are computed in."""
STORAGE = (F8E4M3, F8E5M2)
"""Those that are not."""
NUMBERS = INTEGERS + FLOATS
COMPUTED = (BOOL, *NUMBERS)
"""What is computed in, of any kind."""
ANY = (*COMPUTED, *STORAGE)
DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in ANY}
BLOCK_DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in BLOCKED}
_BY_NUMPY = {dtype.numpy: dtype for dtype in (*ANY, *BLOCKED)}


def dtype_of(array: Array) -> DType:
    """The dtype of a numpy array. Raises KeyError where Nacre has none for it."""
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
        assert blocks is not None, f"{self} is no whole number of blocks"
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
        """The shape as integers under values of the dims."""
        return tuple(evaluate(s, values) for s in self.shape)
