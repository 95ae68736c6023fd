"""The vector units that code is written for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Machine:
    """`bytes` of a vector; the accumulators of a tile are at most `rows` by `vectors`, which with what is loaded beside
    them fill the registers; those of `window`, where nothing is shared between rows but what overlaps: there memory is
    what takes time, and neighbours in it should be read together; and those of `halves`, where words of several numbers
    are taken apart, which needs registers too. `features` are those of USED that there are."""

    bytes: int
    rows: int
    vectors: int
    window: tuple[int, int]
    halves: tuple[int, int]
    features: frozenset[str] = frozenset()

    def lanes(self, width: int) -> int:
        """Elements of `width` bits in a vector."""
        return max(self.bytes * 8 // width, FEWEST_LANES)


USED = frozenset({"fma", "avx512f", "avx512bw", "avx512vnni", "avx512bf16", "avxvnni"})
"""The features, as LLVM names them, that decide what is written."""
FEWEST_LANES = 4
"""Wider elements take several registers for a vector rather than fewer lanes."""
SLOW: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), frozenset({"avx512bf16"})
)
"""What CPUs have, by LLVM's names, and do no faster than code without it does: `cpu.h` of the runtime says why."""
INEXACT = frozenset({"avx512bf16"})
"""Those of them whose instructions take denormal numbers for zero."""
AVX512 = Machine(bytes=64, rows=8, vectors=3, window=(7, 2), halves=(7, 3))
AVX2 = Machine(bytes=32, rows=4, vectors=3, window=(2, 4), halves=(4, 2))
SSE = Machine(bytes=16, rows=4, vectors=2, window=(2, 4), halves=(2, 2))
"""Without `fma` a product takes a register before it is added."""
_UNITS: Sequence[tuple[frozenset[str], Machine]] = (
    (frozenset({"avx512f", "fma"}), AVX512),
    (frozenset({"avx2", "fma"}), AVX2),
    (frozenset(), SSE),
)
"""What each unit needs, the widest first."""


def choose_machine(features: Collection[str]) -> Machine:
    """The unit of an x86 CPU with these features of LLVM's."""
    machine = next(machine for needed, machine in _UNITS if needed.issubset(features))
    return replace(machine, features=USED & frozenset(features))
