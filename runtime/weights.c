/* The weights of a session: in the library, in a file beside it, or in a copy on huge pages. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "memory.h"

#define WRONG_FILE "; it is not the file of this artifact"

typedef struct {
    char *path;
    size_t capacity;
    int found;
} search;

/* Callback: stores the path of the object that contains this function. */
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
    const size_t expected = header + (size_t)nacre_this_artifact.file_bytes;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nacre_fail(NACRE_NO_WEIGHTS, "weights file `%s`: %s", path, strerror(errno));
    struct stat status;
    /* glibc has `fstat` as a symbol since 2.33 only, and artifacts need no more than 2.17. The structs are the same. */
    if (syscall(SYS_fstat, file, &status) != 0 || !S_ISREG(status.st_mode)) {
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
    if (nacre_this_artifact.file_bytes == 0) {
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
        return nacre_fail(NACRE_NO_WEIGHTS,
                          "the path of the artifact is unknown, so the path of its weights file must be given");
    return map_weights(session, own);
}

/* The copy of the embedded weights on huge pages, which all sessions that request huge pages share. */
static struct {
    pthread_mutex_t lock;
    int64_t sessions;
    void *start;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t copy_bytes(void) {
    return ((size_t)nacre_this_artifact.weight_bytes + NACRE_HUGE_PAGE - 1) / NACRE_HUGE_PAGE * NACRE_HUGE_PAGE;
}

/* Returns memory that is aligned to a huge page and advised to use huge pages; NULL if the system has none. */
static void *allocate_huge(size_t bytes) {
#ifdef MADV_HUGEPAGE
    char *start = mmap(NULL, bytes + NACRE_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    const size_t before = (NACRE_HUGE_PAGE - (uintptr_t)start % NACRE_HUGE_PAGE) % NACRE_HUGE_PAGE;
    if (before) munmap(start, before);
    if (before < NACRE_HUGE_PAGE) munmap(start + before + bytes, NACRE_HUGE_PAGE - before);
    if (madvise(start + before, bytes, MADV_HUGEPAGE) == 0) return start + before;
    munmap(start + before, bytes);
#endif
    (void)bytes;
    return NULL;
}

static void *copy_weights(const char *weights) {
    const size_t bytes = (size_t)nacre_this_artifact.weight_bytes;
    void *copy = allocate_huge(copy_bytes());
    if (copy == NULL) return NULL;
    memcpy(copy, weights, bytes);
    mprotect(copy, copy_bytes(), PROT_READ);
    return copy;
}

static void share_copy(nacre_session *session) {
    pthread_mutex_lock(&shared.lock);
    if (shared.sessions == 0) shared.start = copy_weights(session->weights);
    if (shared.start) {
        shared.sessions++;
        session->weights = shared.start;
        session->shares_copy = 1;
        /* The pages of the original can leave memory: a later read loads them from the file. */
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const uintptr_t original = (uintptr_t)nacre_this_artifact.weights;
        if (original % page == 0)
            madvise((void *)original, (size_t)nacre_this_artifact.weight_bytes / page * page, MADV_DONTNEED);
    }
    pthread_mutex_unlock(&shared.lock);
}

/* Replaces the mapping of a weights file by a copy for this session: another session may use another file. */
static void move_mapping(nacre_session *session) {
    void *copy = copy_weights(session->weights);
    if (copy == NULL) return;
    munmap(session->mapping, session->mapping_bytes);
    session->mapping = copy;
    session->mapping_bytes = copy_bytes();
    session->weights = copy;
}

nacre_status nacre_open_weights(nacre_session *session, const nacre_options *options) {
    nacre_status status = find_weights(session, options->weights);
    /* A device computes with a copy in its own memory. */
    if (status || !options->huge_pages || session->device || nacre_this_artifact.weight_bytes == 0) return status;
    if (session->mapping)
        move_mapping(session);
    else
        share_copy(session);
    return NACRE_OK;
}

void nacre_close_weights(nacre_session *session) {
    if (session->mapping) munmap(session->mapping, session->mapping_bytes);
    if (!session->shares_copy) return;
    pthread_mutex_lock(&shared.lock);
    if (--shared.sessions == 0) munmap(shared.start, copy_bytes());
    pthread_mutex_unlock(&shared.lock);
}
