"""Instructions that MLIR's vector dialect has no operation for: one file for each instruction set.

Code generators look up an operation by name, and emit portable code if there is no instruction for it:

    find("dot-bytes", lanes=16, features={"avx512vnni", ...})  ->  vpdpbusd
    find("dot-bytes", lanes=4, features={"fma", "neon"})       ->  None
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from .instruction import Instruction
from .neon import NEON
from .x86 import COMPRESSING, COMPUTING_HALVES, CONVERTING_HALVES, ROUNDING_BFLOATS, X86

FUSED = frozenset({"fma"})
"""The features of a target that computes x * y + z in one instruction."""
_FEATURES: Mapping[str, frozenset[str]] = {
    "multiply-add": FUSED,
    "round-to-bfloat": ROUNDING_BFLOATS,
    "compress": COMPRESSING,
    "compute-in-f16": COMPUTING_HALVES,
    "convert-halves": CONVERTING_HALVES,
}
"""The features with an instruction for an operation that MLIR has too."""

INSTRUCTIONS: tuple[Instruction, ...] = (*X86, *NEON)
SHUFFLE = "shuffle-bytes"
LANES_OF_TABLE = 8
"""The lanes of a vector that holds a table of 16 halves."""


def find(operation: str, lanes: int, features: AbstractSet[str]) -> Instruction | None:
    """Returns the instruction that performs an operation on vectors of `lanes` 32-bit lanes, if the CPU has one."""
    return next(
        (i for i in INSTRUCTIONS if i.operation == operation and i.lanes == lanes and i.needs <= features),
        None,
    )


def find_exponents(lanes: int, features: AbstractSet[str]) -> Instruction | None:
    """Returns the instruction that looks up two exponents of bf16 for each lane: halves of a word, or bytes where the
    table of 16 halves has the size of a vector."""
    halves = find("look-up-halves", lanes, features)
    return find(SHUFFLE, lanes, features) if halves is None and lanes == LANES_OF_TABLE else halves


def supports(operation: str, features: AbstractSet[str]) -> bool:
    """Returns whether the CPU has an instruction for an operation of MLIR, which is expanded otherwise."""
    return _FEATURES[operation] <= features


__all__ = ["FUSED", "INSTRUCTIONS", "Instruction", "find", "supports"]
