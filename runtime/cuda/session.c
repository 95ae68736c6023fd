/* Sessions on a GPU: selects the device and the stream of calls. */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../device.h"

/* Work in a blocking stream waits for earlier work of the process in the default stream. */
enum { BLOCKING = 0 };

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

static nacre_status open_on(nacre_session *session, int number, const nacre_options *options) {
    nacre_device_session *made = calloc(1, sizeof *made);
    if (made == NULL) return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
    nacre_status status = nacre_take_program(number, &made->program);
    if (status) {
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    made->process = getpid();
    made->is_state_on_host = 1;
    session->device = made;
    status = nacre_enter(made->program);
    if (!status) {
        const int result = made->program->driver->create_stream(&made->own, BLOCKING);
        made->stream = made->own;
        if (!result && !options->no_graphs) {
            made->graphs = nacre_create_graphs();
            if (made->graphs == NULL) status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
        }
        if (result) status = nacre_driver_failed(made->program->driver, result, "create a stream");
        nacre_exit(made->program);
    }
    if (status) nacre_device_close(session);
    return status;
}

nacre_status nacre_device_open(nacre_session *session, const nacre_options *options) {
    const char *name = chosen_name(options);
    const int has_cpu = nacre_this_artifact.level_count > 0, is_auto = strcmp(name, "auto") == 0;
    if (strcmp(name, "cpu") == 0) {
        if (has_cpu) return NACRE_OK;
        return nacre_fail(NACRE_NO_DEVICE, "the artifact has no code for a CPU");
    }
    const int number = is_auto ? 0 : device_number(name);
    if (number < 0) return nacre_fail(NACRE_INVALID, "`%s` is none of `auto`, `cpu`, `cuda` and `cuda:NUMBER`", name);
    const nacre_status status = open_on(session, number, options);
    return status == NACRE_NO_DEVICE && is_auto && has_cpu ? NACRE_OK : status;
}

nacre_status nacre_device_load_weights(const nacre_session *session) {
    const nacre_device_code *code = &nacre_this_device_code;
    if (session->device == NULL || code->weights || code->weight_bytes == 0) return NACRE_OK;
    return nacre_load_weights(session->device->program, session->weights + code->weight_offset);
}

void nacre_device_close(nacre_session *session) {
    nacre_device_session *own = session->device;
    if (own == NULL) return;
    if (own->process != getpid()) return; /* in the child of a fork, the device belongs to the parent */
    const nacre_driver *driver = own->program->driver;
    if (driver->push_context(own->program->context) == 0) {
        if (own->stream != own->own) driver->synchronize(own->stream);
        nacre_release_graphs(own);
        if (own->own) driver->destroy_stream(own->own);
        if (own->memory) driver->release(own->memory);
        if (own->states) driver->release(own->states);
        nacre_exit(own->program);
    }
    nacre_leave_program(own->program);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

nacre_status nacre_lock(nacre_device_session *session) {
    if (session->process != getpid())
        return nacre_fail(NACRE_DEVICE_FAILED, "a session on a device cannot be used after a fork");
    pthread_mutex_lock(&session->lock);
    return NACRE_OK;
}

nacre_status nacre_device_stream(nacre_session *session, void *stream) {
    nacre_device_session *own = session->device;
    if (own == NULL) return nacre_fail(NACRE_INVALID, "the session computes on the CPU, which has no streams");
    nacre_status status = nacre_lock(own);
    if (status) return status;
    status = nacre_enter(own->program);
    if (!status) {
        const driver_stream chosen = stream ? (driver_stream)stream : own->own;
        /* Calls in progress use the memory of the session. */
        const int result = chosen == own->stream ? 0 : own->program->driver->synchronize(own->stream);
        if (result) status = nacre_driver_failed(own->program->driver, result, "complete the calls in a stream");
        else own->stream = chosen;
        nacre_exit(own->program);
    }
    pthread_mutex_unlock(&own->lock);
    return status;
}

int32_t nacre_device_number(const nacre_session *session) {
    return session->device ? session->device->program->device : -1;
}

const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed) {
    if (session->device == NULL) return entry->checks[failed - 1];
    return nacre_this_device_code.entries[entry - nacre_this_artifact.entries].checks[failed - 1];
}
