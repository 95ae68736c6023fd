/* Sessions: where the weights are, and a workspace that the session may own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define WRONG_FILE "; it is not the file of this artifact"

typedef struct {
    char *path;
    size_t capacity;
    int found;
} search;

/* Is our own code in this object? Then its path is ours. */
static int match_object(struct dl_phdr_info *info, size_t size, void *context) {
    search *wanted = context;
    (void)size;
    uintptr_t here = (uintptr_t)&nacre_this_artifact;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = (uintptr_t)info->dlpi_addr + (uintptr_t)segment->p_vaddr;
        if (segment->p_type != PT_LOAD || here < start || here - start >= segment->p_memsz) continue;
        int length = snprintf(wanted->path, wanted->capacity, "%s.safetensors", info->dlpi_name);
        wanted->found = length > 0 && (size_t)length < wanted->capacity;
        return 1;
    }
    return 0;
}

static uint64_t hash_bytes(const unsigned char *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static nacre_status map_weights(nacre_session *session, const char *path) {
    const size_t header = (size_t)nacre_this_artifact.header_bytes;
    const size_t expected = header + (size_t)nacre_this_artifact.weight_bytes;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: %s", path, strerror(errno));
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: not a regular file", path);
    }
    if ((uint64_t)status.st_size != expected) {
        close(file);
        return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: expected %zu bytes, got %lld" WRONG_FILE, path, expected,
                          (long long)status.st_size);
    }
    void *mapping = mmap(NULL, expected, PROT_READ, MAP_SHARED, file, 0);
    int reason = errno;
    close(file);
    if (mapping == MAP_FAILED) return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: %s", path, strerror(reason));
    uint64_t hash = hash_bytes(mapping, header);
    if (hash != nacre_this_artifact.header_hash) {
        munmap(mapping, expected);
        return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: expected header hash %016llx, got %016llx" WRONG_FILE,
                          path, (unsigned long long)nacre_this_artifact.header_hash, (unsigned long long)hash);
    }
    session->mapping = mapping;
    session->mapping_bytes = expected;
    session->weights = (const char *)mapping + header;
    return NACRE_OK;
}

static nacre_status find_weights(nacre_session *session, const char *path) {
    if (nacre_this_artifact.weights || nacre_this_artifact.weight_bytes == 0) {
        session->weights = nacre_this_artifact.weights;
        if (path == NULL) return NACRE_OK;
        return nacre_fail(NACRE_INVALID, "the artifact carries its own weights and takes no weights file, got `%s`",
                          path);
    }
    if (path) return map_weights(session, path);
    char own[4096];
    search wanted = {.path = own, .capacity = sizeof own, .found = 0};
    dl_iterate_phdr(match_object, &wanted);
    if (!wanted.found)
        return nacre_fail(NACRE_NO_WEIGHTS, "cannot tell where the artifact is; say where its weights file is");
    return map_weights(session, own);
}

nacre_status nacre_session_create(const nacre_options *options, nacre_session **result) {
    if (result == NULL) return nacre_fail(NACRE_INVALID, "no place for the session was given");
    *result = NULL;
    nacre_options given = {.bytes = sizeof given, .threads = 1, .weights = NULL};
    if (options) {
        if (options->bytes < sizeof given)
            return nacre_fail(NACRE_INVALID, "the options are %lu bytes, expected %zu or more",
                              (unsigned long)options->bytes, sizeof given);
        given = *options;
    }
    nacre_session *session = calloc(1, sizeof *session);
    if (session == NULL) return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a session");
    session->threads = given.threads ? given.threads : 1;
    atomic_flag_clear(&session->workspace_busy);
    nacre_status status = find_weights(session, given.weights);
    if (status) {
        free(session);
        return status;
    }
    *result = session;
    return NACRE_OK;
}

void nacre_session_destroy(nacre_session *session) {
    if (session == NULL) return;
    if (session->mapping) munmap(session->mapping, session->mapping_bytes);
    free(session->workspace);
    free(session);
}

nacre_status nacre_session_reserve(nacre_session *session, int64_t bytes) {
    if (session == NULL || bytes < 0 || bytes > INT64_MAX - NACRE_ALIGNMENT)
        return nacre_fail(NACRE_INVALID, "cannot reserve a workspace of %lld bytes%s", (long long)bytes,
                          session ? "" : " without a session");
    if (atomic_flag_test_and_set_explicit(&session->workspace_busy, memory_order_acquire))
        return nacre_fail(NACRE_BUSY, "the session's own workspace is in use by another call");
    nacre_status status = NACRE_OK;
    if (bytes > session->workspace_bytes) {
        size_t rounded = ((size_t)bytes + NACRE_ALIGNMENT - 1) / NACRE_ALIGNMENT * NACRE_ALIGNMENT;
        char *grown = aligned_alloc(NACRE_ALIGNMENT, rounded);
        if (grown == NULL) {
            status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a workspace of %lld bytes", (long long)bytes);
        } else {
            free(session->workspace);
            session->workspace = grown;
            session->workspace_bytes = bytes;
        }
    }
    atomic_flag_clear_explicit(&session->workspace_busy, memory_order_release);
    return status;
}
