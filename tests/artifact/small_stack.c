/* Calls every entry of an artifact from a thread with a stack of 512 KiB, and prints the bytes that the call used.
 * A page without access lies below the stack. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "deep.h"

enum { STACK = 512 * 1024, GUARD = 64 * 1024, MARK = 0xA5 };

static nacre_session *session;
static nacre_tensor inputs[8];
static nacre_tensor output;
static int32_t entry, input_count;
static nacre_status status;
static void *workspace;
static int64_t workspace_size;

static void *call(void *unused) {
    status = deep_api()->run(session, entry, inputs, input_count, &output, 1, workspace, workspace_size);
    return unused;
}

static void *zeros(size_t bytes) {
    void *memory = aligned_alloc(NACRE_ALIGNMENT, (bytes + NACRE_ALIGNMENT) / NACRE_ALIGNMENT * NACRE_ALIGNMENT);
    if (memory == NULL) exit(3);
    return memset(memory, 0, bytes);
}

static size_t used_by_call(char *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, MARK, STACK);
    if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack, STACK)) exit(4);
    if (pthread_create(&thread, &attributes, call, NULL) || pthread_join(thread, NULL)) exit(5);
    size_t left = 0;
    while (left < STACK && (unsigned char)stack[left] == MARK) left++;
    return STACK - left;
}

int main(int count, char **words) {
    const nacre_api *api = deep_api();
    const nacre_options options = {.bytes = sizeof options, .threads = 1};
    if (api->session_create(&options, &session)) return fprintf(stderr, "%s\n", api->last_error()), 1;
    char *mapped = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || mprotect(mapped, GUARD, PROT_NONE)) return 2;
    /* For each entry: its name, and the rank and shape of each tensor of f32, the result last. */
    for (int at = 1; at < count;) {
        const char *name = words[at++];
        static int64_t shapes[8][8];
        entry = api->find_entry(name), input_count = atoi(words[at++]);
        for (int i = 0; i <= input_count; i++) {
            const int32_t rank = (int32_t)atoi(words[at++]);
            size_t size = sizeof(float);
            for (int32_t axis = 0; axis < rank; axis++) size *= (size_t)(shapes[i][axis] = atoll(words[at++]));
            const nacre_tensor made = {.data = zeros(size), .shape = shapes[i], .dtype = NACRE_F32, .rank = rank};
            *(i < input_count ? &inputs[i] : &output) = made;
        }
        int64_t dims[8] = {0};
        if (api->bind(entry, inputs, input_count, dims)) return fprintf(stderr, "%s\n", api->last_error()), 1;
        workspace_size = api->workspace_bytes(entry, dims);
        workspace = zeros((size_t)workspace_size);
        const size_t used = used_by_call(mapped + GUARD);
        printf("%s %d %zu%s%s\n", name, (int)status, used, status ? " " : "", status ? api->last_error() : "");
    }
    return 0;
}
