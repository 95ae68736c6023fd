/* The protocol between the caller of a job and its helpers.
 *
 * The bit fields of `state`, from the highest bit:
 *
 *   63..32   generation   the number of jobs that this seat has had: a late worker cannot join a later job
 *   31       OPEN         helpers may join
 *   30       WAITING      the caller sleeps until all helpers have left
 *   29..15   limit        the maximum number of helpers
 *   14..0    helpers      the current number of helpers
 */
#ifndef NACRE_JOB_H
#define NACRE_JOB_H

#include "pool_layout.h"

#define OPEN (UINT64_C(1) << 31)
#define WAITING (UINT64_C(1) << 30)
#define LIMIT_SHIFT 15
#define COUNT_MASK UINT64_C(0x7fff)
#define HELPERS(state) ((int32_t)((state) & COUNT_MASK))
#define LIMIT(state) ((int32_t)((state) >> LIMIT_SHIFT & COUNT_MASK))
#define GENERATION(state) ((uint32_t)((state) >> 32))
#define CALLER (UINT64_C(1) << 32)

enum {
    SPIN = 50, /* microseconds that a worker without a job, or a caller without a work item, spins before it sleeps */
    YIELD = 5  /* microseconds between calls of sched_yield while it spins */
};

/* Returns the number of CPUs without a seated caller: as many workers can run at the same time. */
static inline int32_t nacre_spare_cpus(nacre_pool *pool) {
    return atomic_load(&pool->cpus) - (int32_t)(atomic_load(&pool->crowd) >> 32);
}

/* Increments of `taken` that take a chunk. The caller takes chunks from the front of the list, helpers from the back:
   a thread then finds data of the previous kernel in its own cache. */
#define FROM_FRONT UINT64_C(1)
#define FROM_BACK (UINT64_C(1) << 32)

/* Returns the number of the chunk at an index of the list. The list has the chunks before the middle in ascending
order, then the others in descending order. For 6 chunks and middle 3:

    list     0 1 2 5 4 3     the caller takes 0, 1, 2 from the front; helpers take 3, 4, 5 from the back

Both therefore compute ascending chunks, and hardware prefetching fetches data that the same thread needs next. */
static inline int64_t nacre_chunk_at(const nacre_job *job, int64_t index) {
    return index < job->middle ? index : job->middle + (job->chunks - 1 - index);
}

/* Takes a chunk and computes it. Returns its number of work items, or 0 if no chunk is left. */
static inline int64_t nacre_compute_chunk(nacre_job *job, uint64_t side) {
    const uint64_t taken = atomic_fetch_add_explicit(&job->taken, side, memory_order_relaxed);
    const int64_t front = (uint32_t)taken, back = (int64_t)(taken >> 32);
    if (front + back >= job->chunks) return 0;
    const int64_t number = nacre_chunk_at(job, side == FROM_FRONT ? front : job->chunks - 1 - back);
    const int64_t begin = job->first + number * job->chunk;
    const int64_t end = begin + job->chunk < job->items ? begin + job->chunk : job->items;
    job->task(job->context, begin, end);
    return end - begin;
}

#endif
