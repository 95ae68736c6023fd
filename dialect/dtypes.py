"""The dtypes: one record for each, with everything that other parts of Nacre derive from a dtype.

A new dtype is a record here and a member of `ANY`. Groups of dtypes, and the tables of the compiler, follow from the
records. `runtime/` cannot import them and repeats the numbers, the names and the numpy counterparts, which a test
compares. The numpy counterparts of bf16 and of 8-bit floats come from `ml_dtypes`.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .dtype import DType, Format, Kind

Array = npt.NDArray[np.generic]


def _integer(
    number: int, name: str, *, sums_in: tuple[DType, ...] = (), is_grouped: bool = False, aliases: tuple[str, ...] = ()
) -> DType:
    kind = Kind.SIGNED if name.startswith("i") else Kind.UNSIGNED
    dtype: np.dtype[np.generic] = np.dtype(f"{'i' if kind is Kind.SIGNED else 'u'}{int(name[1:]) // 8}")
    return DType(
        name, kind, int(name[1:]), dtype, number=number, sums_in=sums_in, is_grouped=is_grouped, aliases=aliases
    )


def _float(
    number: int,
    name: str,
    numpy: type[np.generic],
    format: Format,
    *,
    samples: tuple[float, ...],
    sums_in: tuple[DType, ...] = (),
    is_grouped: bool = False,
    through_f32: bool = False,
    aliases: tuple[str, ...] = (),
) -> DType:
    return DType(
        name,
        Kind.FLOAT,
        1 + format.exponent + format.fraction,
        np.dtype(numpy),
        format=format,
        number=number,
        sums_in=sums_in,
        is_grouped=is_grouped,
        through_f32=through_f32,
        samples=samples,
        aliases=aliases,
    )


# Products of two huge samples overflow, in any order of summation; sums of them alone do not.
F64 = _float(13, "f64", np.float64, Format(11, 52), samples=(5e-320, 1.0, 1e250, -1e250), aliases=("double",))
F32 = _float(12, "f32", np.float32, Format(8, 23), samples=(1e-42, -1e-40, 1.0, 1e30, -1e30), aliases=("float",))
BF16 = _float(
    11,
    "bf16",
    ml_dtypes.bfloat16,
    Format(8, 7),
    samples=(1e-40, -1e-39, 1.0, 1e30, -1e30),
    sums_in=(F32,),
    is_grouped=True,
    through_f32=True,
)
F16 = _float(
    10, "f16", np.float16, Format(5, 10), samples=(6e-8, -1e-7, 1.0, 60000.0), sums_in=(F32,), aliases=("half",)
)
F8E4M3 = _float(
    14,
    "f8e4m3",
    ml_dtypes.float8_e4m3fn,
    Format(4, 3, finite=True),
    samples=(2.0**-9, -(2.0**-8), 1.0, 448.0, -448.0),
    sums_in=(F32,),
    aliases=("fp8", "float8", "f8", "f8e4m3fn", "float8_e4m3"),
)
F8E5M2 = _float(
    15,
    "f8e5m2",
    ml_dtypes.float8_e5m2,
    Format(5, 2),
    samples=(2.0**-16, -(2.0**-15), 1.0, 57344.0),
    sums_in=(F32,),
)

BOOL = DType("bool", Kind.BOOL, 1, np.dtype(np.bool_), number=1)
I64 = _integer(8, "i64", aliases=("int",))
U64 = _integer(9, "u64")
I32 = _integer(6, "i32")
U32 = _integer(7, "u32")
I16 = _integer(4, "i16")
U16 = _integer(5, "u16")
I8 = _integer(2, "i8", sums_in=(I32, F32), is_grouped=True)
U8 = _integer(3, "u8", sums_in=(I32,), is_grouped=True)

ANY = (BOOL, I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2)
"""All dtypes except block-quantized ones."""
SIGNED = tuple(dtype for dtype in ANY if dtype.is_signed)
UNSIGNED = tuple(dtype for dtype in ANY if dtype.kind is Kind.UNSIGNED)
INTEGERS = tuple(dtype for dtype in ANY if dtype.is_integer)
FLOATS = tuple(dtype for dtype in ANY if dtype.is_float and not dtype.is_storage)
"""The floats that arithmetic supports."""
STORAGE = tuple(dtype for dtype in ANY if dtype.is_storage)
"""The floats that are only stored."""
NUMBERS = INTEGERS + FLOATS
COMPUTED = (BOOL, *NUMBERS)
"""The dtypes of all kinds that arithmetic supports."""

BLOCK_SIZES = (16, 32, 64, 128)
ZERO = "zero"
"""The word for a zero point in the name of a block-quantized type."""
TABLES: Mapping[str, tuple[tuple[int, ...], DType]] = {
    "nl": ((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), F16),
    "e2m1": ((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), BF16),
}
"""The words for uneven values of 4 bits: the values by their bits, and the dtype of the scales.

nl: denser around 0, as weights are; the format IQ4_NL of GGUF.
e2m1: twice the floats with a sign, two bits of exponent and one of fraction, so that they are integers. A bf16 holds
    every power of 2 that is a scale of MXFP4, and half of it.
"""


def _blocked(bits: int, block: int, word: str = "") -> DType:
    """Returns a block-quantized type. 8-bit values are i8, or u8 with a zero point. 4-bit values are `pairs`: the low
    half of a byte holds an element of the first half of the block, the high half the element half a block later.
    Indices of a table have its name, so that arrays of all types differ in their dtypes."""
    wide, has_zero = bits == 8, word == ZERO
    table, scale = TABLES.get(word, ((), F16))
    field = word if table else "codes" if wide else "pairs"
    codes = (field, np.int8 if wide and not has_zero else np.uint8, (block * bits // 8,))
    fields = [("scale", scale.numpy), *([("zero", np.uint8)] if has_zero else []), codes]
    name = f"q{bits}[block {block}{f', {word}' if word else ''}]"
    return DType(name, Kind.BLOCK, bits, np.dtype(fields), block, has_zero, scale=scale, table=table)


BLOCK_WORDS: Mapping[str, tuple[str, ...]] = {"q8": (ZERO,), "q4": (ZERO, *TABLES)}
"""The words that may follow the block size, by the name before it."""
BLOCKED = tuple(
    _blocked(int(name[1:]), block, word)
    for name, words in BLOCK_WORDS.items()
    for block in BLOCK_SIZES
    for word in ("", *words)
)
"""Block-quantized types: a weight is `q * scale`, or with a zero point `(q - zero) * scale`."""

DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in ANY}
BLOCK_DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in BLOCKED}


def _named(name: str) -> DType:
    return DTYPES.get(name) or BLOCK_DTYPES[name]


# Dtypes are compared by identity: a graph that another process sends has those of this one.
copyreg.pickle(DType, lambda dtype: (_named, (dtype.name,)))
_BY_NUMPY = {dtype.numpy: dtype for dtype in (*ANY, *BLOCKED)}


def dtype_of(array: Array) -> DType:
    """Returns the dtype of a numpy array. Raises KeyError if Nacre has none for it."""
    return _BY_NUMPY[array.dtype.newbyteorder("=")]
