"""AArch64 with NEON: 32 registers of 16 bytes, fused multiply-add on every CPU."""

from __future__ import annotations

from .family import Family
from .vector_unit import VectorUnit

NEON = VectorUnit(bytes=16, rows=8, vectors=3, window=(7, 2), halves=(7, 3))
"""24 accumulators, 3 vectors of the second operand, and registers for the broadcast elements of the first."""

ARM = Family(
    machine="aarch64",
    jump=("b {}",),
    cpu="generic",
    features="",
    units=((frozenset(), NEON),),
    used=frozenset({"neon", "fma"}),
    base=frozenset({"neon", "fma"}),
)
