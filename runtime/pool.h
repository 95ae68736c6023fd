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

#define NACRE_SEATS 64         /* maximum number of calls with helpers at one time; any other call runs on one thread */
#define NACRE_MOST_THREADS 256 /* maximum number of threads of a call, and of started workers */
#define NACRE_LINE 128         /* bytes of two cache lines: some CPUs fetch lines in pairs */

/* Libraries share a pool only if they have the same number. Change it with every change of the layout or the
   protocol in this file or in job.h. */
#if NACRE_FUTEX
#define NACRE_POOL_LAYOUT 6
#else
#define NACRE_POOL_LAYOUT 7
#endif

/* The job of one seat: the kernel that the call in this seat is distributing over several threads. */
typedef struct nacre_job {
    /* Bit fields, see job.h. The caller writes the other fields of this cache line while no worker helps. */
    _Alignas(NACRE_LINE) _Atomic uint64_t state;
    nacre_task task;
    const void *context;
    int64_t first, items, chunk, chunks; /* work items `first` to `items` - 1, in `chunks` of `chunk` items */
    int64_t middle;                      /* the first chunk in the helpers' share */
    uint64_t floating_mode;
    _Alignas(NACRE_LINE) _Atomic uint64_t taken; /* attempts to take chunks: from the back << 32 | from the front */
    _Atomic int32_t cpu;                         /* the CPU that the caller last ran on; -1: unknown */
    _Atomic uint32_t left;                       /* futex of a sleeping caller: changes when the last helper leaves */
} nacre_job;

typedef struct nacre_pool {
    atomic_int references; /* number of libraries that use the pool */
    pid_t process;
    nacre_parking parking;

    _Alignas(NACRE_LINE) _Atomic uint64_t seats; /* bit i: seat i is taken */
    _Atomic uint64_t crowd;                      /* number of seated callers << 32 | sum of their helper limits */
    _Atomic int32_t cpus;
    _Atomic int32_t started; /* number of existing workers */
    _Atomic int32_t awake;   /* number of workers that are awake or have been woken */
    _Atomic int32_t wanted;  /* number of workers that should exist */

    _Alignas(NACRE_LINE) _Atomic uint32_t bell; /* futex of sleeping workers */
    _Atomic int32_t grants;                     /* number of sleeping workers that may still wake up */

    nacre_job jobs[NACRE_SEATS];
} nacre_pool;

/* The threads of one call, on the stack of the caller. Generated code reads `base` only. */
typedef struct nacre_crew {
    nacre_team base;
    nacre_pool *pool; /* NULL until a call of the library needs the pool */
    nacre_job *job;
    int32_t seat;      /* index of the seat; -1: not seated */
    int32_t helpers;   /* maximum number of helpers */
    int64_t postponed; /* ticks of work that the caller did alone because no worker was awake */
} nacre_crew;

/* pool.c */
void nacre_pool_start(nacre_pool *pool);
nacre_crew nacre_crew_of(uint32_t threads);
void nacre_crew_leave(nacre_crew *crew);
void nacre_parallel(nacre_team *team, nacre_task task, const void *context, int64_t items, int64_t *pace);

/* helpers.c */
void *nacre_work(void *pool);
void nacre_wake_everyone(nacre_pool *pool);

/* workers.c: the workers of this library. Each session opens the library, and closes it when it is destroyed. */
nacre_status nacre_library_open(int32_t *cpus);
void nacre_library_close(void);
nacre_pool *nacre_known_pool(void); /* NULL until a call of this library needs the pool */
nacre_pool *nacre_process_pool(void);
void nacre_start_worker(nacre_pool *pool, int insist);
int nacre_library_stops(void);
int nacre_process_number(void); /* 1 in the first process, one more after each fork */

/* share.c */
nacre_pool *nacre_pool_attach(void);
void nacre_pool_detach(nacre_pool *pool);

#endif
