"""Types of values: a dtype and a shape of symbolic sizes. `dtypes` defines the dtypes; this module passes them on.

A type defines no layout and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .dims import Shape, Size, Symbol, divide_exactly, evaluate, format_size, product, symbols_of
from .dtype import DType, Format, Kind
from .dtypes import (
    ANY,
    BF16,
    BLOCK_DTYPES,
    BLOCK_SIZES,
    BLOCK_WORDS,
    BLOCKED,
    BOOL,
    COMPUTED,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    SIGNED,
    STORAGE,
    TABLES,
    U8,
    U16,
    U32,
    U64,
    UNSIGNED,
    Array,
    dtype_of,
)
from .lazy_dataclass import dataclass

__all__ = [
    "ANY",
    "BF16",
    "BLOCKED",
    "BLOCK_DTYPES",
    "BLOCK_SIZES",
    "BLOCK_WORDS",
    "BOOL",
    "COMPUTED",
    "DTYPES",
    "F8E4M3",
    "F8E5M2",
    "F16",
    "F32",
    "F64",
    "FLOATS",
    "I8",
    "I16",
    "I32",
    "I64",
    "INTEGERS",
    "NUMBERS",
    "SIGNED",
    "STORAGE",
    "TABLES",
    "U8",
    "U16",
    "U32",
    "U64",
    "UNSIGNED",
    "Array",
    "DType",
    "Format",
    "Kind",
    "TensorType",
    "dtype_of",
]


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
