/* Calls entries of an artifact with the arguments of a file, and writes what they return: `calls ARTIFACT IN OUT`.

   IN is a sequence of calls, all numbers of 64 bits: the entry, the count of inputs and of outputs, then each tensor as
   dtype, rank, shape, bytes; the data follow for inputs alone. OUT has for each call its status, and then the data of
   its outputs. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi.h"

enum { MOST = 32, RANK = 16 };

static int64_t number(FILE *file) {
    int64_t value;
    return fread(&value, sizeof value, 1, file) == 1 ? value : -1;
}

static int64_t read_tensor(FILE *file, nacre_tensor *tensor, int64_t *shape) {
    tensor->dtype = (nacre_dtype)number(file);
    tensor->rank = (int32_t)number(file);
    if (tensor->rank < 0 || tensor->rank > RANK) exit(3);
    for (int32_t i = 0; i < tensor->rank; i++) shape[i] = number(file);
    tensor->shape = shape;
    tensor->strides = NULL;
    int64_t bytes = number(file);
    tensor->data = aligned_alloc(NACRE_ALIGNMENT, ((size_t)bytes / NACRE_ALIGNMENT + 1) * NACRE_ALIGNMENT);
    if (tensor->data == NULL) exit(3);
    return bytes;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
    const nacre_api *(*get_api)(uint32_t);
    *(void **)&get_api = dlsym(library, "nacre_get_api");
    const nacre_api *api = get_api(NACRE_ABI_VERSION);
    nacre_session *session = NULL;
    nacre_options options = {.bytes = sizeof options, .threads = 1};
    if (api->session_create(&options, &session)) return fprintf(stderr, "%s\n", api->last_error()), 2;
    FILE *in = fopen(arguments[2], "rb"), *out = fopen(arguments[3], "wb");
    if (in == NULL || out == NULL) return 2;
    for (int64_t entry = number(in); entry >= 0; entry = number(in)) {
        nacre_tensor tensors[2][MOST];
        int64_t shapes[2][MOST][RANK], bytes[2][MOST], counts[2] = {number(in), number(in)};
        for (int side = 0; side < 2; side++) {
            if (counts[side] < 0 || counts[side] > MOST) return 3;
            for (int64_t i = 0; i < counts[side]; i++) {
                bytes[side][i] = read_tensor(in, &tensors[side][i], shapes[side][i]);
                if (side == 0 && fread(tensors[0][i].data, 1, (size_t)bytes[0][i], in) != (size_t)bytes[0][i]) return 3;
            }
        }
        int64_t dims[MOST] = {0};
        int64_t status = api->bind((int32_t)entry, tensors[0], (int32_t)counts[0], dims);
        if (!status) status = api->session_reserve(session, api->workspace_bytes((int32_t)entry, dims));
        if (!status)
            status = api->run(session, (int32_t)entry, tensors[0], (int32_t)counts[0], tensors[1],
                              (int32_t)counts[1], NULL, 0);
        if (status) fprintf(stderr, "entry %lld: %s\n", (long long)entry, api->last_error());
        fwrite(&status, sizeof status, 1, out);
        for (int side = 0; side < 2; side++)
            for (int64_t i = 0; i < counts[side]; i++) {
                if (side) fwrite(tensors[1][i].data, 1, (size_t)bytes[1][i], out);
                free(tensors[side][i].data);
            }
    }
    api->session_destroy(session);
    return fclose(out) ? 2 : 0;
}
