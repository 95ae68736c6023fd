/* States of a session: their memory, initial values, and access from outside of calls.
 *
 * All states of a session are in one allocation, each aligned to NACRE_ALIGNMENT bytes. A call of an entry with states,
 * and every function here that reads or writes them, locks the states of the session, or fails with NACRE_BUSY.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "memory.h"
#include "state.h"
#include "workers.h"

static const nacre_artifact *artifact(void) { return &nacre_this_artifact; }

static int64_t rounded(int64_t bytes) {
    const int64_t more = nacre_add(bytes, NACRE_ALIGNMENT - 1);
    return more == NACRE_OVERFLOW ? more : more / NACRE_ALIGNMENT * NACRE_ALIGNMENT;
}

/* Returns the bytes of a state at these dims, or NACRE_OVERFLOW. */
static int64_t state_bytes(const nacre_state *state, const int64_t *dims) {
    int64_t bytes = nacre_dtype_bytes(state->tensor.dtype);
    for (int32_t axis = 0; axis < state->tensor.rank; axis++) {
        const int64_t size = nacre_value(&state->tensor.shape[axis], dims);
        if (size < 0) return NACRE_OVERFLOW;
        if (size == 0) return 0;
    }
    for (int32_t axis = 0; axis < state->tensor.rank; axis++)
        bytes = nacre_mul(bytes, nacre_value(&state->tensor.shape[axis], dims));
    return bytes;
}

static nacre_status check_dims(const int64_t *dims, int32_t count) {
    if (count != artifact()->session_dim_count || (dims == NULL && count > 0))
        return nacre_fail(NACRE_INVALID, "a session has %" PRId32 " dim%s, got %" PRId32,
                          artifact()->session_dim_count, artifact()->session_dim_count == 1 ? "" : "s", count);
    for (int32_t d = 0; d < count; d++) {
        nacre_status status = nacre_check_range(&artifact()->session_dims[d], dims[d], " in this session");
        if (status) return status;
    }
    return NACRE_OK;
}

/* Returns the bytes of all states, or NACRE_OVERFLOW after an error. */
static int64_t all_bytes(const int64_t *dims) {
    int64_t total = 0;
    for (int32_t i = 0; i < artifact()->state_count; i++) {
        const int64_t bytes = state_bytes(&artifact()->states[i], dims);
        total = nacre_add(total, rounded(bytes));
        if (bytes == NACRE_OVERFLOW || total == NACRE_OVERFLOW) {
            nacre_fail(NACRE_INVALID, "state `%s`: %s is too large in this session", artifact()->states[i].tensor.name,
                       artifact()->states[i].tensor.type);
            return NACRE_OVERFLOW;
        }
    }
    return total;
}

int64_t nacre_session_bytes(const int64_t *dims, int32_t count) {
    if (check_dims(dims, count)) return -1;
    const int64_t bytes = all_bytes(dims);
    return bytes == NACRE_OVERFLOW ? -1 : bytes;
}

/* Writes the initial value of a state; a shorter one is repeated along the first axes. */
static void begin_state(nacre_session *session, int32_t number) {
    const nacre_state *state = &artifact()->states[number];
    char *to = session->states[number];
    const int64_t bytes = state_bytes(state, session->dims);
    if (state->initial_bytes == 0) {
        if (bytes) memset(to, 0, (size_t)bytes);
        return;
    }
    for (int64_t at = 0; at < bytes; at += state->initial_bytes)
        memcpy(to + at, session->weights + state->initial, (size_t)state->initial_bytes);
}

nacre_status nacre_states_open(nacre_session *session, const nacre_options *options) {
    if (options->dims == NULL) return NACRE_OK;
    const int32_t count = artifact()->session_dim_count, states = artifact()->state_count;
    nacre_status status = check_dims(options->dims, (int32_t)options->dim_count);
    if (status) return status;
    const int64_t bytes = all_bytes(options->dims);
    if (bytes == NACRE_OVERFLOW) return NACRE_INVALID;
    session->dims = calloc((size_t)count + 1, sizeof *session->dims);
    session->states = calloc((size_t)states + 1, sizeof *session->states);
    session->state_memory = nacre_allocate((size_t)bytes + NACRE_ALIGNMENT);
    session->state_bytes = (size_t)bytes;
    if (session->dims == NULL || session->states == NULL || session->state_memory == NULL) {
        nacre_states_close(session);
        return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for states of %" PRId64 " bytes", bytes);
    }
    if (count) memcpy(session->dims, options->dims, (size_t)count * sizeof *session->dims);
    char *memory = session->state_memory;
    for (int32_t i = 0; i < states; i++) {
        session->states[i] = memory;
        memory += rounded(state_bytes(&artifact()->states[i], session->dims));
        begin_state(session, i);
    }
    return NACRE_OK;
}

void nacre_states_close(nacre_session *session) {
    free(session->dims);
    free(session->states);
    free(session->state_memory);
    session->dims = NULL;
    session->states = NULL;
    session->state_memory = NULL;
}

nacre_status nacre_take_states(nacre_session *session, const char *who) {
    const int own = nacre_process_number();
    int user = 0;
    /* A lock that a call in the parent of a fork holds does not count here: that call goes on in the parent. */
    while (user != own)
        if (atomic_compare_exchange_weak(&session->state_user, &user, own)) return NACRE_OK;
    return nacre_fail(NACRE_BUSY, "%s: the session's states are in use by another call", who);
}

void nacre_return_states(nacre_session *session) { atomic_store(&session->state_user, 0); }

int32_t nacre_find_state(const char *name) {
    for (int32_t i = 0; name && i < artifact()->state_count; i++)
        if (strcmp(artifact()->states[i].tensor.name, name) == 0) return i;
    nacre_fail(NACRE_INVALID, "no state is named `%s`", name ? name : "");
    return -1;
}

/* Returns the state with this index, or NULL after an error. */
static const nacre_state *find(const nacre_session *session, int32_t state) {
    if (session == NULL || session->states == NULL) {
        nacre_fail(NACRE_INVALID, session ? "the session has no states: it was created without dims"
                                          : "states without a session");
        return NULL;
    }
    if (state >= 0 && state < artifact()->state_count) return &artifact()->states[state];
    nacre_fail(NACRE_INVALID, "state %" PRId32 " does not exist; the artifact has %" PRId32, state,
               artifact()->state_count);
    return NULL;
}

int32_t nacre_state_shape(const nacre_session *session, int32_t state, int64_t *shape, int32_t capacity) {
    const nacre_state *found = find(session, state);
    if (found == NULL) return -1;
    for (int32_t axis = 0; axis < found->tensor.rank && axis < capacity; axis++)
        shape[axis] = nacre_value(&found->tensor.shape[axis], session->dims);
    return found->tensor.rank;
}

/* Locks the states, and makes the copy in host memory the current one. */
static nacre_status take_for_host(nacre_session *session, const char *who, int is_changing) {
    nacre_status status = nacre_take_states(session, who);
    if (status) return status;
    status = nacre_device_fetch_states(session, is_changing);
    if (status) nacre_return_states(session);
    return status;
}

/* Checks the arguments of an access to a whole state, and locks the states. */
static nacre_status begin_access(nacre_session *session, int32_t state, const void *data, int64_t bytes,
                                 int is_changing) {
    const nacre_state *found = find(session, state);
    if (found == NULL) return NACRE_INVALID;
    const int64_t expected = state_bytes(found, session->dims);
    if (bytes != expected || (data == NULL && expected > 0))
        return nacre_fail(NACRE_INVALID, "state `%s` has %" PRId64 " bytes, got %" PRId64 "%s", found->tensor.name,
                          expected, bytes, data ? "" : " without data");
    return take_for_host(session, found->tensor.name, is_changing);
}

nacre_status nacre_state_read(nacre_session *session, int32_t state, void *data, int64_t bytes) {
    nacre_status status = begin_access(session, state, data, bytes, 0);
    if (status) return status;
    if (bytes) memcpy(data, session->states[state], (size_t)bytes);
    nacre_return_states(session);
    return NACRE_OK;
}

nacre_status nacre_state_write(nacre_session *session, int32_t state, const void *data, int64_t bytes) {
    nacre_status status = begin_access(session, state, data, bytes, 1);
    if (status) return status;
    if (bytes) memcpy(session->states[state], data, (size_t)bytes);
    nacre_return_states(session);
    return NACRE_OK;
}

nacre_status nacre_state_reset(nacre_session *session, int32_t state) {
    const int32_t first = state == -1 ? 0 : state, last = state == -1 ? artifact()->state_count : state + 1;
    if ((state != -1 || session == NULL || session->states == NULL) && find(session, first) == NULL)
        return NACRE_INVALID;
    nacre_status status = take_for_host(session, "reset", 1);
    if (status) return status;
    for (int32_t i = first; i < last; i++) begin_state(session, i);
    nacre_return_states(session);
    return NACRE_OK;
}

nacre_status nacre_state_data(nacre_session *session, int32_t state, void **data) {
    const nacre_state *found = find(session, state);
    if (found == NULL) return NACRE_INVALID;
    if (data == NULL) return nacre_fail(NACRE_INVALID, "state `%s`: no pointer for its data", found->tensor.name);
    const int32_t device = nacre_device_number(session);
    if (device >= 0)
        return nacre_fail(NACRE_INVALID, "state `%s` is in the memory of GPU %" PRId32 ": it can only be copied",
                          found->tensor.name, device);
    *data = session->states[state];
    return NACRE_OK;
}

nacre_status nacre_copy_states(nacre_session *source, nacre_session *target) {
    nacre_status status = take_for_host(source, "fork", 0);
    if (status) return status;
    memcpy(target->state_memory, source->state_memory, (size_t)all_bytes(source->dims));
    nacre_return_states(source);
    return NACRE_OK;
}
