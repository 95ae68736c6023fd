/* Computes the work items of a kernel on several threads. This file is the caller's side, helpers.c the workers' side.
 *
 * A call takes a seat when its first kernel is worth sharing, and keeps it to its end. For each such kernel it posts a
 * job there and computes work items itself until none is left; workers that are awake and find the job join it. A call
 * waits only for workers that have joined. If none is free, it computes all items itself.
 *
 *   caller    writes the job, sets OPEN | takes chunks from the front | none left: clears OPEN, waits for 0 helpers
 *   worker           finds the job, state + 1 | takes chunks from the back | none left: state - 1, wakes the caller
 */
#define _GNU_SOURCE
#include "pool.h"

#include <sched.h>

#include "affinity.h"
#include "floating.h"
#include "helpers.h"
#include "job.h"
#include "ticks.h"
#include "workers.h"

enum {
    SHARE = 1,          /* least work for each helper that is awake, in microseconds */
    WAKE = 10,          /* least work of a call that justifies waking helpers, in microseconds */
    CHUNKS = 16,        /* chunks for each thread: one that is late or interrupted then delays the others little */
    CHUNK = 1,          /* least work in a chunk, in microseconds: taking one is an atomic operation on shared memory */
    PACE_FRACTION = 256 /* the pace of a kernel is the ticks of one work item, times this factor */
};

static int32_t smaller(int64_t a, int64_t b) { return (int32_t)(a < b ? a : b); }

nacre_crew nacre_crew_of(uint32_t threads) {
    return (nacre_crew){
        .base.parallel = nacre_parallel, .pool = nacre_known_pool(), .seat = -1, .helpers = (int32_t)threads - 1};
}

static int take_seat(nacre_crew *crew) {
    nacre_pool *pool = crew->pool;
    uint64_t taken = atomic_load(&pool->seats);
    int seat;
    do {
        if (~taken == 0) return 0;
        seat = __builtin_ctzll(~taken);
    } while (!atomic_compare_exchange_weak(&pool->seats, &taken, taken | UINT64_C(1) << seat));
    atomic_fetch_add(&pool->crowd, CALLER + (uint64_t)crew->helpers);
    crew->seat = seat;
    crew->job = &pool->jobs[seat];
    return 1;
}

void nacre_crew_leave(nacre_crew *crew) {
    if (crew->seat < 0) return;
    atomic_fetch_sub(&crew->pool->crowd, CALLER + (uint64_t)crew->helpers);
    atomic_fetch_and(&crew->pool->seats, ~(UINT64_C(1) << crew->seat));
    crew->seat = -1;
}

/* Stores the time of a work item in `pace`, which decides how the kernel's next run is distributed. Returns it. */
static int64_t keep_pace(int64_t *pace, int64_t ticks, int64_t items) {
    int64_t each = ticks > 0 ? ticks * PACE_FRACTION / items + 1 : 1;
    const int64_t known = __atomic_load_n(pace, __ATOMIC_RELAXED);
    /* Limits the effect of a run that was interrupted. */
    if (known > 0 && each / 4 > known) each = 4 * known;
    /* Only significant changes are written: calls in other threads read the variable often. */
    if (each < known - known / 4 || each > known + known / 4) __atomic_store_n(pace, each, __ATOMIC_RELAXED);
    return each;
}

static int64_t compute_alone(nacre_task task, const void *context, int64_t begin, int64_t end, int64_t *pace) {
    const int64_t start = nacre_ticks();
    task(context, begin, end);
    return keep_pace(pace, nacre_ticks() - start, end - begin);
}

/* Returns the profitable number of helpers for `items` work items that take `work` ticks together. */
static int32_t helpers_for(nacre_crew *crew, int64_t items, int64_t work) {
    const int64_t microsecond = nacre_ticks_per_microsecond();
    const int32_t most = smaller(crew->helpers, smaller(items - 1, work / (SHARE * microsecond)));
    if (most <= 0) return 0;
    if (crew->pool == NULL || atomic_load_explicit(&crew->pool->awake, memory_order_relaxed) <= 0) {
        crew->postponed += work < WAKE * microsecond ? work : WAKE * microsecond;
        if (crew->postponed < WAKE * microsecond) return 0;
        crew->postponed = 0;
    }
    if (crew->seat < 0) {
        if (crew->pool == NULL) crew->pool = nacre_process_pool();
        if (crew->pool == NULL || !take_seat(crew)) {
            crew->helpers = 0;
            return 0;
        }
    }
    return smaller(most, nacre_spare_cpus(crew->pool));
}

/* Wakes workers, or starts one, until enough are awake. */
static void call_workers(nacre_pool *pool, int32_t helpers) {
    const uint64_t crowd = atomic_load(&pool->crowd);
    const int32_t together = crowd >> 32 == 1 ? helpers : (int32_t)(uint32_t)crowd;
    const int32_t target = smaller(together, nacre_spare_cpus(pool));
    int32_t awake = atomic_load(&pool->awake), woken;
    const int32_t started = atomic_load(&pool->started);
    do {
        /* A grant of a worker that has stopped counts as awake until another worker takes it. */
        if (smaller(awake, started) >= target) return;
        const int32_t sleeping = started - awake;
        woken = smaller(smaller(target - awake, helpers), sleeping);
        if (woken <= 0) break;
    } while (!atomic_compare_exchange_weak(&pool->awake, &awake, awake + woken));
    if (woken > 0) {
        atomic_fetch_add(&pool->grants, woken);
        atomic_fetch_add(&pool->bell, 1);
        nacre_unpark(&pool->parking, &pool->bell, smaller(woken, 2));
    }
    if (started < target) {
        atomic_store(&pool->wanted, target);
        nacre_start_worker(pool, nacre_work, 0);
    }
}

/* Closes the job, and waits until the helpers have finished their current chunks and left. */
static void wait_for_helpers(nacre_pool *pool, nacre_job *job) {
    if (HELPERS(atomic_fetch_and(&job->state, ~OPEN)) == 0) return;
    const int64_t patience = SPIN * nacre_ticks_per_microsecond(), step = YIELD * nacre_ticks_per_microsecond();
    const int64_t start = nacre_ticks();
    int64_t offered = start;
    while (HELPERS(atomic_load(&job->state))) {
        nacre_pause();
        const int64_t now = nacre_ticks();
        if (now - offered > step) sched_yield(), offered = nacre_ticks();
        if (now - start < patience) continue;
        atomic_fetch_or(&job->state, WAITING);
        for (;;) {
            const uint32_t seen = atomic_load(&job->left);
            if (HELPERS(atomic_load(&job->state)) == 0) return;
            nacre_park(&pool->parking, &job->left, seen);
        }
    }
}

void nacre_parallel(nacre_team *team, nacre_task task, const void *context, int64_t items, int64_t *pace) {
    nacre_crew *crew = (nacre_crew *)team;
    int64_t known = __atomic_load_n(pace, __ATOMIC_RELAXED), begin = 0, work;
    if (known == 0) known = compute_alone(task, context, 0, begin = 1, pace);
    if (__builtin_mul_overflow(known, items - begin, &work)) work = INT64_MAX;
    const int32_t helpers = helpers_for(crew, items - begin, work / PACE_FRACTION);
    if (helpers <= 0) {
        if (begin < items) compute_alone(task, context, begin, items, pace);
        return;
    }
    nacre_job *job = crew->job;
    const int64_t even = (items - begin) / (CHUNKS * ((int64_t)helpers + 1));
    const int64_t least = CHUNK * nacre_ticks_per_microsecond() * PACE_FRACTION / known;
    const int64_t chunk = even > least ? even : least;
    const uint64_t generation = (uint64_t)GENERATION(atomic_load_explicit(&job->state, memory_order_relaxed)) + 1;
    job->task = task;
    job->context = context;
    job->first = begin;
    job->items = items;
    job->chunk = chunk > 1 ? chunk : 1;
    job->chunks = (items - begin + job->chunk - 1) / job->chunk;
    job->middle = job->chunks / (helpers + 1);
    job->floating_mode = nacre_floating_mode();
    atomic_store_explicit(&job->cpu, nacre_current_cpu(), memory_order_relaxed);
    atomic_store_explicit(&job->taken, 0, memory_order_relaxed);
    atomic_store(&job->state, generation << 32 | OPEN | (uint64_t)helpers << LIMIT_SHIFT);
    call_workers(crew->pool, helpers);
    const int64_t start = nacre_ticks();
    int64_t done = 0;
    for (int64_t more; (more = nacre_compute_chunk(job, FROM_FRONT)) > 0;) done += more;
    const int64_t ticks = nacre_ticks() - start;
    wait_for_helpers(crew->pool, job);
    if (done > 0) keep_pace(pace, ticks, done);
}
