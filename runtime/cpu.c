/* Selects the CPU variant of the artifact: the best one that this CPU supports and NACRE_CPU_LEVEL permits. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };
enum { ALWAYS, YMM, ZMM, TILES };
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of arch_prctl, and its argument */

/* Returns the registers that the operating system saves: ALWAYS (SSE), YMM (also AVX), ZMM (also AVX-512), TILES (also
   AMX, for processes that ask for it). */
static int saved_state(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return ALWAYS;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x06) != 0x06) return ALWAYS;
    if ((low & 0xe6) != 0xe6) return YMM;
    return (low & 0x60000) == 0x60000 ? TILES : ZMM;
}

int nacre_cpu_use_tiles(void) {
    return saved_state() == TILES && syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

static int has(int state, unsigned leaf, unsigned subleaf, int where, int bit, int needed) {
    unsigned registers[REGISTERS] = {0, 0, 0, 0};
    if (state < needed) return 0;
    if (subleaf) {
        unsigned most, b, c, d;
        if (!__get_cpuid_count(leaf, 0, &most, &b, &c, &d) || most < subleaf) return 0;
    }
    if (!__get_cpuid_count(leaf, subleaf, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX])) return 0;
    return registers[where] >> bit & 1;
}

uint64_t nacre_cpu_features(void) {
    const int state = saved_state();
    uint64_t features = 0;
#define X(name, leaf, subleaf, where, bit, needed) \
    if (has(state, leaf, subleaf, where, bit, needed)) features |= NACRE_CPU(name);
    NACRE_CPU_FEATURES(X)
#undef X
    return features;
}

uint64_t nacre_cpu_slow_features(void) {
    unsigned most, b, c, d;
    if (!__get_cpuid(0, &most, &b, &c, &d)) return 0;
    return b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx ? NACRE_CPU(avx512bf16) : 0;
}
#else
uint64_t nacre_cpu_features(void) { return 0; }
uint64_t nacre_cpu_slow_features(void) { return 0; }
int nacre_cpu_use_tiles(void) { return 0; }
#endif

int32_t nacre_best_level(const nacre_level *levels, int32_t count, uint64_t features, uint64_t slow) {
    int32_t best = count;
    for (int32_t i = 0; i < count; i++) {
        const uint64_t needed = levels[i].features;
        if (needed & ~features) continue;
        if (best == count) best = i;
        if (needed & slow) continue;
        if ((levels[best].features & ~slow & ~needed) == 0) best = i;
        break;
    }
    return best;
}

static const char *const feature_names[] = {
#define X(name, leaf, subleaf, where, bit, state) #name,
    NACRE_CPU_FEATURES(X)
#undef X
};

static void append(char *text, size_t capacity, const char *part) {
    strncat(text, part, capacity - strlen(text) - 1);
}

/* Removes the features that the level in NACRE_CPU_LEVEL does not have. No feature of this level counts as slow. */
static nacre_status limit(uint64_t *features, uint64_t *slow) {
    const char *wanted = getenv("NACRE_CPU_LEVEL");
    if (wanted == NULL || *wanted == '\0') return NACRE_OK;
    char names[256] = "";
    for (int32_t i = 0; i < nacre_this_artifact.known_count; i++) {
        const nacre_level *known = &nacre_this_artifact.known_levels[i];
        if (strcmp(known->name, wanted) == 0) {
            *features &= known->features;
            *slow = 0;
            return NACRE_OK;
        }
        append(names, sizeof names, i ? ", " : "");
        append(names, sizeof names, known->name);
    }
    return nacre_fail(NACRE_INVALID, "NACRE_CPU_LEVEL is `%s`, which is none of %s", wanted, names);
}

nacre_status nacre_choose_level(int32_t *level) {
    uint64_t features = nacre_cpu_features(), slow = nacre_cpu_slow_features();
    nacre_status status = limit(&features, &slow);
    if (status) return status;
    const nacre_artifact *artifact = &nacre_this_artifact;
    uint64_t used = 0;
    for (int32_t i = 0; i < artifact->level_count; i++) used |= artifact->levels[i].features;
    /* The permission makes the signal frames of the process larger, so that code without tiles does not ask for it. */
    if (used & features & NACRE_CPU_TILES && !nacre_cpu_use_tiles()) features &= ~NACRE_CPU_TILES;
    *level = nacre_best_level(artifact->levels, artifact->level_count, features, slow);
    if (*level < artifact->level_count) return NACRE_OK;
    /* The last level requires the fewest features. */
    const nacre_level *least = &artifact->levels[artifact->level_count - 1];
    char missing[768] = "";
    for (int i = 0; i < NACRE_CPU_FEATURE_COUNT; i++) {
        if (!((least->features & ~features) >> i & 1)) continue;
        append(missing, sizeof missing, *missing ? ", " : "");
        append(missing, sizeof missing, feature_names[i]);
    }
    return nacre_fail(NACRE_WRONG_CPU, "the artifact is for %s%s, and this CPU lacks %s", least->name,
                      artifact->level_count > 1 ? " or more" : "", missing);
}
