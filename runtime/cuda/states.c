/* States on a GPU: they stay on the device between calls, and are copied to the host when it reads or writes one.
 *
 * All states are in one allocation, in host memory and on the device, at the same offsets. */
#include "../device.h"
#include "session.h"

driver_pointer nacre_place_state(const nacre_session *session, int32_t state) {
    nacre_device_session *own = session->device;
    const nacre_driver *driver = own->program->driver;
    const size_t bytes = session->state_bytes;
    if (!own->states && !nacre_went_well(own, driver->allocate(&own->states, bytes ? bytes : 1), "allocate memory for states")) {
        own->states = 0;
        return 0;
    }
    if (!own->is_state_here && bytes) {
        if (!nacre_went_well(own, driver->to_device(own->states, session->state_memory, bytes, own->stream),
                             "receive the states"))
            return 0;
        /* Waits: the host may write its copy as soon as this function returns. */
        if (!nacre_went_well(own, driver->synchronize(own->stream), "receive the states")) return 0;
    }
    own->is_state_here = 1;
    own->is_state_on_host = 0;
    return own->states + (driver_pointer)(session->states[state] - session->state_memory);
}

nacre_status nacre_device_fetch_states(const nacre_session *session, int is_changing) {
    nacre_device_session *own = session->device;
    if (own == NULL) return NACRE_OK;
    nacre_status status = nacre_lock(own);
    if (status) return status;
    if (!own->is_state_on_host) {
        status = own->status = nacre_enter(own->program);
        if (!status) {
            const nacre_driver *driver = own->program->driver;
            const size_t bytes = session->state_bytes;
            if (!bytes || nacre_went_well(own, driver->to_host(session->state_memory, own->states, bytes, own->stream),
                                          "return the states"))
                nacre_went_well(own, driver->synchronize(own->stream), "return the states");
            status = own->status;
            nacre_exit(own->program);
        }
        own->is_state_on_host = !status;
    }
    if (!status && is_changing) own->is_state_here = 0;
    pthread_mutex_unlock(&own->lock);
    return status;
}
