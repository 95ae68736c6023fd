/* A job, as its caller and its helpers read it.
 *
 * The state of a job, from its high bits: how many jobs this seat has seen, so that a worker that was late cannot join
 * the wrong one; OPEN; WAITING, if the caller sleeps until the helpers have left; how many may help; how many do.
 */
#ifndef NACRE_JOB_H
#define NACRE_JOB_H

#include "pool.h"

#define OPEN (UINT64_C(1) << 31)
#define WAITING (UINT64_C(1) << 30)
#define PLACES_SHIFT 15
#define COUNT_MASK UINT64_C(0x7fff)
#define HELPERS(state) ((int32_t)((state) & COUNT_MASK))
#define PLACES(state) ((int32_t)((state) >> PLACES_SHIFT & COUNT_MASK))
#define GENERATION(state) ((uint32_t)((state) >> 32))
#define CALLER (UINT64_C(1) << 32)

enum {
    SPIN = 50, /* microseconds that a worker without a job, or a caller without a unit, stays awake */
    YIELD = 5  /* microseconds between the offers of such a one to let another thread have the CPU */
};

/* Returns the number of workers for which CPUs are free. */
static inline int32_t nacre_spare_cpus(nacre_pool *pool) {
    return atomic_load(&pool->cpus) - (int32_t)(atomic_load(&pool->crowd) >> 32);
}

/* Added to `taken` to take a chunk. The caller takes chunks from the front of the list, its helpers from the back, so that
   in successive kernels a thread reads data in its own cache. */
#define FROM_FRONT UINT64_C(1)
#define FROM_BACK (UINT64_C(1) << 32)

/* The chunk at a place of the list: in it stand those before the middle, then the others, backwards. So helpers go up
from the middle as the caller does from the beginning, and what a kernel fetches ahead is what its thread needs next. */
static inline int64_t nacre_chunk_at(const nacre_job *job, int64_t place) {
    return place < job->middle ? place : job->middle + (job->chunks - 1 - place);
}

/* Takes a chunk and computes it; returns how many units that were, 0 when none is left. */
static inline int64_t nacre_compute_chunk(nacre_job *job, uint64_t side) {
    const uint64_t taken = atomic_fetch_add_explicit(&job->taken, side, memory_order_relaxed);
    const int64_t front = (uint32_t)taken, back = (int64_t)(taken >> 32);
    if (front + back >= job->chunks) return 0;
    const int64_t number = nacre_chunk_at(job, side == FROM_FRONT ? front : job->chunks - 1 - back);
    const int64_t begin = job->first + number * job->chunk;
    const int64_t end = begin + job->chunk < job->units ? begin + job->chunk : job->units;
    job->task(job->context, begin, end);
    return end - begin;
}

#endif
