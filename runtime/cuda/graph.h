/* CUDA graphs: all kernels and copies of a repeated call are queued by one call of the driver.
 *
 *   first call of an entry with some dims and pointers    each kernel is launched separately
 *   second call with the same dims and pointers           the kernels are recorded, and the graph is launched
 *   later calls                                           the graph is launched; the code of the entry does not run
 *
 * When the host reads a number, such as the condition of a loop, the graph ends, since the rest of the call depends on
 * the number. A call is then a sequence of graphs, each with the number that was read after it. If a later call reads a
 * different number, its remaining kernels are launched separately. */
#ifndef NACRE_CUDA_GRAPH_H
#define NACRE_CUDA_GRAPH_H

#include "driver.h"

typedef struct nacre_device_session nacre_device_session;
typedef struct nacre_graphs nacre_graphs;

/* A call of an entry: its code and arguments, and the key of its graphs, the words of all dims and pointers. */
typedef struct nacre_device_run {
    nacre_kernel code;
    const void *const *inputs;
    void *const *outputs;
    char *workspace;
    const int64_t *dims;
    nacre_failure *failure;
    const uint64_t *key;
    int32_t key_words;
} nacre_device_run;

/* Returns NULL if there is no memory. */
nacre_graphs *nacre_create_graphs(void);

/* Releases all graphs of a session. The caller makes its context current. */
void nacre_release_graphs(nacre_device_session *session);

/* Runs the code of an entry, or its graphs. Returns the number of the failed check, or 0. */
int64_t nacre_run_graphs(nacre_device_session *session, const nacre_device_run *run);

/* Returns whether the caller must queue its kernel or copy, and stores the stream for it. */
int nacre_begin_operation(nacre_device_session *session, driver_stream *stream);

/* Call it before the host reads device memory. Returns whether the host must read; otherwise `known` is the number of 1
 * or 8 bytes, which it has read in this call before. */
int nacre_begin_read(nacre_device_session *session, const void *pointer, int bytes, int64_t *known);

/* Call it after the host has read a number. */
void nacre_end_read(nacre_device_session *session, int64_t value);

#endif
