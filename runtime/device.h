/* Sessions that compute on a device. An artifact with code for devices has the functions of cuda/, others those of
 * no_device.c, which know the CPU alone. */
#ifndef NACRE_DEVICE_H
#define NACRE_DEVICE_H

#include "internal.h"

/* Chooses the device that the options name; `session->device` stays NULL if the CPU computes. */
nacre_status nacre_device_open(nacre_session *session, const nacre_options *options);
void nacre_device_close(nacre_session *session);

/* Copies external weights to the session's device, unless another session did. They are open. */
nacre_status nacre_device_load_weights(const nacre_session *session);

/* The number of the session's device, or -1 if the CPU computes. */
int32_t nacre_device_number(const nacre_session *session);

/* Selects the stream of calls: the caller's, or NULL for the session's own. */
nacre_status nacre_device_stream(nacre_session *session, void *stream);

/* Makes the host's copy of all states the current one; afterwards it is the only one if the host is changing it. */
nacre_status nacre_device_fetch_states(const nacre_session *session, int is_changing);

/* Calls an entry on the session's device, with tensors in the memory of the host or of the device. It waits for the
 * call, unless all tensors are on the device and the stream is the caller's. */
nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed);

/* The operator that the check with this number belongs to. */
const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed);

#endif
