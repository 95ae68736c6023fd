/* The body of a worker thread. */
#ifndef NACRE_HELPERS_H
#define NACRE_HELPERS_H

/* Helps jobs of the pool until the library stops. It is a `nacre_worker_body`. */
void *nacre_work(void *pool);

#endif
