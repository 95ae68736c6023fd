/* The CPUs that a thread may run on, and the one that it runs on. */
#ifndef NACRE_AFFINITY_H
#define NACRE_AFFINITY_H

#include <pthread.h>

typedef struct nacre_cpus {
    int count; /* at least 1 */
    int known; /* whether `mask` is filled */
    unsigned long mask[8192 / (8 * sizeof(unsigned long))];
} nacre_cpus;

void nacre_allowed_cpus(nacre_cpus *cpus);

/* Sets the CPUs of a thread; without it, a thread inherits those of its creator. */
void nacre_allow_cpus(pthread_t thread, const nacre_cpus *cpus);

/* Returns the CPU that the calling thread runs on at this moment; -1 if the system does not report it. */
int nacre_current_cpu(void);

/* Moves the calling thread from `cpu` to another CPU that it may run on, if there is one. */
void nacre_leave_cpu(int cpu);

#endif
