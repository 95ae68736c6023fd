"""RISC-V of the profile RVA22 with the vector extension: 32 registers of at least 16 bytes; code uses 16 of each."""

from __future__ import annotations

from .family import Family
from .vector_unit import VectorUnit

RVV = VectorUnit(bytes=16, rows=7, vectors=3, window=(7, 2), halves=(6, 3))

RISCV = Family(
    machine="riscv64",
    jump=("tail {}",),
    cpu="generic-rv64",
    features="+m,+a,+f,+d,+c,+v,+zfhmin",
    units=((frozenset(), RVV),),
    used=frozenset({"fma"}),
    base=frozenset({"fma"}),
)
