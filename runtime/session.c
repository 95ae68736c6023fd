/* Creates and destroys sessions, and reserves the workspace that a session owns. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "internal.h"
#include "memory.h"
#include "state.h"
#include "workers.h"

/* The size of nacre_options in the first release: the least that a caller passes. */
#define FIRST_OPTIONS (offsetof(nacre_options, weights) + sizeof(char *))

/* Stores the default number of threads of a session: NACRE_THREADS, at most the number of CPUs; else that number. */
static nacre_status default_threads(uint32_t cpus, uint32_t *threads) {
    const char *text = getenv("NACRE_THREADS");
    *threads = cpus;
    if (text == NULL || *text == 0) return NACRE_OK;
    char *end;
    const long long said = strtoll(text, &end, 10);
    if (*end != 0 || said < 1)
        return nacre_fail(NACRE_INVALID, "the variable NACRE_THREADS is `%s`, not a number of threads", text);
    *threads = said < cpus ? (uint32_t)said : cpus;
    return NACRE_OK;
}

nacre_status nacre_read_options(const nacre_options *options, nacre_options *given) {
    memset(given, 0, sizeof *given);
    if (options == NULL) return NACRE_OK;
    if (options->bytes < FIRST_OPTIONS)
        return nacre_fail(NACRE_INVALID, "the options are %lu bytes, expected %zu or more",
                          (unsigned long)options->bytes, FIRST_OPTIONS);
    /* Fields that an older caller lacks keep their defaults; unknown fields of a newer caller are ignored. */
    memcpy(given, options, options->bytes < sizeof *given ? options->bytes : sizeof *given);
    return NACRE_OK;
}

nacre_status nacre_session_create(const nacre_options *options, nacre_session **result) {
    if (result == NULL) return nacre_fail(NACRE_INVALID, "the pointer to the new session is NULL");
    *result = NULL;
    nacre_options given;
    nacre_status wrong = nacre_read_options(options, &given);
    if (wrong) return wrong;
    nacre_session *session = calloc(1, sizeof *session + (size_t)nacre_this_artifact.check_count);
    if (session == NULL) return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
    nacre_status unfit = nacre_device_open(session, &given);
    if (!unfit && session->device == NULL) unfit = nacre_choose_level(&session->level);
    if (unfit) {
        free(session);
        return unfit;
    }
    int32_t cpus = 1;
    nacre_status status = nacre_library_open(&cpus);
    if (status) {
        nacre_device_close(session);
        free(session);
        return status;
    }
    const uint32_t most = cpus < NACRE_MOST_THREADS ? (uint32_t)cpus : NACRE_MOST_THREADS;
    session->threads = given.threads < most ? given.threads : most;
    if (session->threads == 0) status = default_threads(most, &session->threads);
    if (!status) status = nacre_open_weights(session, &given);
    if (!status) {
        status = nacre_device_load_weights(session);
        if (!status) status = nacre_states_open(session, &given);
        if (status) nacre_close_weights(session);
    }
    if (status) {
        nacre_library_close();
        nacre_device_close(session);
        free(session);
        return status;
    }
    *result = session;
    return NACRE_OK;
}

void nacre_session_destroy(nacre_session *session) {
    if (session == NULL) return;
    nacre_library_close();
    nacre_device_close(session);
    nacre_close_weights(session);
    nacre_states_close(session);
    free(session->workspace);
    free(session);
}

nacre_status nacre_session_fork(nacre_session *source, const nacre_options *options, nacre_session **result) {
    if (result == NULL) return nacre_fail(NACRE_INVALID, "the pointer to the new session is NULL");
    *result = NULL;
    if (source == NULL || source->states == NULL)
        return nacre_fail(NACRE_INVALID, "cannot fork without a session that has states");
    nacre_options given;
    nacre_status status = nacre_read_options(options, &given);
    if (status) return status;
    given.bytes = sizeof given;
    given.dims = source->dims;
    given.dim_count = (uint32_t)nacre_this_artifact.session_dim_count;
    nacre_session *made = NULL;
    status = nacre_session_create(&given, &made);
    if (status) return status;
    status = nacre_copy_states(source, made);
    if (status) {
        nacre_session_destroy(made);
        return status;
    }
    *result = made;
    return NACRE_OK;
}

int nacre_take_workspace(nacre_session *session) {
    const int own = nacre_process_number();
    int user = 0;
    /* A lock that a call in the parent of a fork holds does not count here: that call goes on in the parent. */
    while (user != own)
        if (atomic_compare_exchange_weak(&session->workspace_user, &user, own)) return 1;
    return 0;
}

void nacre_return_workspace(nacre_session *session) { atomic_store(&session->workspace_user, 0); }

nacre_status nacre_session_reserve(nacre_session *session, int64_t bytes) {
    if (session == NULL || bytes < 0 || bytes > INT64_MAX - NACRE_ALIGNMENT)
        return nacre_fail(NACRE_INVALID, "cannot reserve a workspace of %lld bytes%s", (long long)bytes,
                          session ? "" : " without a session");
    if (!nacre_take_workspace(session))
        return nacre_fail(NACRE_BUSY, "the session's own workspace is in use by another call");
    nacre_status status = NACRE_OK;
    if (bytes > session->workspace_bytes) {
        char *grown = nacre_allocate((size_t)bytes);
        if (grown == NULL) {
            status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a workspace of %lld bytes", (long long)bytes);
        } else {
            free(session->workspace);
            session->workspace = grown;
            session->workspace_bytes = bytes;
        }
    }
    nacre_return_workspace(session);
    return status;
}
