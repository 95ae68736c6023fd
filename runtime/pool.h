/* The worker threads of the process, and how calls pass work items of kernels to them.
 *
 * All artifacts of a process share one pool: memory that belongs to none of them (share.c finds it). A worker runs the
 * code of the library that started it, and helps calls of any library (workers.c). job.h defines how calls and workers
 * communicate.
 */
#ifndef NACRE_POOL_H
#define NACRE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "affinity.h"
#include "park.h"
#include "tables.h"

#define NACRE_SEATS 64         /* calls that may have helpers at one time; a further one computes alone */
#define NACRE_MOST_THREADS 256 /* of a call; more workers are never started */
#define NACRE_LINE 128         /* two cache lines: some CPUs fetch them in pairs */

/* Libraries share a pool if they agree on this number: it changes with anything in this file or in job.h. */
#if NACRE_FUTEX
#define NACRE_POOL_LAYOUT 6
#else
#define NACRE_POOL_LAYOUT 7
#endif

/* One seat: the kernel that a call computes on several threads at this moment. */
typedef struct nacre_job {
    /* See job.h. The caller writes the rest of the cache line, while no worker works on the job. */
    _Alignas(NACRE_LINE) _Atomic uint64_t state;
    nacre_task task;
    const void *context;
    int64_t first, units, chunk, chunks; /* units from the first one on, in so many chunks */
    int64_t middle;                      /* the first chunk that is not the caller's share */
    uint64_t floating_mode;
    _Alignas(NACRE_LINE) _Atomic uint64_t taken; /* places from the back << 32 | from the front, and vain tries */
    _Atomic int32_t cpu;                         /* where the caller was */
    _Atomic uint32_t left;                       /* changes when the last helper leaves a caller that sleeps */
} nacre_job;

typedef struct nacre_pool {
    atomic_int references; /* of libraries */
    pid_t process;
    nacre_parking parking;

    _Alignas(NACRE_LINE) _Atomic uint64_t seats; /* a bit for each that is taken */
    _Atomic uint64_t crowd;                      /* callers in seats << 32 | the helpers that they may have together */
    _Atomic int32_t cpus;
    _Atomic int32_t started; /* workers */
    _Atomic int32_t awake;   /* of them, or woken */
    _Atomic int32_t wanted;  /* how many are worth starting */

    _Alignas(NACRE_LINE) _Atomic uint32_t bell; /* what sleeping workers sleep on */
    _Atomic int32_t grants;                     /* workers that may wake */

    nacre_job jobs[NACRE_SEATS];
} nacre_pool;

/* The threads of one call, made on its stack. Only `base` is known to generated code. */
typedef struct nacre_crew {
    nacre_team base;
    nacre_pool *pool; /* NULL until a call of the library needs it */
    nacre_job *job;
    int32_t seat;      /* -1: none yet */
    int32_t helpers;   /* at most */
    int64_t postponed; /* ticks of work done alone that helpers would have shared, had they been awake */
} nacre_crew;

/* pool.c */
void nacre_pool_start(nacre_pool *pool);
nacre_crew nacre_crew_of(uint32_t threads);
void nacre_crew_leave(nacre_crew *crew);
void nacre_parallel(nacre_team *team, nacre_task task, const void *context, int64_t units, int64_t *pace);

/* helpers.c */
void *nacre_work(void *pool);
void nacre_wake_everyone(nacre_pool *pool);

/* workers.c: this library's part of the pool. Every session opens it and closes it. */
nacre_status nacre_library_open(int32_t *cpus);
void nacre_library_close(void);
nacre_pool *nacre_known_pool(void); /* NULL until this library has needed it */
nacre_pool *nacre_process_pool(void);
void nacre_start_worker(nacre_pool *pool, int insist);
int nacre_library_stops(void);
int nacre_process_number(void); /* 1, and one more in the child of a fork */

/* share.c */
nacre_pool *nacre_pool_attach(void);
void nacre_pool_detach(nacre_pool *pool);

#endif
