/* The workers that this library has started, and their end.
 *
 * Workers run code of the library, so they end before it is unloaded: with its last session, or in its destructor. The
 * child of a fork has no workers, and starts its own.
 */
#define _GNU_SOURCE
#include "workers.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "affinity.h"
#include "internal.h"
#include "share.h"

#define STACK_BYTES ((size_t)1 << 20) /* stack of a worker; kernels use at most 384 KiB */

static atomic_int process_number = 1;

static struct {
    pthread_mutex_t lock;
    int64_t sessions;
    int forks_watched, unloaded;
    nacre_cpus cpus; /* CPUs of workers: those of the creator of a session, not of the thread that starts the worker */
    _Atomic(nacre_pool *) pool;
    atomic_int stopping;
    int workers;
    pthread_t threads[NACRE_MOST_THREADS];
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

int nacre_process_number(void) { return atomic_load_explicit(&process_number, memory_order_relaxed); }

int nacre_library_stops(void) { return atomic_load_explicit(&library.stopping, memory_order_acquire); }

/* Runs in the child of a fork, which has one thread: locks that other threads held are initialised again. */
static void begin_again(void) {
    pthread_mutex_init(&library.lock, NULL);
    atomic_fetch_add(&process_number, 1);
    atomic_store(&library.stopping, 0);
    library.workers = 0;
    nacre_pool *pool = atomic_load(&library.pool);
    /* Another library of the process may have restarted the pool already. */
    if (pool && pool->process != getpid()) nacre_pool_start(pool);
}

nacre_status nacre_library_open(int32_t *cpus) {
    nacre_cpus allowed;
    nacre_allowed_cpus(&allowed);
    *cpus = allowed.count;
    pthread_mutex_lock(&library.lock);
    nacre_status status = NACRE_OK;
    if (!library.forks_watched && pthread_atfork(NULL, NULL, begin_again))
        status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
    if (status == NACRE_OK) {
        library.forks_watched = 1;
        library.sessions++;
        if (allowed.count > library.cpus.count) library.cpus = allowed;
        nacre_pool *pool = atomic_load(&library.pool);
        if (pool && atomic_load(&pool->cpus) < allowed.count) atomic_store(&pool->cpus, allowed.count);
    }
    pthread_mutex_unlock(&library.lock);
    return status;
}

nacre_pool *nacre_known_pool(void) { return atomic_load_explicit(&library.pool, memory_order_acquire); }

nacre_pool *nacre_process_pool(void) {
    nacre_pool *pool = nacre_known_pool();
    if (pool) return pool;
    pthread_mutex_lock(&library.lock);
    pool = atomic_load(&library.pool);
    if (pool == NULL && !library.unloaded && (pool = nacre_pool_attach()) != NULL) {
        if (atomic_load(&pool->cpus) < library.cpus.count) atomic_store(&pool->cpus, library.cpus.count);
        atomic_store(&library.pool, pool);
    }
    pthread_mutex_unlock(&library.lock);
    return pool;
}

static int create(nacre_pool *pool, nacre_worker_body *body, pthread_t *thread) {
    sigset_t all, before;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    /* Workers inherit a mask without signals: the program's own threads handle them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int refused = pthread_create(thread, &attributes, body, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (refused) return 0;
    nacre_allow_cpus(*thread, &library.cpus);
#ifdef __linux__
    pthread_setname_np(*thread, "nacre");
#endif
    return 1;
}

void nacre_start_worker(nacre_pool *pool, nacre_worker_body *body, int insist) {
    while (pthread_mutex_trylock(&library.lock)) {
        /* The thread that stops the workers holds the lock until they have ended: a worker must not wait for it. */
        if (!insist || nacre_library_stops()) return;
        sched_yield();
    }
    if (!library.unloaded && library.sessions > 0 && library.workers < NACRE_MOST_THREADS - 1) {
        int32_t started = atomic_load(&pool->started);
        int room;
        do room = started < atomic_load(&pool->wanted) && started < atomic_load(&pool->cpus) - 1;
        while (room && !atomic_compare_exchange_weak(&pool->started, &started, started + 1));
        if (room) {
            atomic_fetch_add(&pool->awake, 1);
            if (create(pool, body, &library.threads[library.workers])) {
                library.workers++;
            } else {
                atomic_fetch_sub(&pool->awake, 1);
                atomic_fetch_sub(&pool->started, 1);
                /* The system would refuse again, so the pool keeps its current number of workers. */
                atomic_store(&pool->cpus, started + 1);
            }
        }
    }
    pthread_mutex_unlock(&library.lock);
}

/* Ends all workers of this library. The caller holds the lock. */
static void stop_workers(void) {
    nacre_pool *pool = atomic_load(&library.pool);
    if (pool == NULL) return;
    atomic_store(&library.stopping, 1);
    atomic_fetch_add(&pool->bell, 1);
    nacre_unpark(&pool->parking, &pool->bell, INT_MAX);
    while (library.workers > 0) pthread_join(library.threads[--library.workers], NULL);
    atomic_store(&library.stopping, 0);
}

void nacre_library_close(void) {
    pthread_mutex_lock(&library.lock);
    if (--library.sessions == 0) {
        stop_workers();
        nacre_pool *pool = atomic_exchange(&library.pool, NULL);
        if (pool) nacre_pool_detach(pool);
        library.cpus.count = 0;
    }
    pthread_mutex_unlock(&library.lock);
}

/* At the end of the process, remaining sessions may be in the middle of a call, so the pool stays. */
__attribute__((destructor)) static void unload(void) {
    pthread_mutex_lock(&library.lock);
    library.unloaded = 1;
    stop_workers();
    pthread_mutex_unlock(&library.lock);
}
