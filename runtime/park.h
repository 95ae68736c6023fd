/* Sleeping until a word changes: by a futex on Linux, elsewhere by one lock and one condition variable of the pool. */
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

/* Initialises the lock. Call it before the first use, and in the child of a fork. */
void nacre_parking_start(nacre_parking *parking);

/* Sleeps until the word differs from `value`. Wake-ups may be spurious. */
void nacre_park(nacre_parking *parking, _Atomic uint32_t *word, uint32_t value);

/* Wakes at least `count` of the threads that sleep on a word. Change the word first. */
void nacre_unpark(nacre_parking *parking, _Atomic uint32_t *word, int count);

#endif
