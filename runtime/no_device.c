/* The functions of device.h for an artifact without code for GPUs: the CPU computes. */
#include <string.h>

#include "device.h"

nacre_status nacre_device_open(nacre_session *session, const nacre_options *options) {
    session->device = NULL;
    const char *name = options->device; /* NACRE_DEVICE is ignored: it is for artifacts with code for GPUs */
    if (name == NULL || *name == '\0' || strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0) return NACRE_OK;
    return nacre_fail(NACRE_NO_DEVICE, "the artifact has no code for the device `%s`: it was compiled for CPUs alone",
                      name);
}

nacre_status nacre_device_load_weights(const nacre_session *session) {
    (void)session;
    return NACRE_OK;
}

void nacre_device_close(nacre_session *session) { (void)session; }

nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed) {
    (void)session, (void)entry, (void)inputs, (void)outputs, (void)dims, (void)failure, (void)failed;
    return nacre_fail(NACRE_NO_DEVICE, "the artifact has no code for a device");
}

const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed) {
    (void)session;
    return entry->checks[failed - 1];
}

int32_t nacre_device_number(const nacre_session *session) {
    (void)session;
    return -1;
}

nacre_status nacre_device_stream(nacre_session *session, void *stream) {
    (void)session, (void)stream;
    return nacre_fail(NACRE_INVALID, "the session computes on the CPU, which has no streams");
}

nacre_status nacre_device_fetch_states(const nacre_session *session, int is_changing) {
    (void)session, (void)is_changing;
    return NACRE_OK;
}
