/* The floating-point mode of a thread: its rounding, and whether it flushes denormals. A worker adopts the mode of the
   caller, so that results have the same bits on any thread. */
#ifndef NACRE_FLOATING_H
#define NACRE_FLOATING_H

#include <stdint.h>

#if defined(__x86_64__)

#define NACRE_STICKY 0x3fu /* exception flags, which are not part of the mode */
static inline uint64_t nacre_floating_mode(void) { return __builtin_ia32_stmxcsr() & ~NACRE_STICKY; }
static inline void nacre_set_floating_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((unsigned)mode); }

#elif defined(__aarch64__)

static inline uint64_t nacre_floating_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void nacre_set_floating_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }

#else

static inline uint64_t nacre_floating_mode(void) { return 0; }
static inline void nacre_set_floating_mode(uint64_t mode) { (void)mode; }

#endif

#endif
