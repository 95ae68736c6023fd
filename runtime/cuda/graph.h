/* Graphs of calls: the kernels and copies of a call that a session repeats, queued by one call of the driver.
 *
 *   first call of an entry with certain dims and pointers    each kernel is launched alone
 *   second                                                   the kernels are recorded, and the graph is launched
 *   further ones                                             the graph is launched; the code of the entry does not run
 *
 * A number that the host reads ends a graph, since the rest of the call depends on it. The call is then a sequence of
 * graphs, each with the number that followed it. If another number follows, the rest of the call runs without graphs. */
#ifndef NACRE_CUDA_GRAPH_H
#define NACRE_CUDA_GRAPH_H

#include "driver.h"

typedef struct nacre_device_session nacre_device_session;
typedef struct nacre_graphs nacre_graphs;

/* The code of an entry with its arguments, and the words that determine its kernels: dims and pointers. */
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

/* Releases all graphs of a session. Its context is current. */
void nacre_release_graphs(nacre_device_session *session);

/* Runs the code of an entry or its graphs. Returns the number of a failed check, or 0. */
int64_t nacre_run_graphs(nacre_device_session *session, const nacre_device_run *run);

/* Returns whether a kernel or a copy is to be queued now, and the stream for it. */
int nacre_begin_operation(nacre_device_session *session, driver_stream *stream);

/* Comes before the host reads memory of the device, such as a number of 1 or 8 bytes. Returns whether it must read; if
 * not, it has read the number before, and the number is `known`. */
int nacre_begin_read(nacre_device_session *session, const void *pointer, int bytes, int64_t *known);

/* Comes after the host has read a number. */
void nacre_end_read(nacre_device_session *session, int64_t value);

#endif
