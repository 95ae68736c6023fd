"""x86-64: SSE, AVX2 and AVX-512."""

from __future__ import annotations

from .family import Family
from .vector_unit import VectorUnit

AVX512 = VectorUnit(bytes=64, rows=8, vectors=3, window=(7, 2), halves=(7, 3), tall=14)
AVX2 = VectorUnit(bytes=32, rows=4, vectors=3, window=(2, 4), halves=(4, 2))
SSE = VectorUnit(bytes=16, rows=4, vectors=2, window=(2, 4), halves=(2, 2))
"""Without `fma`, a product takes a register before it is added."""

X86 = Family(
    machine="x86_64",
    cpu="x86-64",
    features="",
    units=(
        (frozenset({"avx512f", "fma"}), AVX512),
        (frozenset({"avx2", "fma"}), AVX2),
        (frozenset(), SSE),
    ),
    used=frozenset({"sse2", "fma", "avx512f", "avx512bw", "avx512vnni", "avx512bf16", "avxvnni"}),
    base=frozenset({"sse2"}),
    inexact=frozenset({"avx512bf16"}),
    bfloat_products="avx512bf16",
    # `cpu.h` of the runtime gives the measurements.
    slow=dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), frozenset({"avx512bf16"})
    ),
    # TLS descriptors do not use __tls_get_addr, which would add the dynamic loader to the needed libraries.
    driver_flags=("-mtls-dialect=gnu2",),
)
