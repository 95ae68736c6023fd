/* Sleeping until a word changes. A futex where there are such; elsewhere one lock and condition of the pool. */
#ifndef NACRE_PARK_H
#define NACRE_PARK_H

#include <stdatomic.h>
#include <stdint.h>

#if defined(__linux__) && !defined(NACRE_NO_FUTEX)
#define NACRE_FUTEX 1
#else
#define NACRE_FUTEX 0
#include <pthread.h>
#endif

typedef struct nacre_parking {
#if NACRE_FUTEX
    uint32_t unused;
#else
    pthread_mutex_t lock;
    pthread_cond_t changed;
#endif
} nacre_parking;

/* Before the first use, and in the child of a fork. */
void nacre_parking_start(nacre_parking *parking);

/* Returns when the word is no longer `value`, or now and then for no reason. */
void nacre_park(nacre_parking *parking, _Atomic uint32_t *word, uint32_t value);

/* Wakes at least `count` that sleep on a word, which was changed before. */
void nacre_unpark(nacre_parking *parking, _Atomic uint32_t *word, int count);

#endif
