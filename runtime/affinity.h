/* The CPUs that a thread may run on, and the one that it runs on. */
#ifndef NACRE_AFFINITY_H
#define NACRE_AFFINITY_H

#include <pthread.h>

typedef struct nacre_cpus {
    int count; /* at least 1 */
    int known; /* is `mask` filled? */
    unsigned long mask[8192 / (8 * sizeof(unsigned long))];
} nacre_cpus;

void nacre_allowed_cpus(nacre_cpus *cpus);

/* Lets a thread run on these CPUs, whatever its creator is confined to. */
void nacre_allow_cpus(pthread_t thread, const nacre_cpus *cpus);

/* Returns the CPU that the calling thread runs on at this moment; -1 if the system does not report it. */
int nacre_current_cpu(void);

/* Has the calling thread go on with another CPU of those that it may run on, if there is one. */
void nacre_leave_cpu(int cpu);

#endif
