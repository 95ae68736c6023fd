"""The record of a dtype: its numpy counterpart, its format, and the facts that passes and the code generator derive."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

import numpy as np

from .lazy_dataclass import dataclass


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
    def infinity_bits(self) -> int:
        """The pattern of the infinity: all bits of the exponent."""
        assert not self.finite, self
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def nan_bits(self) -> int:
        """The pattern of the quiet NaN without payload."""
        return self.infinity_bits | 1 << (self.fraction - 1)

    @property
    def digits(self) -> int:
        """The largest number of bits for which all integers are exact."""
        return self.fraction + 1


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` is its width in arithmetic; a bool is stored in a byte that is 0 or 1.

    A float has a `format`. An 8-bit float is stored, moved, and converted, but never computed with.

    In a block-quantized type, `block` neighbours along the last axis are stored together, as one element of `numpy`: a
    scale of the dtype `scale`, optionally a zero point (`has_zero`), and a quantized value of `bits` for each. These
    are not computed with. With a `table`, the bits are the index of one of its integers, which is the quantized value.

    number: the value of `nacre_dtype` in the ABI; 0 if no argument has the dtype.
    sums_in: the other dtypes that can hold sums of products of such factors. A tensor is rounded to a dtype that has
        any in order to take fewer bytes.
    is_grouped: whether CPUs have instructions that sum the products of neighbours. Weights are then packed so that as
        many neighbours as fill 32 bits are adjacent.
    through_f32: whether a conversion from f64, or from an integer, rounds to f32 first.
    samples: numbers that tests mix with ordinary ones, in addition to zeros, infinities and NaN: denormal numbers, 1,
        and huge numbers, whose products overflow.
    aliases: further names in other libraries, besides that of the numpy counterpart.
    """

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[np.generic]
    block: int = 1
    has_zero: bool = False
    scale: DType | None = None
    table: tuple[int, ...] = ()
    format: Format | None = None
    number: int = field(default=0, compare=False)
    sums_in: tuple[DType, ...] = field(default=(), compare=False)
    is_grouped: bool = field(default=False, compare=False)
    through_f32: bool = field(default=False, compare=False)
    samples: tuple[float, ...] = field(default=(), compare=False)
    aliases: tuple[str, ...] = field(default=(), compare=False)

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
    def integer_range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer dtype."""
        values = 1 << self.bits
        return (-values // 2, values // 2 - 1) if self.is_signed else (0, values - 1)

    @property
    def is_storage(self) -> bool:
        """Whether it is a float that is only stored, never computed with."""
        return self.is_float and self.bits == 8

    @property
    def is_differentiable(self) -> bool:
        return self.is_float and not self.is_storage

    @property
    def is_half(self) -> bool:
        """Whether it is a 16-bit float, whose elements are widened to f32, computed, and rounded."""
        return self.is_float and self.bits == 16

    @property
    def is_short(self) -> bool:
        """Whether tensors are rounded to it in order to take fewer bytes."""
        return bool(self.sums_in)

    @property
    def group(self) -> int:
        """The number of neighbours whose products are summed by one step, where both factors have such a group."""
        return 32 // self.bits if self.is_grouped else 1

    @property
    def mlir(self) -> str:
        """The element type in MLIR: integers are signless with signed or unsigned operations, and floats that are only
        stored are plain bits."""
        return self.name if self.is_float and not self.is_storage else f"i{self.bits}"

    @property
    def c_name(self) -> str:
        """The type of an element in C; the bits of a float for which C has no type."""
        if self.is_float:
            return {32: "float", 64: "double"}.get(self.bits, f"uint{self.bits}_t")
        return f"{'int' if self.is_signed else 'uint'}{8 * self.bytes}_t"

    @property
    def float_format(self) -> Format:
        """The format of a float."""
        assert self.format is not None, self
        return self.format

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger float; 0 for other kinds."""
        return 0.0 if self.format is None else self.format.epsilon
