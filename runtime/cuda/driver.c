/* Opens the CUDA driver at run time: building an artifact requires no headers and no libraries of CUDA. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nacre_driver driver;
static char reason[512];
static int is_open, has_failed;
static pid_t process; /* the process that has started the driver */

static int fail(const char *text, const char *detail) {
    snprintf(reason, sizeof reason, "%s: %s", text, detail ? detail : "unknown");
    return 0;
}

static int find_functions(void *library, const char *path) {
#define X(field, symbol, arguments) \
    *(void **)&driver.field = dlsym(library, symbol); \
    if (driver.field == NULL) return fail("the CUDA driver is too old, it lacks `" symbol "`", path);
    NACRE_DRIVER(X)
#undef X
#define X(field, symbol, arguments) *(void **)&driver.field = dlsym(library, symbol);
    NACRE_NEWER_DRIVER(X)
#undef X
    return 1;
}

static int open_library(void) {
    const char *named = getenv("NACRE_CUDA_DRIVER");
    const char *path = named && *named ? named : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fail("there is no CUDA driver", dlerror());
    if (!find_functions(library, path)) return 0;
    const int result = driver.init(0);
    if (result == 0) return 1;
    const char *text = NULL;
    driver.describe_error(result, &text);
    return fail("the CUDA driver does not start", text);
}

const nacre_driver *nacre_open_driver(const char **why) {
    pthread_mutex_lock(&lock);
    if (!is_open && !has_failed) {
        is_open = open_library();
        has_failed = !is_open;
        process = getpid();
    }
    pthread_mutex_unlock(&lock);
    *why = reason;
    return is_open ? &driver : NULL;
}

int nacre_is_forked(void) { return is_open && process != getpid(); }

nacre_status nacre_driver_failed(const nacre_driver *used, int result, const char *action) {
    const char *text = NULL;
    used->describe_error(result, &text);
    const nacre_status status = result == DRIVER_OUT_OF_MEMORY ? NACRE_OUT_OF_MEMORY : NACRE_DEVICE_FAILED;
    return nacre_fail(status, "the device could not %s: %s (CUDA error %d)", action, text ? text : "unknown", result);
}
