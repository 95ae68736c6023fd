/* Declarations that several files of the fixed runtime use.

   A file calls only functions of files to its right:

   api -> observe -> session -> state -> check -> error
          session -> weights, cpu -> error
          session, state -> workers, pool, share, helpers (the worker threads, which call one another) -> park, affinity
          api, session, state -> cuda/ (see device.h), or no_device instead
   single_thread replaces weights, workers and pool where there are no threads. */
#ifndef NACRE_INTERNAL_H
#define NACRE_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "tables.h"

struct nacre_session {
    const char *weights;
    void *mapping; /* the external weights file mapped into memory, or a copy of it; NULL if neither exists */
    size_t mapping_bytes;
    int shares_copy; /* 1: uses the copy of the embedded weights that all sessions of the library share */
    char *workspace; /* the session's own, or NULL */
    int64_t workspace_bytes;
    atomic_int workspace_user; /* the process of the call in progress, see workers.c; 0 if there is none */
    uint32_t threads; /* maximum number of threads of a call, at least 1 */
    int32_t level;    /* index of the selected CPU variant in the artifact's levels */
    _Atomic(const nacre_observer *) observer; /* NULL: calls are not observed */
    int64_t *dims;      /* the dims that the session fixes; NULL without states */
    char **states;      /* the address of each state in `state_memory`; NULL without states */
    char *state_memory; /* one allocation that holds all states; NULL without states */
    size_t state_bytes;
    atomic_int state_user; /* the process of the call that uses the states, as `workspace_user` */
    struct nacre_device_session *device; /* the device that computes; NULL: the CPU computes */
    char passed[]; /* one flag for each check of all entries: 1 once it has passed and depends on weights alone */
};

/* error.c: `nacre_fail` returns its status, so that a failure is one return statement. */
__attribute__((format(printf, 2, 3))) nacre_status nacre_fail(nacre_status status, const char *format, ...);
const char *nacre_last_error(void);

/* check.c */
const nacre_entry *nacre_find_entry(int64_t index);
nacre_status nacre_check_dims(const nacre_entry *entry, const int64_t *dims);
nacre_status nacre_check_tensor(const nacre_argument *expected, const char *role, const nacre_tensor *got);
nacre_status nacre_check_data(const nacre_argument *expected, const char *role, const nacre_tensor *got);
nacre_status nacre_check_shape(const nacre_entry *entry, const nacre_argument *expected, const char *role,
                               const nacre_tensor *got, const int64_t *dims);
/* Fails unless the session can run the entry at these dims. */
nacre_status nacre_check_states(const nacre_session *session, const nacre_entry *entry, const int64_t *dims);
nacre_status nacre_check_range(const nacre_dim *dim, int64_t value, const char *where);
int64_t nacre_dtype_bytes(nacre_dtype dtype);
nacre_status nacre_bind_inputs(const nacre_session *session, const nacre_entry *entry, const nacre_tensor *inputs,
                               int32_t count, int64_t *dims);
int64_t nacre_tensor_bytes(const nacre_tensor *tensor);

/* cpu.c */
nacre_status nacre_choose_level(int32_t *level);

/* weights.c */
nacre_status nacre_open_weights(nacre_session *session, const nacre_options *options);
void nacre_close_weights(nacre_session *session);

/* observe.c */
int64_t nacre_now(void); /* nanoseconds of CLOCK_MONOTONIC */
uint64_t nacre_next_run(void); /* the sequence number of an observed call */
typedef struct nacre_arguments {
    const nacre_entry *entry;
    const void *const *inputs;
    void *const *outputs;
    char *workspace;
    const int64_t *dims;
} nacre_arguments;
int64_t nacre_run_observed(const nacre_session *session, const nacre_observer *observer,
                           const nacre_arguments *arguments, nacre_team *team, nacre_failure *failure);
nacre_status nacre_observe(nacre_session *session, const nacre_observer *observer);
void nacre_record_event(void *recording, const nacre_event *event);

/* session.c */
int nacre_take_workspace(nacre_session *session); /* returns 0 if a call in progress uses it */
void nacre_return_workspace(nacre_session *session);
nacre_status nacre_read_options(const nacre_options *options, nacre_options *given);
nacre_status nacre_session_create(const nacre_options *options, nacre_session **session);
void nacre_session_destroy(nacre_session *session);
nacre_status nacre_session_fork(nacre_session *source, const nacre_options *options, nacre_session **session);
nacre_status nacre_session_reserve(nacre_session *session, int64_t bytes);

#endif
