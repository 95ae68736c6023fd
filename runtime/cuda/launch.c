/* The functions that entries call while they run. After an error of the device, each does nothing until the entry returns. */
#include <limits.h>
#include <string.h>

#include "session.h"

static int is_running(const nacre_device_session *session) { return session->status == NACRE_OK; }

/* Reads memory of the device, once the kernels before are through. */
void nacre_device_read(nacre_device_session *session, void *target, const void *source, int64_t bytes) {
    const nacre_driver *driver = session->program->driver;
    if (!is_running(session)) return;
    const driver_pointer from = (driver_pointer)(uintptr_t)source;
    if (nacre_went_well(session, driver->to_host(target, from, (size_t)bytes, session->stream), "return a number"))
        nacre_went_well(session, driver->synchronize(session->stream), "complete a kernel");
}

/* The value after an error ends a loop and passes a check. */
int8_t nacre_device_load_i8(nacre_device_session *session, const void *pointer) {
    int8_t value = 0;
    nacre_device_read(session, &value, pointer, sizeof value);
    return is_running(session) ? value : 0;
}

int64_t nacre_device_load_i64(nacre_device_session *session, const void *pointer) {
    int64_t value = -1;
    nacre_device_read(session, &value, pointer, sizeof value);
    return is_running(session) ? value : -1;
}

void nacre_device_store(nacre_device_session *session, int64_t value, void *pointer) {
    const nacre_driver *driver = session->program->driver;
    if (!is_running(session)) return;
    const driver_pointer target = (driver_pointer)(uintptr_t)pointer;
    /* The copy of so few bytes of pageable memory is over when the function returns. */
    nacre_went_well(session, driver->to_device(target, &value, sizeof value, session->stream), "receive a number");
}

void nacre_device_copy(nacre_device_session *session, void *target, const void *source, int64_t bytes) {
    const nacre_driver *driver = session->program->driver;
    if (!is_running(session) || bytes == 0) return;
    const driver_pointer to = (driver_pointer)(uintptr_t)target, from = (driver_pointer)(uintptr_t)source;
    nacre_went_well(session, driver->copy(to, from, (size_t)bytes, session->stream), "copy a tensor");
}

void *nacre_device_record(nacre_device_session *session) { return (void *)(uintptr_t)session->record; }

void nacre_device_launch(nacre_device_session *session, int64_t number, int64_t blocks, void **arguments) {
    const nacre_program *program = session->program;
    const nacre_images *images = nacre_this_device_code.levels[program->level].images;
    if (!is_running(session) || blocks == 0) return;
    const nacre_kernel_image *image = images->kernels[number];
    if (blocks > INT_MAX) {
        session->status = nacre_fail(NACRE_DEVICE_FAILED, "kernel `%s` needs %lld blocks, more than a device has",
                                     image->name, (long long)blocks);
        return;
    }
    const int result = program->driver->launch(program->functions[number], (unsigned)blocks, 1, 1,
                                               (unsigned)image->threads, 1, 1, 0, session->stream, arguments, NULL);
    if (result == 0) return;
    const char *text = NULL;
    program->driver->describe_error(result, &text);
    session->status = nacre_fail(NACRE_DEVICE_FAILED, "the device could not launch `%s` with %lld blocks: %s (CUDA error %d)",
                                 image->name, (long long)blocks, text ? text : "unknown", result);
}
