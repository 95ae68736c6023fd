/* The CPUs that a thread may run on, and the one that it runs on. */
#define _GNU_SOURCE
#include "affinity.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

void nacre_allowed_cpus(nacre_cpus *cpus) {
    memset(cpus, 0, sizeof *cpus);
#ifdef __linux__
    if (sched_getaffinity(0, sizeof cpus->mask, (cpu_set_t *)(void *)cpus->mask) == 0) {
        cpus->known = 1;
        for (size_t i = 0; i < sizeof cpus->mask / sizeof *cpus->mask; i++)
            for (unsigned long left = cpus->mask[i]; left; left &= left - 1) cpus->count++;
    }
#endif
    if (cpus->count == 0) cpus->count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus->count < 1) cpus->count = 1;
}

void nacre_allow_cpus(pthread_t thread, const nacre_cpus *cpus) {
#ifdef __linux__
    if (cpus->known) pthread_setaffinity_np(thread, sizeof cpus->mask, (const cpu_set_t *)(const void *)cpus->mask);
#else
    (void)thread, (void)cpus;
#endif
}

int nacre_current_cpu(void) {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

void nacre_leave_cpu(int cpu) {
#ifdef __linux__
    enum { BITS = 8 * sizeof(unsigned long) };
    nacre_cpus allowed;
    nacre_allowed_cpus(&allowed);
    if (!allowed.known || allowed.count < 2 || cpu < 0 || (size_t)cpu / 8 >= sizeof allowed.mask) return;
    nacre_cpus others = allowed;
    others.mask[cpu / BITS] &= ~(1ul << cpu % BITS);
    nacre_allow_cpus(pthread_self(), &others);
    nacre_allow_cpus(pthread_self(), &allowed);
#else
    (void)cpu;
#endif
}
