/* States of a session: their memory, and its lock, which one call holds at a time. */
#ifndef NACRE_STATE_H
#define NACRE_STATE_H

#include "internal.h"

nacre_status nacre_states_open(nacre_session *session, const nacre_options *options);
void nacre_states_close(nacre_session *session);

/* Locks the states of a session. Fails with NACRE_BUSY while a call, or a function that reads or writes states, uses
 * them. `who` begins the message. */
nacre_status nacre_take_states(nacre_session *session, const char *who);
void nacre_return_states(nacre_session *session);

/* Copies the states of a session to a session with the same dims. */
nacre_status nacre_copy_states(nacre_session *source, nacre_session *target);

/* The functions of `nacre_api` with these names; ABI.md specifies them. */
int64_t nacre_session_bytes(const int64_t *dims, int32_t count);
int32_t nacre_find_state(const char *name);
int32_t nacre_state_shape(const nacre_session *session, int32_t state, int64_t *shape, int32_t capacity);
nacre_status nacre_state_read(nacre_session *session, int32_t state, void *data, int64_t bytes);
nacre_status nacre_state_write(nacre_session *session, int32_t state, const void *data, int64_t bytes);
nacre_status nacre_state_reset(nacre_session *session, int32_t state);
nacre_status nacre_state_data(nacre_session *session, int32_t state, void **data);

#endif
