/* The table of functions that an artifact exports, and the calls of entries. Nothing here allocates heap memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "internal.h"
#include "pool.h"
#include "state.h"

static const char *describe(void) { return nacre_this_artifact.description; }

static const char *describe_calls(void) { return nacre_this_artifact.calls; }

static int32_t find_entry(const char *name) {
    for (int32_t i = 0; name && i < nacre_this_artifact.entry_count; i++)
        if (strcmp(nacre_this_artifact.entries[i].name, name) == 0) return i;
    nacre_fail(NACRE_INVALID, "no entry is named `%s`", name ? name : "");
    return -1;
}

static nacre_status session_bind(nacre_session *session, int32_t index, const nacre_tensor *inputs, int32_t count,
                                 int64_t *dims) {
    const nacre_entry *entry = nacre_find_entry(index);
    if (entry == NULL) return NACRE_INVALID;
    if ((inputs == NULL && entry->argument_count) || (dims == NULL && entry->dim_count))
        return nacre_fail(NACRE_INVALID, "entry `%s`: the inputs or the dims are NULL", entry->name);
    return nacre_bind_inputs(session, entry, inputs, count, dims);
}

static nacre_status bind(int32_t index, const nacre_tensor *inputs, int32_t count, int64_t *dims) {
    return session_bind(NULL, index, inputs, count, dims);
}

static int32_t result_shape(int32_t index, int32_t result, const int64_t *dims, int64_t *shape, int32_t capacity) {
    const nacre_entry *entry = nacre_find_entry(index);
    if (entry == NULL) return -1;
    if (result < 0 || result >= entry->result_count) {
        nacre_fail(NACRE_INVALID, "entry `%s` has %" PRId32 " result%s, and no result %" PRId32, entry->name,
                   entry->result_count, entry->result_count == 1 ? "" : "s", result);
        return -1;
    }
    if (nacre_check_dims(entry, dims)) return -1;
    const nacre_argument *of = &entry->results[result];
    for (int32_t axis = 0; axis < of->rank && axis < capacity; axis++)
        shape[axis] = nacre_value(&of->shape[axis], dims);
    return of->rank;
}

static int64_t workspace_bytes(int32_t index, const int64_t *dims) {
    const nacre_entry *entry = nacre_find_entry(index);
    if (entry == NULL || nacre_check_dims(entry, dims)) return -1;
    return nacre_value(&entry->workspace, dims);
}

/* Reports an invalid table of trees, with the message of the reference interpreter. The operator `check_trees` in
 * dialect/ops stores the index of the reason as window = -1 - reason. */
static nacre_status refuse_trees(const char *check, const nacre_failure *f) {
    static const struct {
        const char *what, *why, *of;
    } reasons[] = {
        {"feature", "is out of range for", "features"},
        {"child", "is out of range for", "nodes"},
        {"child", "does not follow its parent, one of", "nodes"},
        {"leaf", "is out of range for", "leaves"},
        {"root", "is out of range for", "nodes"},
        {"depth", "does not suffice for paths of", "steps"},
        {"depth", "is out of range for", "nodes"},
        {"set", "is out of range for", "sets"},
        {"bound", "of its set is out of range for", "words"},
    };
    const int64_t tree = (f->number >> 32) - 1, node = (f->number & UINT32_MAX) - 1;
    const int64_t reason = -1 - f->window;
    char where[64] = "";
    int length = 0;
    if (tree >= 0) length = snprintf(where, sizeof where, "tree %" PRId64 ": ", tree);
    if (tree >= 0 && node >= 0) length -= 2;
    if (node >= 0)
        snprintf(where + length, sizeof where - (size_t)length, "%snode %" PRId64 ": ", length ? ", " : "", node);
    return nacre_fail(NACRE_OUT_OF_RANGE, "%s: %s%s %" PRId64 " %s %" PRId64 " %s", check, where, reasons[reason].what,
                      f->index, reasons[reason].why, f->size, reasons[reason].of);
}

/* Reports an index out of range, with the message of the reference interpreter. */
static nacre_status refuse_index(const char *check, const nacre_failure *f) {
    if (f->window < 0) return refuse_trees(check, f);
    if (f->window == 0)
        return nacre_fail(NACRE_OUT_OF_RANGE,
                          "%s: length %" PRId64 " is out of range for an axis of size %" PRId64 " (element %" PRId64
                          " of the lengths)",
                          check, f->index, f->size, f->number);
    if (f->window != 1)
        return nacre_fail(NACRE_OUT_OF_RANGE,
                          "%s: a window of %" PRId64 " that starts at %" PRId64
                          " is out of range for an axis of size %" PRId64,
                          check, f->window, f->index, f->size);
    return nacre_fail(NACRE_OUT_OF_RANGE,
                      "%s: index %" PRId64 " is out of range for an axis of size %" PRId64 " (element %" PRId64
                      " of the indices)",
                      check, f->index, f->size, f->number);
}

static nacre_status compute_kernels(nacre_session *session, const nacre_arguments *a, nacre_team *team) {
    const nacre_observer *observer = atomic_load_explicit(&session->observer, memory_order_acquire);
    nacre_failure failure = {.passed = session->passed + a->entry->first_check};
    const int64_t failed =
        observer && a->entry->observed_kernels
            ? nacre_run_observed(session, observer, a, team, &failure)
            : a->entry->kernels[session->level](a->inputs, a->outputs, a->workspace, session->weights, a->dims, team,
                                                &failure);
    return failed ? refuse_index(a->entry->checks[failed - 1], &failure) : NACRE_OK;
}

static nacre_status compute_on_device(const nacre_session *session, const nacre_entry *entry,
                                      const void *const *inputs, void *const *outputs, const int64_t *dims) {
    nacre_failure failure;
    int64_t failed;
    nacre_status status = nacre_device_call(session, entry, inputs, outputs, dims, &failure, &failed);
    return failed ? refuse_index(nacre_device_check(session, entry, failed), &failure) : status;
}

static nacre_status compute(nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                            void *const *outputs, char *workspace, int64_t bytes, const int64_t *dims) {
    if (session->device) return compute_on_device(session, entry, inputs, outputs, dims);
    const int64_t needed = nacre_value(&entry->workspace, dims);
    const int borrow = workspace == NULL && needed > 0;
    if (borrow) {
        if (!nacre_take_workspace(session))
            return nacre_fail(NACRE_BUSY, "the session's own workspace is in use by another call");
        workspace = session->workspace;
        bytes = session->workspace_bytes;
    }
    nacre_crew crew = nacre_crew_of(session->threads);
    nacre_status status = NACRE_OK;
    if (bytes < needed && needed > 0)
        status = nacre_fail(NACRE_INVALID, "entry `%s` needs a workspace of %" PRId64 " bytes, got %" PRId64,
                            entry->name, needed, bytes);
    else if ((uintptr_t)workspace % NACRE_ALIGNMENT != 0)
        status = nacre_fail(NACRE_INVALID, "entry `%s`: the workspace is not aligned to %d bytes", entry->name,
                            NACRE_ALIGNMENT);
    else
        status = compute_kernels(session, &(nacre_arguments){entry, inputs, outputs, workspace, dims},
                                 crew.helpers > 0 ? &crew.base : NULL);
    nacre_crew_leave(&crew);
    if (borrow) nacre_return_workspace(session);
    return status;
}

/* `compute` for an entry with states: it appends their memory to `inputs` and `outputs`. */
static nacre_status compute_kept(nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                                 void *const *outputs, char *workspace, int64_t bytes, const int64_t *dims) {
    nacre_status status = nacre_check_states(session, entry, dims);
    if (!status) status = nacre_take_states(session, entry->name);
    if (status) return status;
    const int32_t arguments = entry->argument_count, results = entry->result_count;
    const void *from[arguments + entry->state_count];
    void *to[results + entry->state_count];
    if (arguments) memcpy(from, inputs, (size_t)arguments * sizeof *from);
    if (results) memcpy(to, outputs, (size_t)results * sizeof *to);
    for (int32_t i = 0; i < entry->state_count; i++)
        from[arguments + i] = to[results + i] = session->states[entry->states[i]];
    status = compute(session, entry, from, to, workspace, bytes, dims);
    nacre_return_states(session);
    return status;
}

static nacre_status compute_any(nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                                void *const *outputs, char *workspace, int64_t bytes, const int64_t *dims) {
    return (entry->state_count ? compute_kept : compute)(session, entry, inputs, outputs, workspace, bytes, dims);
}

static nacre_status call(const nacre_call *frame) {
    if (frame == NULL || frame->session == NULL) return nacre_fail(NACRE_INVALID, "a call without a session");
    const nacre_entry *entry = nacre_find_entry(frame->entry);
    if (entry == NULL) return NACRE_INVALID;
    nacre_status status = nacre_check_dims(entry, frame->dims);
    if (status) return status;
    return compute_any(frame->session, entry, frame->inputs, frame->outputs, frame->workspace, frame->workspace_bytes,
                       frame->dims);
}

static int overlap(const nacre_tensor *a, const nacre_tensor *b) {
    const uintptr_t start_a = (uintptr_t)a->data, start_b = (uintptr_t)b->data;
    const uintptr_t bytes_a = (uintptr_t)nacre_tensor_bytes(a), bytes_b = (uintptr_t)nacre_tensor_bytes(b);
    return bytes_a && bytes_b && start_a < start_b + bytes_b && start_b < start_a + bytes_a;
}

static nacre_status check_outputs(const nacre_entry *entry, const nacre_tensor *inputs, const nacre_tensor *outputs,
                                  int32_t count, const int64_t *dims) {
    if (count != entry->result_count)
        return nacre_fail(NACRE_INVALID, "entry `%s` has %" PRId32 " result%s, got %" PRId32, entry->name,
                          entry->result_count, entry->result_count == 1 ? "" : "s", count);
    for (int32_t i = 0; i < count; i++) {
        const nacre_argument *result = &entry->results[i];
        nacre_status status = nacre_check_tensor(result, "result", &outputs[i]);
        if (!status) status = nacre_check_shape(entry, result, "result", &outputs[i], dims);
        if (!status) status = nacre_check_data(result, "result", &outputs[i]);
        if (status) return status;
        for (int32_t j = 0; j < entry->argument_count; j++)
            if (overlap(&outputs[i], &inputs[j]))
                return nacre_fail(NACRE_INVALID, "result `%s` overlaps argument `%s` in memory", result->name,
                                  entry->arguments[j].name);
        for (int32_t j = 0; j < i; j++)
            if (overlap(&outputs[i], &outputs[j]))
                return nacre_fail(NACRE_INVALID, "result `%s` overlaps result `%s` in memory", result->name,
                                  entry->results[j].name);
    }
    return NACRE_OK;
}

static nacre_status run(nacre_session *session, int32_t index, const nacre_tensor *inputs, int32_t input_count,
                        const nacre_tensor *outputs, int32_t output_count, void *workspace, int64_t bytes) {
    const nacre_entry *entry = nacre_find_entry(index);
    if (entry == NULL) return NACRE_INVALID;
    if (session == NULL) return nacre_fail(NACRE_INVALID, "a call without a session");
    if ((inputs == NULL && entry->argument_count) || (outputs == NULL && entry->result_count))
        return nacre_fail(NACRE_INVALID, "entry `%s`: no inputs, or no outputs", entry->name);
    /* The tables give the counts, so these arrays are small. They are on the stack because `run` allocates nothing. */
    int64_t dims[entry->dim_count + 1];
    const void *from[entry->argument_count + 1];
    void *to[entry->result_count + 1];
    nacre_status status = nacre_bind_inputs(session, entry, inputs, input_count, dims);
    for (int32_t i = 0; i < entry->argument_count && !status; i++) {
        status = nacre_check_data(&entry->arguments[i], "argument", &inputs[i]);
        from[i] = inputs[i].data;
    }
    if (!status) status = check_outputs(entry, inputs, outputs, output_count, dims);
    if (status) return status;
    for (int32_t i = 0; i < entry->result_count; i++) to[i] = outputs[i].data;
    return compute_any(session, entry, from, to, workspace, bytes, dims);
}

static int32_t session_device(const nacre_session *session) { return session ? nacre_device_number(session) : -1; }

static nacre_status session_stream(nacre_session *session, void *stream) {
    if (session == NULL) return nacre_fail(NACRE_INVALID, "a stream without a session");
    return nacre_device_stream(session, stream);
}

static const nacre_api api = {
    .version = NACRE_ABI_VERSION,
    .bytes = sizeof api,
    .describe = describe,
    .last_error = nacre_last_error,
    .find_entry = find_entry,
    .session_create = nacre_session_create,
    .session_destroy = nacre_session_destroy,
    .session_reserve = nacre_session_reserve,
    .bind = bind,
    .result_shape = result_shape,
    .workspace_bytes = workspace_bytes,
    .run = run,
    .call = call,
    .describe_calls = describe_calls,
    .observe = nacre_observe,
    .record = nacre_record_event,
    .session_bind = session_bind,
    .session_bytes = nacre_session_bytes,
    .session_fork = nacre_session_fork,
    .find_state = nacre_find_state,
    .state_shape = nacre_state_shape,
    .state_read = nacre_state_read,
    .state_write = nacre_state_write,
    .state_reset = nacre_state_reset,
    .session_device = session_device,
    .session_stream = session_stream,
    .state_data = nacre_state_data,
};

const nacre_api *nacre_offered_api(uint32_t version) { return version == NACRE_ABI_VERSION ? &api : NULL; }

__attribute__((visibility("default"))) const nacre_api *nacre_get_api(uint32_t version) {
    return nacre_offered_api(version);
}
