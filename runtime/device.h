/* Sessions that compute on a device. cuda/ implements these functions for artifacts with code for GPUs; no_device.c
 * implements them for all others, where the CPU computes. */
#ifndef NACRE_DEVICE_H
#define NACRE_DEVICE_H

#include "internal.h"

/* Chooses the device that the options name; `session->device` stays NULL if the CPU computes. */
nacre_status nacre_device_open(nacre_session *session, const nacre_options *options);
void nacre_device_close(nacre_session *session);

/* Copies the session's weights to its device, unless another session has copied them. Call nacre_open_weights first. */
nacre_status nacre_device_load_weights(const nacre_session *session);

/* The number of the session's device, or -1 if the CPU computes. */
int32_t nacre_device_number(const nacre_session *session);

/* Selects the stream of calls: the caller's, or NULL for the session's own. */
nacre_status nacre_device_stream(nacre_session *session, void *stream);

/* Makes the copy of all states in host memory current. With `is_changing`, the copy on the device becomes outdated. */
nacre_status nacre_device_fetch_states(const nacre_session *session, int is_changing);

/* Calls an entry on the session's device, with tensors in the memory of the host or of the device. It waits for the
 * call, unless all tensors are on the device and the stream is the caller's. */
nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed);

/* Returns the description of a failed check, by its number from 1. */
const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed);

#endif
