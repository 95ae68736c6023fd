/* The worker threads of this library. Each session opens the library, and closes it when it is destroyed. */
#ifndef NACRE_WORKERS_H
#define NACRE_WORKERS_H

#include "pool_layout.h"

/* The function that a worker thread runs; its argument is the pool. */
typedef void *nacre_worker_body(void *pool);

nacre_status nacre_library_open(int32_t *cpus);
void nacre_library_close(void);
nacre_pool *nacre_known_pool(void); /* NULL until a call of this library needs the pool */
nacre_pool *nacre_process_pool(void);

/* Starts a worker if the pool wants more. Without `insist`, does nothing while another thread holds the lock. */
void nacre_start_worker(nacre_pool *pool, nacre_worker_body *body, int insist);
int nacre_library_stops(void);
int nacre_process_number(void); /* 1 in the first process, one more after each fork */

#endif
