/* The CPU features that machine code may depend on. The names are LLVM's, with `_` in place of a dot or a hyphen. */
#ifndef NACRE_CPU_H
#define NACRE_CPU_H

#include <stdint.h>

#include "tables.h"

/* X(name, leaf, subleaf, register, bit, state): where `cpuid` reports it, and which registers the system must save. */
#define NACRE_CPU_FEATURES(X)                    \
    X(sse3, 1, 0, ECX, 0, ALWAYS)                \
    X(pclmul, 1, 0, ECX, 1, ALWAYS)              \
    X(ssse3, 1, 0, ECX, 9, ALWAYS)               \
    X(fma, 1, 0, ECX, 12, YMM)                   \
    X(cx16, 1, 0, ECX, 13, ALWAYS)               \
    X(sse4_1, 1, 0, ECX, 19, ALWAYS)             \
    X(sse4_2, 1, 0, ECX, 20, ALWAYS)             \
    X(movbe, 1, 0, ECX, 22, ALWAYS)              \
    X(popcnt, 1, 0, ECX, 23, ALWAYS)             \
    X(aes, 1, 0, ECX, 25, ALWAYS)                \
    X(avx, 1, 0, ECX, 28, YMM)                   \
    X(f16c, 1, 0, ECX, 29, YMM)                  \
    X(bmi, 7, 0, EBX, 3, ALWAYS)                 \
    X(avx2, 7, 0, EBX, 5, YMM)                   \
    X(bmi2, 7, 0, EBX, 8, ALWAYS)                \
    X(avx512f, 7, 0, EBX, 16, ZMM)               \
    X(avx512dq, 7, 0, EBX, 17, ZMM)              \
    X(adx, 7, 0, EBX, 19, ALWAYS)                \
    X(avx512ifma, 7, 0, EBX, 21, ZMM)            \
    X(avx512cd, 7, 0, EBX, 28, ZMM)              \
    X(sha, 7, 0, EBX, 29, ALWAYS)                \
    X(avx512bw, 7, 0, EBX, 30, ZMM)              \
    X(avx512vl, 7, 0, EBX, 31, ZMM)              \
    X(avx512vbmi, 7, 0, ECX, 1, ZMM)             \
    X(avx512vbmi2, 7, 0, ECX, 6, ZMM)            \
    X(gfni, 7, 0, ECX, 8, ALWAYS)                \
    X(vaes, 7, 0, ECX, 9, YMM)                   \
    X(vpclmulqdq, 7, 0, ECX, 10, YMM)            \
    X(avx512vnni, 7, 0, ECX, 11, ZMM)            \
    X(avx512bitalg, 7, 0, ECX, 12, ZMM)          \
    X(avx512vpopcntdq, 7, 0, ECX, 14, ZMM)       \
    X(avx512vp2intersect, 7, 0, EDX, 8, ZMM)     \
    X(amx_bf16, 7, 0, EDX, 22, TILES)            \
    X(avx512fp16, 7, 0, EDX, 23, ZMM)            \
    X(amx_tile, 7, 0, EDX, 24, TILES)            \
    X(amx_int8, 7, 0, EDX, 25, TILES)            \
    X(avxvnni, 7, 1, EAX, 4, YMM)                \
    X(avx512bf16, 7, 1, EAX, 5, ZMM)             \
    X(avxifma, 7, 1, EAX, 23, YMM)               \
    X(avxvnniint8, 7, 1, EDX, 4, YMM)            \
    X(avxneconvert, 7, 1, EDX, 5, YMM)           \
    X(sahf, 0x80000001, 0, ECX, 0, ALWAYS)       \
    X(lzcnt, 0x80000001, 0, ECX, 5, ALWAYS)      \
    X(sse4a, 0x80000001, 0, ECX, 6, ALWAYS)      \
    X(xop, 0x80000001, 0, ECX, 11, YMM)          \
    X(fma4, 0x80000001, 0, ECX, 16, YMM)         \
    X(tbm, 0x80000001, 0, ECX, 21, ALWAYS)

enum {
#define X(name, leaf, subleaf, where, bit, state) NACRE_CPU_BIT_##name,
    NACRE_CPU_FEATURES(X)
#undef X
    NACRE_CPU_FEATURE_COUNT
};

#define NACRE_CPU(name) (UINT64_C(1) << NACRE_CPU_BIT_##name)

/* The features whose registers Linux saves only for processes that ask for them. */
#define NACRE_CPU_TILES (NACRE_CPU(amx_bf16) | NACRE_CPU(amx_tile) | NACRE_CPU(amx_int8))

/* Returns the features of this CPU, one bit for each; 0 on other architectures than x86. */
uint64_t nacre_cpu_features(void);

/* Asks the system to save the tile registers of this process, which code with `NACRE_CPU_TILES` needs; the permission
   holds for all threads, also those that run already. Returns whether the system does. */
int nacre_cpu_use_tiles(void);

/* Returns the features of this CPU whose instructions are not faster than code without them. On Emerald Rapids,
   `vdpbf16ps` performs half as many multiplications per cycle as f32 instructions: Intel's CPUs have AMX for bf16. */
uint64_t nacre_cpu_slow_features(void);

/* Returns the index of the first level that a CPU with these features supports, or of a later one that omits only slow
   features; `count` if the CPU supports none. */
int32_t nacre_best_level(const nacre_level *levels, int32_t count, uint64_t features, uint64_t slow);

#endif
