/* A session on a GPU: its stream, memory for the tensors of one call, and its states. */
#ifndef NACRE_CUDA_SESSION_H
#define NACRE_CUDA_SESSION_H

#include <pthread.h>
#include <sys/types.h>

#include "graph.h"
#include "program.h"

struct nacre_device_session {
    nacre_team team; /* entries pass its address to the functions in launch.c, which find the session by it */
    nacre_program *program;
    driver_stream own, stream; /* the session's own stream, and the stream of calls: this one or the caller's */
    driver_pointer memory; /* device memory of a call: copies of the host's tensors, workspace, record of checks */
    size_t memory_bytes;
    driver_pointer states; /* states, at the same offsets as in host memory; 0 before the first call that uses them */
    int is_state_here, is_state_on_host; /* whether the copy on the device, and that of the host, is current */
    driver_pointer record;
    nacre_status status; /* status of the call in progress: after an error, its other operations are skipped */
    pthread_mutex_t lock; /* held by the call in progress */
    pid_t process;
    nacre_graphs *graphs; /* NULL: each kernel is launched separately */
};

size_t nacre_align(size_t bytes);

/* Waits for the call in progress, and takes its lock; fails in the child of a fork, where the lock may be held by a
 * thread that does not exist. */
nacre_status nacre_lock(nacre_device_session *session);

/* Returns the device address of a state for a call that may write it, and makes the copy on the device the only current
 * one; 0 after an error. */
driver_pointer nacre_place_state(const nacre_session *session, int32_t state);

/* Records the result of a driver call that performed `action`. Returns whether the call of the entry continues. */
int nacre_went_well(nacre_device_session *session, int result, const char *action);

/* An observed call. The observer reads the workspace and the outputs (results, then states) in host memory: there, the
 * tensors that each kernel wrote are copied after it. */
typedef struct nacre_device_watch {
    const nacre_observer *observer;
    nacre_observed_kernel code;
    nacre_event event; /* with the pointers that the observer reads */
    size_t workspace_bytes;
    int32_t output_count;
} nacre_device_watch;

/* The hooks of an observed entry. `show` receives each tensor that a kernel has written; NULL: nobody reads it. */
typedef struct nacre_device_hooks {
    nacre_watch base;
    void (*show)(struct nacre_device_hooks *hooks, const void *pointer, int64_t bytes);
} nacre_device_hooks;

/* Runs the observed code of an entry, each kernel separately. Returns the number of the failed check, or 0.
 * `nacre_run_watched` waits for each kernel; `nacre_run_recorded` waits once, and tells the times of the device. */
int64_t nacre_run_recorded(nacre_device_session *session, const nacre_device_run *run, const nacre_device_watch *watch);
int64_t nacre_run_watched(nacre_device_session *session, const nacre_device_run *run, const nacre_device_watch *watch);

/* Waits for earlier kernels, and copies device memory to host memory. */
void nacre_read_memory(nacre_device_session *session, void *target, const void *source, int64_t bytes);

/* Waits for earlier kernels, and returns a number of 1 or 8 bytes of device memory; unspecified after an error. */
int64_t nacre_read_number(nacre_device_session *session, const void *pointer, int bytes);

#endif
