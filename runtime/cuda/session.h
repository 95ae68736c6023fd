/* A session on a GPU: its stream, and memory for the tensors of one call. */
#ifndef NACRE_CUDA_SESSION_H
#define NACRE_CUDA_SESSION_H

#include <pthread.h>
#include <sys/types.h>

#include "program.h"

typedef struct nacre_device_session {
    nacre_team team; /* which entries hand on; they do not read it */
    nacre_program *program;
    driver_stream stream;
    driver_pointer memory; /* of the call: tensors, workspace, record of checks */
    size_t memory_bytes;
    driver_pointer record;
    nacre_status status; /* of the call in progress: after an error nothing is done any more */
    pthread_mutex_t lock; /* of the call in progress */
    pid_t process;
} nacre_device_session;

/* Records the result of a call of the driver; returns whether the call of the entry goes on. */
int nacre_went_well(nacre_device_session *session, int result, const char *action);

#endif
