/* The caller's side of the pool: a call passes work items of its kernels to workers. */
#ifndef NACRE_POOL_H
#define NACRE_POOL_H

#include "pool_layout.h"

/* The threads of one call, on the stack of the caller. Generated code reads `base` only. */
typedef struct nacre_crew {
    nacre_team base;
    nacre_pool *pool; /* NULL until a call of the library needs the pool */
    nacre_job *job;
    int32_t seat;      /* index of the seat; -1: not seated */
    int32_t helpers;   /* maximum number of helpers */
    int64_t postponed; /* ticks of work that the caller did alone because no worker was awake */
} nacre_crew;

nacre_crew nacre_crew_of(uint32_t threads);
void nacre_crew_leave(nacre_crew *crew);
void nacre_parallel(nacre_team *team, nacre_task task, const void *context, int64_t items, int64_t *pace);

#endif
