/* Results of driver calls in a session, and reads of device memory. */
#include "session.h"

int nacre_went_well(nacre_device_session *own, int result, const char *action) {
    if (result && !own->status) own->status = nacre_driver_failed(own->program->driver, result, action);
    return own->status == NACRE_OK;
}

void nacre_read_memory(nacre_device_session *session, void *target, const void *source, int64_t bytes) {
    const nacre_driver *driver = session->program->driver;
    const driver_pointer from = (driver_pointer)(uintptr_t)source;
    if (nacre_went_well(session, driver->to_host(target, from, (size_t)bytes, session->stream), "return a number"))
        nacre_went_well(session, driver->synchronize(session->stream), "complete a kernel");
}

int64_t nacre_read_number(nacre_device_session *session, const void *pointer, int bytes) {
    int64_t word = 0;
    int8_t byte = 0;
    nacre_read_memory(session, bytes == 1 ? (void *)&byte : &word, pointer, bytes);
    return bytes == 1 ? byte : word;
}
