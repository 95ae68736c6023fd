/* Calls of entries on a GPU, with tensors in the memory of the host or of the device. */
#include <stdlib.h>

#include "../device.h"
#include "session.h"

#define ALIGNMENT 256
enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9 };
enum { MEMORY_OF_DEVICE = 2 };

size_t nacre_align(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* A tensor of a call: its address for the caller, its address for kernels, and whether they are the same. */
typedef struct buffer {
    const nacre_argument *tensor;
    void *given;
    driver_pointer at;
    size_t bytes;
    int is_on_device;
} buffer;

static size_t tensor_bytes(const nacre_argument *tensor, const int64_t *dims) {
    size_t bytes = (size_t)nacre_dtype_bytes(tensor->dtype);
    for (int32_t axis = 0; axis < tensor->rank; axis++) bytes *= (size_t)nacre_value(&tensor->shape[axis], dims);
    return bytes;
}

/* Determines whether a tensor is in the memory of the session's device. Fails if it is on another device. */
static int locate(nacre_device_session *own, buffer *of) {
    const nacre_driver *driver = own->program->driver;
    unsigned type = 0;
    int number = -1;
    const driver_pointer pointer = (driver_pointer)(uintptr_t)of->given;
    /* The driver returns an error for memory that it did not allocate. */
    if (of->bytes == 0 || driver->describe_pointer(&type, MEMORY_TYPE, pointer) || type != MEMORY_OF_DEVICE) return 1;
    if (!nacre_went_well(own, driver->describe_pointer(&number, DEVICE_ORDINAL, pointer), "locate a tensor")) return 0;
    if (number != own->program->device) {
        own->status = nacre_fail(NACRE_INVALID, "`%s` is in the memory of the device `cuda:%d`, the session computes on `cuda:%d`",
                                 of->tensor->name, number, own->program->device);
        return 0;
    }
    of->is_on_device = 1;
    of->at = pointer;
    return 1;
}

static int grow(nacre_device_session *own, size_t bytes) {
    const nacre_driver *driver = own->program->driver;
    if (bytes <= own->memory_bytes) return 1;
    if (!nacre_went_well(own, driver->synchronize(own->stream), "complete the calls before")) return 0;
    if (own->memory) driver->release(own->memory);
    own->memory = 0;
    own->memory_bytes = 0;
    if (!nacre_went_well(own, driver->allocate(&own->memory, bytes), "allocate memory for a call")) {
        own->memory = 0;
        return 0;
    }
    own->memory_bytes = bytes;
    return 1;
}

/* Locates the tensors of a call, and assigns memory of the session to those in host memory. */
static int find_buffers(nacre_device_session *own, const nacre_entry *entry, const void *const *inputs,
                       void *const *outputs, const int64_t *dims, buffer *buffers, size_t workspace) {
    const int32_t arguments = entry->argument_count, count = arguments + entry->result_count;
    size_t total = 0;
    for (int32_t i = 0; i < count; i++) {
        const nacre_argument *tensor = i < arguments ? &entry->arguments[i] : &entry->results[i - arguments];
        void *given = i < arguments ? (void *)(uintptr_t)inputs[i] : outputs[i - arguments];
        buffers[i] = (buffer){tensor, given, 0, tensor_bytes(tensor, dims), 0};
        if (!locate(own, &buffers[i])) return 0;
        if (!buffers[i].is_on_device) total += nacre_align(buffers[i].bytes);
    }
    if (!grow(own, total + workspace + nacre_align(sizeof(nacre_failure)))) return 0;
    driver_pointer at = own->memory;
    for (int32_t i = 0; i < count; i++) {
        if (buffers[i].is_on_device) continue;
        buffers[i].at = at;
        at += nacre_align(buffers[i].bytes);
    }
    own->record = at + workspace;
    return 1;
}

/* Runs the observed code of an entry. Results in memory of the caller's host are shown there, and states in the host's
 * copy, which is outdated during the call. */
static int64_t compute_watched(const nacre_session *session, const nacre_entry *entry, nacre_device_watch *watch,
                               const nacre_device_run *run, const buffer *results) {
    nacre_device_session *own = session->device;
    const int32_t count = entry->result_count, states = entry->state_count;
    void *shown[count + states + 1];
    size_t bytes = watch->workspace_bytes;
    for (int32_t i = 0; i < count; i++) bytes += results[i].is_on_device ? nacre_align(results[i].bytes) : 0;
    char *memory = calloc(1, bytes + 1);
    if (memory == NULL) {
        own->status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for the %zu bytes that an observer reads", bytes);
        return 0;
    }
    char *next = memory + watch->workspace_bytes;
    for (int32_t i = 0; i < count; i++) {
        shown[i] = results[i].is_on_device ? next : results[i].given;
        next += results[i].is_on_device ? nacre_align(results[i].bytes) : 0;
    }
    for (int32_t i = 0; i < states; i++) shown[count + i] = session->states[entry->states[i]];
    watch->event.outputs = shown;
    watch->event.workspace = memory;
    watch->output_count = count + states;
    const int64_t failed = nacre_run_watched(own, run, watch);
    free(memory);
    return failed;
}

/* Copies arguments to the device, runs the kernels, and queues copies of the results. Returns the number of the failed
 * check, or 0. `is_waiting` is set if queued copies use the caller's memory, so the call must wait for the stream. */
static int64_t compute(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                       void *const *outputs, const int64_t *dims, nacre_failure *failure, int *is_waiting) {
    nacre_device_session *own = session->device;
    const nacre_driver *driver = own->program->driver;
    const nacre_device_entry *code = &nacre_this_device_code.entries[entry - nacre_this_artifact.entries];
    const int32_t arguments = entry->argument_count, results = entry->result_count, states = entry->state_count;
    const size_t workspace = nacre_align((size_t)nacre_value(&code->workspace, dims));
    buffer buffers[arguments + results + 1];
    if (!find_buffers(own, entry, inputs, outputs, dims, buffers, workspace)) return 0;

    const void *from[arguments + states + 1];
    void *to[results + states + 1];
    *is_waiting = own->stream == own->own;
    for (int32_t i = 0; i < arguments + results; i++) {
        void *at = (void *)(uintptr_t)buffers[i].at;
        if (i < arguments) from[i] = at;
        else to[i - arguments] = at;
        if (buffers[i].is_on_device || buffers[i].bytes == 0) continue;
        *is_waiting = 1;
        if (i < arguments && !nacre_went_well(own, driver->to_device(buffers[i].at, buffers[i].given, buffers[i].bytes, own->stream),
                                              "receive an argument"))
            return 0;
    }
    for (int32_t i = 0; i < states; i++) {
        const driver_pointer at = nacre_place_state(session, entry->states[i]);
        if (own->status) return 0;
        from[arguments + i] = to[results + i] = (void *)(uintptr_t)at;
    }
    char *scratch = (char *)(uintptr_t)(own->record - workspace);
    uint64_t key[3 + entry->dim_count + arguments + results + 2 * states];
    int32_t words = 0;
    key[words++] = (uint64_t)(entry - nacre_this_artifact.entries);
    key[words++] = (uint64_t)(uintptr_t)scratch;
    key[words++] = own->record;
    for (int32_t i = 0; i < entry->dim_count; i++) key[words++] = (uint64_t)dims[i];
    for (int32_t i = 0; i < arguments + states; i++) key[words++] = (uint64_t)(uintptr_t)from[i];
    for (int32_t i = 0; i < results + states; i++) key[words++] = (uint64_t)(uintptr_t)to[i];
    const nacre_device_run run = {code->kernels[own->program->level], from, to, scratch, dims, failure, key, words};
    const nacre_observer *observer = atomic_load_explicit(&session->observer, memory_order_acquire);
    nacre_device_watch watch = {
        .observer = observer,
        .code = code->observed_kernels[own->program->level],
        .event = {.run = observer ? nacre_next_run() : 0,
                  .entry = (int32_t)(entry - nacre_this_artifact.entries),
                  .inputs = inputs,
                  .dims = dims},
        .workspace_bytes = workspace,
    };
    int64_t failed;
    if (observer == NULL) failed = nacre_run_graphs(own, &run);
    else if (observer->tell == nacre_record_event) failed = nacre_run_recorded(own, &run, &watch);
    else failed = compute_watched(session, entry, &watch, &run, buffers + arguments);
    for (int32_t i = arguments; i < arguments + results && !failed && !own->status; i++)
        if (!buffers[i].is_on_device && buffers[i].bytes)
            nacre_went_well(own, driver->to_host(buffers[i].given, buffers[i].at, buffers[i].bytes, own->stream),
                            "return a result");
    return failed;
}

nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed) {
    nacre_device_session *own = session->device;
    *failed = 0;
    nacre_status status = nacre_lock(own);
    if (status) return status;
    status = own->status = nacre_enter(own->program);
    if (!status) {
        int is_waiting = 1;
        *failed = compute(session, entry, inputs, outputs, dims, failure, &is_waiting);
        /* Copies in progress may use memory of the caller. */
        if (is_waiting || own->status) nacre_went_well(own, own->program->driver->synchronize(own->stream), "complete a call");
        status = own->status;
        nacre_exit(own->program);
    }
    pthread_mutex_unlock(&own->lock);
    if (status) *failed = 0;
    return status;
}
