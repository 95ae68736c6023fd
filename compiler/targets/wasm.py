"""WebAssembly with 128-bit vectors: 32-bit addresses, and no fused multiply-add outside the relaxed instructions."""

from __future__ import annotations

from .family import Family
from .system import WASI
from .vector_unit import VectorUnit

SIMD128 = VectorUnit(bytes=16, rows=4, vectors=2, window=(3, 2), halves=(3, 2))
"""Engines map vectors to the 16 registers of x86-64 or the 32 of AArch64; the tiles fit the smaller file."""

WASM = Family(
    machine="wasm32",
    jump=("local.get 0", "call {}"),
    cpu="generic",
    features="+simd128,+bulk-memory,+mutable-globals,+nontrapping-fptoint,+sign-ext",
    units=((frozenset(), SIMD128),),
    used=frozenset(),
    system=WASI,
)
