/* A session on a GPU: its stream, memory for the tensors of one call, and its states. */
#ifndef NACRE_CUDA_SESSION_H
#define NACRE_CUDA_SESSION_H

#include <pthread.h>
#include <sys/types.h>

#include "graph.h"
#include "program.h"

struct nacre_device_session {
    nacre_team team; /* which entries hand on; they do not read it */
    nacre_program *program;
    driver_stream own, stream; /* the stream of calls is the session's own one, or that of the caller */
    driver_pointer memory; /* of the call: tensors of the host, workspace, record of checks */
    size_t memory_bytes;
    driver_pointer states; /* as in the memory of the host, or 0 before the first call that needs them */
    int is_state_here, is_state_on_host; /* which copy of the states is the current one, or both are */
    driver_pointer record;
    nacre_status status; /* of the call in progress: after an error nothing is done any more */
    pthread_mutex_t lock; /* of the call in progress */
    pid_t process;
    nacre_graphs *graphs; /* NULL: each kernel is launched alone */
};

size_t nacre_align(size_t bytes);

/* Returns where a state is, and makes this copy the current one for a call that may write it; 0 after an error. */
driver_pointer nacre_place_state(const nacre_session *session, int32_t state);

/* Records the result of a call of the driver; returns whether the call of the entry goes on. */
int nacre_went_well(nacre_device_session *session, int result, const char *action);

/* Waits for the kernels before, and copies memory of the device to that of the host. */
void nacre_read_memory(nacre_device_session *session, void *target, const void *source, int64_t bytes);

/* The same for a number of 1 or 8 bytes, which is unspecified after an error. */
int64_t nacre_read_number(nacre_device_session *session, const void *pointer, int bytes);

#endif
