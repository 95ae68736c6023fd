/* Loads an artifact and calls its first entry with four floats: prints the results, or why there are none. */
#include <dlfcn.h>
#include <stdio.h>

#include "abi.h"

int main(int count, char **arguments) {
    void *library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
    const nacre_api *(*get_api)(uint32_t);
    *(void **)&get_api = dlsym(library, "nacre_get_api");
    const nacre_api *api = get_api(NACRE_ABI_VERSION);
    nacre_session *session = NULL;
    nacre_options options = {.bytes = sizeof options, .threads = 1, .weights = NULL};
    nacre_status status = api->session_create(&options, &session);
    if (status) return printf("%d: %s\n", (int)status, api->last_error()), 1;
    float x[4] = {-1, 0.5f, 2, 3}, y[4] = {0, 0, 0, 0};
    const int64_t shape[] = {4};
    nacre_tensor input = {x, shape, NULL, NACRE_F32, 1}, output = {y, shape, NULL, NACRE_F32, 1};
    static char workspace[4096] __attribute__((aligned(NACRE_ALIGNMENT)));
    status = api->run(session, 0, &input, 1, &output, 1, workspace, sizeof workspace);
    if (status) return printf("%d: %s\n", (int)status, api->last_error()), 1;
    for (int i = 0; i < 4; i++) printf("%.6f%s", (double)y[i], i < 3 ? " " : "\n");
    api->session_destroy(session);
    return 0;
}
