/* Workers: how they find jobs, help, spin and sleep.
 *
 * A worker spins for some time after its last job, so that the next job starts in a fraction of a microsecond, and then
 * sleeps. Seated callers and workers that are awake do not outnumber the CPUs.
 */
#define _GNU_SOURCE
#include "helpers.h"

#include <sched.h>

#include "affinity.h"
#include "floating.h"
#include "job.h"
#include "ticks.h"
#include "workers.h"

enum { MOVE = 1000 }; /* microseconds after which a worker may move to another CPU again */

/* Returns the seat of the open job with the fewest helpers, or -1. Skips jobs with their maximum number of helpers, and
 * jobs in which this worker has found no chunk left. */
static int find_job(nacre_pool *pool, const uint32_t *ended, uint64_t *state) {
    int found = -1;
    for (uint64_t left = atomic_load(&pool->seats); left; left &= left - 1) {
        const int seat = __builtin_ctzll(left);
        const uint64_t seen = atomic_load(&pool->jobs[seat].state);
        if (!(seen & OPEN) || HELPERS(seen) >= LIMIT(seen) || GENERATION(seen) == ended[seat]) continue;
        if (found >= 0 && HELPERS(seen) >= HELPERS(*state)) continue;
        found = seat, *state = seen;
    }
    return found;
}

/* Returns whether this worker should change to another job: one that has fewer helpers even with this worker. */
static int should_move(nacre_pool *pool, int seat, const uint32_t *ended) {
    if (atomic_load_explicit(&pool->seats, memory_order_relaxed) == UINT64_C(1) << seat) return 0;
    uint64_t other = 0;
    if (find_job(pool, ended, &other) < 0) return 0;
    return HELPERS(other) + 1 < HELPERS(atomic_load(&pool->jobs[seat].state));
}

/* The data that a worker keeps between jobs. */
typedef struct {
    uint32_t ended[NACRE_SEATS]; /* by seat, the generation of the last job in which it found no chunk left */
    uint64_t floating_mode;
    int64_t moved;
} worker;

/* Moves the worker to another CPU if it runs on the CPU of its caller; returns whether it did. On a busy machine, a
 * worker may wake on that CPU and preempt the caller. It moves before it joins: the caller waits for joined workers. */
static int move_away(const nacre_job *job, worker *own) {
    const int cpu = atomic_load_explicit(&job->cpu, memory_order_relaxed);
    if (cpu < 0 || cpu != nacre_current_cpu()) return 0;
    if (nacre_ticks() - own->moved < MOVE * nacre_ticks_per_microsecond()) return 0;
    nacre_leave_cpu(cpu);
    own->moved = nacre_ticks();
    return 1;
}

static void help(nacre_pool *pool, int seat, worker *own) {
    nacre_job *job = &pool->jobs[seat];
    uint32_t *ended = own->ended;
    if (job->floating_mode != own->floating_mode) nacre_set_floating_mode(own->floating_mode = job->floating_mode);
    for (;;) {
        if (nacre_compute_chunk(job, FROM_BACK) == 0) {
            ended[seat] = GENERATION(atomic_load_explicit(&job->state, memory_order_relaxed));
            break;
        }
        if (nacre_library_stops() || atomic_load_explicit(&pool->awake, memory_order_relaxed) > nacre_spare_cpus(pool) ||
            should_move(pool, seat, ended))
            break;
    }
    const uint64_t before = atomic_fetch_sub(&job->state, 1);
    if (HELPERS(before) == 1 && before & WAITING) {
        /* The caller may have returned already. A later caller in this seat then wakes early, and sleeps again. */
        atomic_fetch_add(&job->left, 1);
        nacre_unpark(&pool->parking, &job->left, 1);
    }
}

static int take_grant(nacre_pool *pool) {
    int32_t there = atomic_load(&pool->grants);
    while (there > 0)
        if (atomic_compare_exchange_weak(&pool->grants, &there, there - 1)) return 1;
    return 0;
}

/* Returns 1 when there may be a job, 0 when the library stops. The worker counts as awake only after 1. */
static int sleep_until_called(nacre_pool *pool, const uint32_t *ended) {
    atomic_fetch_sub(&pool->awake, 1);
    /* A call that posted its job before the line above has not woken this worker. */
    uint64_t state;
    if (find_job(pool, ended, &state) >= 0 && atomic_load(&pool->awake) < nacre_spare_cpus(pool)) {
        if (!take_grant(pool)) atomic_fetch_add(&pool->awake, 1);
        return 1;
    }
    for (;;) {
        const uint32_t heard = atomic_load(&pool->bell);
        if (take_grant(pool)) {
            /* A caller wakes at most two workers, and each of them wakes two more: waking many takes long. */
            if (atomic_load(&pool->grants) > 0) nacre_unpark(&pool->parking, &pool->bell, 2);
            return 1;
        }
        if (nacre_library_stops()) return 0;
        nacre_park(&pool->parking, &pool->bell, heard);
    }
}

void *nacre_work(void *argument) {
    nacre_pool *pool = argument;
    worker own = {.floating_mode = nacre_floating_mode()};
    uint64_t state = 0;
    const int64_t patience = SPIN * nacre_ticks_per_microsecond(), step = YIELD * nacre_ticks_per_microsecond();
    int64_t since = nacre_ticks(), offered = since;
    /* A new worker starts the next one, so that a call starts at most one. */
    if (atomic_load(&pool->started) < atomic_load(&pool->wanted)) nacre_start_worker(pool, nacre_work, 1);
    while (!nacre_library_stops()) {
        const int crowded = atomic_load(&pool->awake) > nacre_spare_cpus(pool);
        const int seat = crowded ? -1 : find_job(pool, own.ended, &state);
        if (seat >= 0) {
            nacre_job *job = &pool->jobs[seat];
            if (move_away(job, &own) || !atomic_compare_exchange_strong(&job->state, &state, state + 1)) continue;
            help(pool, seat, &own);
            since = offered = nacre_ticks();
        } else if (crowded || nacre_ticks() - since > patience) {
            if (!sleep_until_called(pool, own.ended)) {
                atomic_fetch_sub(&pool->started, 1);
                return NULL;
            }
            since = offered = nacre_ticks();
        } else if (nacre_ticks() - offered > step) {
            sched_yield();
            offered = nacre_ticks();
        } else {
            nacre_pause();
        }
    }
    atomic_fetch_sub(&pool->started, 1);
    atomic_fetch_sub(&pool->awake, 1);
    return NULL;
}
