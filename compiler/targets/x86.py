"""x86-64: SSE, AVX2 and AVX-512."""

from __future__ import annotations

from .family import Family
from .vector_unit import Caches, Prefetches, VectorUnit

AVX512 = VectorUnit(
    bytes=64,
    rows=8,
    vectors=3,
    window=(7, 2),
    halves=(7, 3),
    tall=14,
    registers=32,
    lanes_by_memory=True,
    # On Intel CPUs, a comparison that writes a mask has one port, which it shares with shuffles and broadcasts.
    masks="avx512bw",
    in_step=4,
    sum_steps=4,
)
AVX2 = VectorUnit(
    bytes=32,
    rows=4,
    vectors=3,
    window=(2, 4),
    halves=(4, 2),
    # 12 sums, as in tiles of 4 by 3. Of 64 vectors of columns, 21 panels of 3 would leave one, and 4 sums.
    tall=6,
    narrow_panels=64,
    lanes_by_memory=True,
    # With 16 registers, the constants of a function would leave too few of them for four vectors.
    in_step=2,
    # A function takes about as many instructions for 8 lanes as for 16, and only 64 instructions wait at a time.
    every_chain=True,
    # exp has 20 operations, each with the latency of 3 or 4 cycles. Zen 3 holds the waiting ones of 3 vectors.
    rows_in_step=True,
    fetches_panels=True,
    level_tiles=True,
    split_words=(4, 2),
    packed_stretches=True,
    pairs_of_words=True,
    # CPUs without AVX-512 have 256 KiB (Haswell to Comet Lake), 512 KiB (Zen to Zen 3) or more (since Alder Lake).
    caches=Caches(own=512 << 10),
)
SSE = VectorUnit(bytes=16, rows=4, vectors=2, window=(2, 4), halves=(2, 2), split_words=(4, 2))
"""Without `fma`, a product takes a register before it is added."""

# https://docs.kernel.org/admin-guide/hw-vuln/gather_data_sampling.html
_WITH_GATHER_SAMPLING = (
    *("skylake", "skylake-avx512", "cascadelake", "cooperlake", "cannonlake"),
    *("icelake-client", "icelake-server", "tigerlake", "rocketlake"),
)
"""LLVM's names of the CPUs that gather data sampling concerns."""

X86 = Family(
    machine="x86_64",
    jump=("jmp {}",),
    cpu="x86-64",
    features="",
    units=(
        (frozenset({"avx512f", "fma"}), AVX512),
        (frozenset({"avx2", "fma"}), AVX2),
        (frozenset(), SSE),
    ),
    used=frozenset(
        {
            "sse2",
            "ssse3",
            "f16c",
            "fma",
            "avx2",
            "avx512f",
            "avx512bw",
            "avx512vnni",
            "avx512bf16",
            "avx512fp16",
            "avx512vbmi",
        }
        | {"avxvnni", "amx-tile", "amx-int8", "amx-bf16"}
    ),
    base=frozenset({"sse2"}),
    inexact=frozenset({"avx512bf16", "amx-bf16"}),
    bfloat_products=("avx512bf16", "amx-bf16"),
    bfloat_blocks=("amx-bf16",),
    # `cpu.h` of the runtime gives the measurements.
    slow=dict.fromkeys(
        ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), frozenset({"avx512bf16"})
    ),
    # The hardware follows a stream of lines once it has begun, but begins again with each page: a prefetch brings the
    # address of the next page and its first lines. With a prefetch of each line into the second cache, a core reads
    # 20 GB/s instead of 27 from pages of 4 KiB, and 22 instead of 28 from larger ones.
    prefetches={"znver4": Prefetches(((16384, 1),), spacing=2048)},
    # On Cascade Lake, microcode against gather data sampling makes a gather of 4 or 8 numbers take 33 cycles; 8 loads
    # with their inserts take 10. Code for x86-64-v4 may run on such a CPU.
    slow_gathers=frozenset({"x86-64-v4", *_WITH_GATHER_SAMPLING}),
    no_gathers="prefer-no-gather",
    # TLS descriptors do not use __tls_get_addr, which would add the dynamic loader to the needed libraries.
    driver_flags=("-mtls-dialect=gnu2",),
)
