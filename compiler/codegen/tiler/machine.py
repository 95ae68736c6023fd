"""The vector units that code is written for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
        return self.bytes * 8 // width


USED = frozenset({"avx512f", "avx512vnni", "avx512bf16", "avxvnni"})
"""The features, as LLVM names them, that decide what is written."""
SLOW: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), frozenset({"avx512bf16"})
)
"""What CPUs have, by LLVM's names, and do no faster than code without it does: `cpu.h` of the runtime says why."""
INEXACT = frozenset({"avx512bf16"})
"""Those of them whose instructions take denormal numbers for zero."""
AVX512 = Machine(bytes=64, rows=8, vectors=3, window=(7, 2), halves=(7, 3))
AVX2 = Machine(bytes=32, rows=4, vectors=3, window=(2, 4), halves=(4, 2))


def choose_machine(features: Collection[str]) -> Machine | None:
    """The unit of a CPU with these features of LLVM's; None where products and sums are not fused into one."""
    if "fma" not in features:
        return None
    machine = AVX512 if "avx512f" in features else AVX2
    return replace(machine, features=USED & frozenset(features))
