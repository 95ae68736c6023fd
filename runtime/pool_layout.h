/* The memory of the pool of worker threads.
 *
 * All artifacts of a process share one pool: memory that belongs to none of them. They must agree on this layout, since
 * each library reads memory that others write.
 *
 *   pool.c      callers: distribute the work items of a kernel, and wake workers
 *   helpers.c   workers: find jobs, help, spin and sleep
 *   workers.c   the workers of this library: starts and ends them
 *   share.c     finds or creates the pool of the process
 *   job.h       the protocol between a caller and its helpers
 *
 * Each of these C files calls only those listed below it. A worker runs the code of the library that started it, and
 * helps calls of any library.
 */
#ifndef NACRE_POOL_LAYOUT_H
#define NACRE_POOL_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

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

#endif
