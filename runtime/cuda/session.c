/* Calls of entries on a GPU, from tensors of the host to tensors of the host. */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../device.h"

#define ALIGNMENT 256
enum { NON_BLOCKING = 1 };

static const char *chosen_name(const nacre_options *options) {
    const char *name = options->device;
    if (name == NULL || *name == '\0') name = getenv("NACRE_DEVICE");
    return name == NULL || *name == '\0' ? "auto" : name;
}

/* Reads `cuda` or `cuda:` and a number; returns -1 for anything else. */
static int device_number(const char *name) {
    if (strcmp(name, "cuda") == 0) return 0;
    if (strncmp(name, "cuda:", 5) != 0) return -1;
    char *end;
    const long long number = strtoll(name + 5, &end, 10);
    return name[5] == '\0' || *end != '\0' || number < 0 || number > 1023 ? -1 : (int)number;
}

static nacre_status open_on(nacre_session *session, int number) {
    nacre_device_session *made = calloc(1, sizeof *made);
    if (made == NULL) return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
    nacre_status status = nacre_take_program(number, &made->program);
    if (status) {
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    made->process = getpid();
    session->device = made;
    status = nacre_enter(made->program);
    if (!status) {
        const int result = made->program->driver->create_stream(&made->stream, NON_BLOCKING);
        if (result) status = nacre_driver_failed(made->program->driver, result, "create a stream");
        nacre_exit(made->program);
    }
    if (status) nacre_device_close(session);
    return status;
}

nacre_status nacre_device_open(nacre_session *session, const nacre_options *options) {
    const char *name = chosen_name(options);
    const int has_cpu = nacre_this_artifact.level_count > 0, is_auto = strcmp(name, "auto") == 0;
    session->device = NULL;
    if (strcmp(name, "cpu") == 0) {
        if (has_cpu) return NACRE_OK;
        return nacre_fail(NACRE_NO_DEVICE, "the artifact has no code for a CPU");
    }
    const int number = is_auto ? 0 : device_number(name);
    if (number < 0) return nacre_fail(NACRE_INVALID, "`%s` is none of `auto`, `cpu`, `cuda` and `cuda:NUMBER`", name);
    const nacre_status status = open_on(session, number);
    return status == NACRE_NO_DEVICE && is_auto && has_cpu ? NACRE_OK : status;
}

void nacre_device_close(nacre_session *session) {
    nacre_device_session *own = session->device;
    if (own == NULL) return;
    session->device = NULL;
    if (own->process != getpid()) return; /* the device belongs to the process that this one was forked from */
    const nacre_driver *driver = own->program->driver;
    if (driver->push_context(own->program->context) == 0) {
        if (own->stream) driver->destroy_stream(own->stream);
        if (own->memory) driver->release(own->memory);
        nacre_exit(own->program);
    }
    nacre_leave_program(own->program);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

static size_t align(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t tensor_bytes(const nacre_argument *tensor, const int64_t *dims) {
    size_t bytes = (size_t)nacre_dtype_bytes(tensor->dtype);
    for (int32_t axis = 0; axis < tensor->rank; axis++) bytes *= (size_t)nacre_value(&tensor->shape[axis], dims);
    return bytes;
}

/* The sizes of all tensors of a call in the order of its pointers: arguments, results, states. */
static size_t measure(const nacre_session *session, const nacre_entry *entry, const int64_t *dims, size_t *bytes) {
    int32_t n = 0;
    size_t total = 0;
    for (int32_t i = 0; i < entry->argument_count; i++) bytes[n++] = tensor_bytes(&entry->arguments[i], dims);
    for (int32_t i = 0; i < entry->result_count; i++) bytes[n++] = tensor_bytes(&entry->results[i], dims);
    for (int32_t i = 0; i < entry->state_count; i++)
        bytes[n++] = tensor_bytes(&nacre_this_artifact.states[entry->states[i]].tensor, session->dims);
    for (int32_t i = 0; i < n; i++) total += align(bytes[i]);
    return total;
}

int nacre_went_well(nacre_device_session *own, int result, const char *action) {
    if (result && !own->status) own->status = nacre_driver_failed(own->program->driver, result, action);
    return own->status == NACRE_OK;
}

static int grow(nacre_device_session *own, size_t bytes) {
    const nacre_driver *driver = own->program->driver;
    if (bytes <= own->memory_bytes) return 1;
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

/* Copies what the kernels read, runs them, and begins to copy what they wrote. */
static int64_t compute(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                       void *const *outputs, const int64_t *dims, nacre_failure *failure) {
    nacre_device_session *own = session->device;
    const nacre_driver *driver = own->program->driver;
    const nacre_device_entry *code = &nacre_this_device_code.entries[entry - nacre_this_artifact.entries];
    const int32_t arguments = entry->argument_count, results = entry->result_count, states = entry->state_count;
    size_t bytes[arguments + results + states + 1];
    const size_t tensors = measure(session, entry, dims, bytes);
    const size_t workspace = align((size_t)nacre_value(&code->workspace, dims));
    if (!grow(own, tensors + workspace + align(sizeof(nacre_failure)))) return 0;

    const void *from[arguments + states + 1];
    void *to[results + states + 1];
    driver_pointer at = own->memory;
    for (int32_t i = 0; i < arguments + results + states; i++) {
        void *place = (void *)(uintptr_t)at;
        if (i < arguments) from[i] = place;
        else if (i < arguments + results) to[i - arguments] = place;
        else from[i - results] = to[i - arguments] = place;
        const int is_read = i < arguments || i >= arguments + results;
        const void *host = i < arguments ? inputs[i] : is_read ? inputs[i - results] : NULL;
        if (is_read && bytes[i] &&
            !nacre_went_well(own, driver->to_device(at, host, bytes[i], own->stream), "receive an argument"))
            return 0;
        at += align(bytes[i]);
    }
    char *scratch = (char *)(uintptr_t)at;
    own->record = at + workspace;
    const nacre_kernel run = code->kernels[own->program->level];
    const int64_t failed = run(from, to, scratch, (const char *)(uintptr_t)own->program->weights, dims, &own->team, failure);
    for (int32_t i = 0; i < results + states && !failed && !own->status; i++)
        if (bytes[arguments + i])
            nacre_went_well(own, driver->to_host(outputs[i], (driver_pointer)(uintptr_t)to[i], bytes[arguments + i],
                                                 own->stream),
                            "return a result");
    return failed;
}

nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed) {
    nacre_device_session *own = session->device;
    *failed = 0;
    if (own->process != getpid())
        return nacre_fail(NACRE_DEVICE_FAILED, "a session on a device cannot be used after a fork");
    pthread_mutex_lock(&own->lock);
    nacre_status status = own->status = nacre_enter(own->program);
    if (!status) {
        *failed = compute(session, entry, inputs, outputs, dims, failure);
        /* Copies in progress use memory of the caller. */
        const int result = own->program->driver->synchronize(own->stream);
        nacre_went_well(own, result, "complete a call");
        status = own->status;
        nacre_exit(own->program);
    }
    pthread_mutex_unlock(&own->lock);
    if (status) *failed = 0;
    return status;
}

const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed) {
    if (session->device == NULL) return entry->checks[failed - 1];
    return nacre_this_device_code.entries[entry - nacre_this_artifact.entries].checks[failed - 1];
}
