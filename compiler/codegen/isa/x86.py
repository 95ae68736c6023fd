"""SSE, AVX2, AVX-512, VNNI and BF16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .instruction import ZERO, Instruction, dot_bytes, multiply_bytes, multiply_pairs, nearest, shuffle_bytes

_AVX512 = frozenset({"sse2", "avx512f"})
_ALL_LANES = "-1 : i16"
_CURRENT_ROUNDING = "4 : i32"


def _look_up(table: npt.NDArray[np.float32], index: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Returns the entries of a table of 16 numbers at the lowest four bits of each index."""
    entries: npt.NDArray[np.float32] = table[index & 15]
    return entries


def _look_up_halves(table: npt.NDArray[np.int16], index: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Returns the entries of a table of 32 numbers of 16 bits at the lowest five bits of each index."""
    entries: npt.NDArray[np.int16] = table[index & 31]
    return entries


def _look_up_bytes(table: npt.NDArray[np.int8], index: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Returns the entries of a table of 64 bytes at the lowest six bits of each index."""
    entries: npt.NDArray[np.int8] = table[index & 63]
    return entries


def _dot_bfloats(total: npt.NDArray[np.float32], a: Any, b: Any) -> npt.NDArray[np.float32]:
    """Returns the sums of two neighbouring products of bf16 values, added to `total`; denormal numbers count as
    zero."""
    products = np.asarray(a, np.float32) * np.asarray(b, np.float32)
    sums: npt.NDArray[np.float32] = products[0::2] + products[1::2]
    return total + sums


def _scale(x: npt.NDArray[np.float32], n: npt.NDArray[np.float32], zero: Any) -> npt.NDArray[np.float32]:
    """Returns x * 2**n, rounded once, for integers n; the third operand has the results of lanes that are masked."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(x.astype(np.float64), np.floor(n).astype(np.int32)).astype(np.float32)


def _scale_doubles(x: npt.NDArray[np.float64], n: npt.NDArray[np.float64], zero: Any) -> npt.NDArray[np.float64]:
    """Returns the same of f64."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(x, np.floor(n).astype(np.int32))


def _nearest(lanes: int, name: str, *trailing: str, needs: frozenset[str]) -> Instruction:
    return Instruction("nearest", lanes, needs, f"llvm.x86.{name}", ("f32",), "i32", nearest, trailing)


def _pairs(lanes: int, name: str, *needs: str) -> Instruction:
    features = frozenset({"sse2", *needs})
    return Instruction("multiply-pairs", lanes, features, f"llvm.x86.{name}", ("i16", "i16"), "i32", multiply_pairs)


def _bytes(lanes: int, name: str, feature: str) -> Instruction:
    features = frozenset({"sse2", feature})
    return Instruction("multiply-bytes", lanes, features, f"llvm.x86.{name}", ("i8", "i8"), "i16", multiply_bytes)


def _shuffle(lanes: int, name: str, feature: str) -> Instruction:
    features = frozenset({"sse2", feature})
    return Instruction("shuffle-bytes", lanes, features, f"llvm.x86.{name}", ("i8", "i8"), "i8", shuffle_bytes)


def _dot_bytes(lanes: int, feature: str) -> Instruction:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return Instruction("dot-bytes", lanes, frozenset({"sse2", feature}), name, ("i32", "i8", "i8"), "i32", dot_bytes)


def _dot_of_bfloats(lanes: int) -> Instruction:
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    features = frozenset({"sse2", "avx512bf16"})
    return Instruction("dot-bfloats", lanes, features, name, ("f32", "bf16", "bf16"), "f32", _dot_bfloats)


ROUNDING_BFLOATS = frozenset({"avx512bf16"})
"""The features with an instruction that rounds f32 to bf16, and flushes denormal numbers to zero."""

COMPRESSING = frozenset({"avx512f"})
"""The features with an instruction that stores the lanes of a mask side by side."""

CONVERTING_HALVES = frozenset({"f16c"})
"""The features with a conversion of f16 to f32, which has an operand in memory for vectors only."""

COMPUTING_HALVES = frozenset({"avx512fp16"})
"""The features with arithmetic on vectors of f16."""

X86: tuple[Instruction, ...] = (
    # NaN becomes -2**31, which has a lower half of 0. The operand of rounding selects the current mode.
    _nearest(4, "sse2.cvtps2dq", needs=frozenset({"sse2"})),
    _nearest(8, "avx.cvt.ps2dq.256", needs=frozenset({"sse2"})),
    _nearest(16, "avx512.mask.cvtps2dq.512", ZERO, _ALL_LANES, _CURRENT_ROUNDING, needs=frozenset({"sse2"})),
    # No sum of two products of bytes exceeds 32 bits.
    _pairs(4, "sse2.pmadd.wd"),
    _pairs(8, "avx2.pmadd.wd"),
    _pairs(16, "avx512.pmaddw.d.512", "avx512bw"),
    # It adds in 16 bits and saturates, so that it serves small bytes alone: see `tiler/byte_pairs.py`.
    _bytes(4, "ssse3.pmadd.ub.sw.128", "ssse3"),
    _bytes(8, "avx2.pmadd.ub.sw", "avx2"),
    *(_dot_bytes(lanes, "avx512vnni") for lanes in (4, 8, 16)),
    *(_dot_bytes(lanes, "avxvnni") for lanes in (4, 8)),
    *(_dot_of_bfloats(lanes) for lanes in (4, 8, 16)),
    # The trailing operands are a mask of the lanes and the rounding.
    Instruction(
        "scale-by-power",
        16,
        frozenset({"avx512f"}),
        "llvm.x86.avx512.mask.scalef.ps.512",
        ("f32", "f32", "f32"),
        "f32",
        _scale,
        (_ALL_LANES, _CURRENT_ROUNDING),
    ),
    Instruction(
        "scale-doubles-by-power",
        16,
        frozenset({"avx512f"}),
        "llvm.x86.avx512.mask.scalef.pd.512",
        ("f64", "f64", "f64"),
        "f64",
        _scale_doubles,
        ("-1 : i8", _CURRENT_ROUNDING),
    ),
    Instruction("look-up", 16, _AVX512, "llvm.x86.avx512.permvar.sf.512", ("f32", "i32"), "f32", _look_up),
    _shuffle(4, "ssse3.pshuf.b.128", "ssse3"),
    _shuffle(8, "avx2.pshuf.b", "avx2"),
    _shuffle(16, "avx512.pshuf.b.512", "avx512bw"),
    Instruction(
        "look-up-halves",
        16,
        _AVX512 | {"avx512bw"},
        "llvm.x86.avx512.permvar.hi.512",
        ("i16", "i16"),
        "i16",
        _look_up_halves,
    ),
    Instruction(
        "look-up-bytes",
        16,
        _AVX512 | {"avx512vbmi"},
        "llvm.x86.avx512.permvar.qi.512",
        ("i8", "i8"),
        "i8",
        _look_up_bytes,
    ),
)
