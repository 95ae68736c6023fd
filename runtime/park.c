/* Sleeping until a word changes. */
#define _GNU_SOURCE
#include "park.h"

#if NACRE_FUTEX

#include <sys/syscall.h>
#include <unistd.h>

/* The constants of linux/futex.h, which is not always installed. */
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

void nacre_parking_start(nacre_parking *parking) { parking->unused = 0; }

void nacre_park(nacre_parking *parking, _Atomic uint32_t *word, uint32_t value) {
    (void)parking;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, (void *)0, (void *)0, 0);
}

void nacre_unpark(nacre_parking *parking, _Atomic uint32_t *word, int count) {
    (void)parking;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, (void *)0, (void *)0, 0);
}

#else

void nacre_parking_start(nacre_parking *parking) {
    pthread_mutex_init(&parking->lock, 0);
    pthread_cond_init(&parking->changed, 0);
}

void nacre_park(nacre_parking *parking, _Atomic uint32_t *word, uint32_t value) {
    pthread_mutex_lock(&parking->lock);
    if (atomic_load(word) == value) pthread_cond_wait(&parking->changed, &parking->lock);
    pthread_mutex_unlock(&parking->lock);
}

void nacre_unpark(nacre_parking *parking, _Atomic uint32_t *word, int count) {
    (void)word, (void)count;
    pthread_mutex_lock(&parking->lock);
    pthread_cond_broadcast(&parking->changed);
    pthread_mutex_unlock(&parking->lock);
}

#endif
