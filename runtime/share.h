/* The pool of the process, found or created. */
#ifndef NACRE_SHARE_H
#define NACRE_SHARE_H

#include "pool_layout.h"

/* Initialises a pool without workers and callers. The child of a fork calls it too: a job keeps its generation. */
void nacre_pool_start(nacre_pool *pool);

/* Returns NULL if there is no memory. The library counts as a user of the pool until it detaches. */
nacre_pool *nacre_pool_attach(void);
void nacre_pool_detach(nacre_pool *pool);

#endif
