/* Sessions that compute on a device. An artifact with code for devices has the functions of cuda/, others those of
 * no_device.c, which know the CPU alone. */
#ifndef NACRE_DEVICE_H
#define NACRE_DEVICE_H

#include "internal.h"

/* Chooses the device that the options name; `session->device` stays NULL if the CPU computes. */
nacre_status nacre_device_open(nacre_session *session, const nacre_options *options);
void nacre_device_close(nacre_session *session);

/* Calls an entry on the session's device, with tensors in the memory of the host. */
nacre_status nacre_device_call(const nacre_session *session, const nacre_entry *entry, const void *const *inputs,
                               void *const *outputs, const int64_t *dims, nacre_failure *failure, int64_t *failed);

/* The operator that the check with this number belongs to. */
const char *nacre_device_check(const nacre_session *session, const nacre_entry *entry, int64_t failed);

#endif
