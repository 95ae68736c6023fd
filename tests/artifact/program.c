/* Calls two artifacts through their headers, prints what happens, and counts allocations. glibc only. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zoo.h"
#include "second.h"

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
static atomic_int allocations;

static void *counted(void *memory) {
    allocations++;
    return memory;
}

void *malloc(size_t size) { return counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void *realloc(void *old, size_t size) { return counted(__libc_realloc(old, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }

static const nacre_api *api;
static nacre_session *session;
static _Alignas(NACRE_ALIGNMENT) char workspace[4096];

static void report(const char *what, nacre_status status) {
    printf("%s: %d%s%s\n", what, (int)status, status ? " " : "", status ? api->last_error() : "");
}

static nacre_tensor tensor(void *data, nacre_dtype dtype, int32_t rank, const int64_t *shape) {
    return (nacre_tensor){.data = data, .shape = shape, .strides = NULL, .dtype = dtype, .rank = rank};
}

static void *wait_on_session(void *result) {
    float x = 3, y = 0;
    *(nacre_status *)result = zoo_wait(session, &x, &y, NULL, 0);
    return NULL;
}

int main(void) {
    api = zoo_api();
    printf("version: %u, size as expected: %d\n", (unsigned)api->version, api->bytes == sizeof *api);
    printf("other version: %d\n", nacre_get_api_zoo(2) == NULL);
    printf("distinct: %d\n", zoo_api() != second_api());
    printf("no error yet: \"%s\"\n", api->last_error());
    int at_start = allocations;
    report("create", api->session_create(NULL, &session));
    printf("allocations to create a session: %d\n", allocations - at_start);
    nacre_session *other = NULL;
    report("create second", second_api()->session_create(NULL, &other));

    int before = allocations;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {10, 10, 10, 10, 10, 10}, sum[6] = {0}, first = 0;
    printf("workspace: %lld\n", (long long)zoo_add_workspace(2, 3));
    report("add", zoo_add(session, 2, 3, x, y, sum, workspace, sizeof workspace));
    printf("sum: %g %g %g\n", sum[0], sum[1], sum[5]);
    report("constant", zoo_constant(session, &first, NULL, 0));
    printf("first: %g\n", first);
    report("constant of second", second_constant(other, &first, NULL, 0));
    printf("first of second: %g\n", first);

    const int64_t shape[2] = {2, 3};
    nacre_tensor in[2] = {tensor(x, NACRE_F32, 2, shape), tensor(y, NACRE_F32, 2, shape)};
    nacre_tensor out[1] = {tensor(sum, NACRE_F32, 2, shape)};
    int32_t add = api->find_entry("add");
    memset(sum, 0, sizeof sum);
    report("run", api->run(session, add, in, 2, out, 1, workspace, sizeof workspace));
    printf("sum: %g %g %g\n", sum[0], sum[1], sum[5]);
    int64_t dims[2] = {0, 0}, found[2] = {0, 0};
    report("bind", api->bind(add, in, 2, dims));
    printf("dims: %lld %lld\n", (long long)dims[0], (long long)dims[1]);
    int32_t rank = api->result_shape(add, 0, dims, found, 2);
    printf("result: rank %d, %lld %lld\n", (int)rank, (long long)found[0], (long long)found[1]);
    rank = api->result_shape(add, 0, dims, found, 1);
    printf("allocations in calls: %d\n", allocations - before);

    printf("no such entry: %d %s\n", (int)api->find_entry("none"), api->last_error());
    report("no session", zoo_add(NULL, 2, 3, x, y, sum, workspace, sizeof workspace));
    report("dim", zoo_add(session, 65, 3, x, y, sum, workspace, sizeof workspace));
    printf("workspace of a wrong dim: %lld\n", (long long)zoo_add_workspace(2, -1));
    report("small workspace", zoo_add(session, 2, 3, x, y, sum, workspace, 23));
    report("no workspace", zoo_add(session, 2, 3, x, y, sum, NULL, 0));
    report("unaligned workspace", zoo_add(session, 2, 3, x, y, sum, workspace + 4, 4000));
    report("entry", api->run(session, 99, in, 2, out, 1, workspace, sizeof workspace));
    report("few inputs", api->run(session, add, in, 1, out, 1, workspace, sizeof workspace));
    report("no outputs", api->run(session, add, in, 2, out, 0, workspace, sizeof workspace));
    out[0].data = x;
    report("overlap", api->run(session, add, in, 2, out, 1, workspace, sizeof workspace));
    out[0].data = NULL;
    report("no data", api->run(session, add, in, 2, out, 1, workspace, sizeof workspace));
    out[0].data = (char *)sum + 1;
    report("unaligned", api->run(session, add, in, 2, out, 1, workspace, sizeof workspace));
    const int64_t turned[2] = {3, 2}, negative[2] = {-1, 3}, strides[2] = {1, 2};
    out[0] = tensor(sum, NACRE_F32, 2, turned);
    report("result shape", api->run(session, add, in, 2, out, 1, workspace, sizeof workspace));
    in[1].shape = negative;
    report("negative", api->bind(add, in, 2, dims));
    in[1].shape = NULL;
    report("no shape", api->bind(add, in, 2, dims));
    in[1].shape = shape;
    in[1].strides = strides;
    report("strides", api->bind(add, in, 2, dims));
    in[1].strides = NULL;
    in[1].dtype = 77;
    report("dtype", api->bind(add, in, 2, dims));
    report("no result", api->result_shape(add, 1, dims, found, 2) < 0);
    nacre_options options = {.bytes = 4, .threads = 0, .weights = NULL};
    nacre_session *none = NULL;
    report("options", api->session_create(&options, &none));

    report("reserve", api->session_reserve(session, 64));
    report("own workspace", zoo_add(session, 2, 3, x, y, sum, NULL, 0));
    report("own is small", zoo_add(session, 4, 5, x, y, sum, NULL, 0));
    report("negative reserve", api->session_reserve(session, -1));
    pthread_t threads[4];
    nacre_status results[4];
    int computed = 0, busy = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, wait_on_session, &results[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) computed += results[i] == NACRE_OK, busy += results[i] == NACRE_BUSY;
    printf("at once: %d computed, all others busy: %d\n", computed >= 1, computed + busy == 4);
    api->session_destroy(session);
    second_api()->session_destroy(other);
    api->session_destroy(NULL);
    return 0;
}
