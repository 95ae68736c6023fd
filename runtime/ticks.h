/* A cheap clock for deciding how long to spin and whether work is worth sharing. It need not be exact. */
#ifndef NACRE_TICKS_H
#define NACRE_TICKS_H

#include <stdint.h>

#if defined(__x86_64__)

static inline int64_t nacre_ticks(void) { return (int64_t)__builtin_ia32_rdtsc(); }
/* Time stamps count at 2 to 5 GHz on every CPU of the last decade. */
static inline int64_t nacre_ticks_per_microsecond(void) { return 3000; }
static inline void nacre_pause(void) { __builtin_ia32_pause(); }

#elif defined(__aarch64__)

static inline int64_t nacre_ticks(void) {
    int64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
static inline int64_t nacre_ticks_per_microsecond(void) {
    int64_t frequency;
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
    return frequency < 1000000 ? 1 : frequency / 1000000;
}
static inline void nacre_pause(void) { __asm__ volatile("yield"); }

#else

#include <time.h>

static inline int64_t nacre_ticks(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
static inline int64_t nacre_ticks_per_microsecond(void) { return 1000; }
static inline void nacre_pause(void) {}

#endif

#endif
