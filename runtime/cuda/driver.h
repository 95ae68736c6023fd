/* The functions of the CUDA driver that the runtime calls. They are looked up when a device is first requested. */
#ifndef NACRE_CUDA_DRIVER_H
#define NACRE_CUDA_DRIVER_H

#include "code.h"

typedef struct driver_context *driver_context;
typedef struct driver_module *driver_module;
typedef struct driver_function *driver_function;
typedef struct driver_stream *driver_stream;
typedef struct driver_graph *driver_graph;
typedef struct driver_exec *driver_exec; /* an executable graph */
typedef struct driver_event *driver_event;
typedef uint64_t driver_pointer; /* an address in device memory */

/* X(field, symbol, parameters): https://docs.nvidia.com/cuda/cuda-driver-api/ */
#define NACRE_DRIVER(X) \
    X(init, "cuInit", (unsigned flags)) \
    X(get_version, "cuDriverGetVersion", (int *version)) \
    X(count_devices, "cuDeviceGetCount", (int *count)) \
    X(get_device, "cuDeviceGet", (int *device, int ordinal)) \
    X(get_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device)) \
    X(retain_context, "cuDevicePrimaryCtxRetain", (driver_context *context, int device)) \
    X(release_context, "cuDevicePrimaryCtxRelease_v2", (int device)) \
    X(push_context, "cuCtxPushCurrent_v2", (driver_context context)) \
    X(pop_context, "cuCtxPopCurrent_v2", (driver_context *context)) \
    X(load_module, "cuModuleLoadDataEx", \
      (driver_module *module, const void *image, unsigned count, int *options, void **values)) \
    X(unload_module, "cuModuleUnload", (driver_module module)) \
    X(get_function, "cuModuleGetFunction", (driver_function *function, driver_module module, const char *name)) \
    X(set_function, "cuFuncSetAttribute", (driver_function function, int attribute, int value)) \
    X(allocate, "cuMemAlloc_v2", (driver_pointer *pointer, size_t bytes)) \
    X(release, "cuMemFree_v2", (driver_pointer pointer)) \
    X(create_stream, "cuStreamCreate", (driver_stream *stream, unsigned flags)) \
    X(destroy_stream, "cuStreamDestroy_v2", (driver_stream stream)) \
    X(synchronize, "cuStreamSynchronize", (driver_stream stream)) \
    X(to_device, "cuMemcpyHtoDAsync_v2", \
      (driver_pointer target, const void *source, size_t bytes, driver_stream stream)) \
    X(to_host, "cuMemcpyDtoHAsync_v2", (void *target, driver_pointer source, size_t bytes, driver_stream stream)) \
    X(copy, "cuMemcpyDtoDAsync_v2", \
      (driver_pointer target, driver_pointer source, size_t bytes, driver_stream stream)) \
    X(fill, "cuMemsetD32Async", (driver_pointer target, unsigned word, size_t words, driver_stream stream)) \
    X(begin_capture, "cuStreamBeginCapture_v2", (driver_stream stream, int mode)) \
    X(end_capture, "cuStreamEndCapture", (driver_stream stream, driver_graph *graph)) \
    X(instantiate, "cuGraphInstantiateWithFlags", (driver_exec *exec, driver_graph graph, unsigned long long flags)) \
    X(launch_graph, "cuGraphLaunch", (driver_exec exec, driver_stream stream)) \
    X(destroy_exec, "cuGraphExecDestroy", (driver_exec exec)) \
    X(destroy_graph, "cuGraphDestroy", (driver_graph graph)) \
    X(create_event, "cuEventCreate", (driver_event *event, unsigned flags)) \
    X(destroy_event, "cuEventDestroy_v2", (driver_event event)) \
    X(record_event, "cuEventRecord", (driver_event event, driver_stream stream)) \
    X(elapsed_time, "cuEventElapsedTime", (float *milliseconds, driver_event begin, driver_event end)) \
    X(describe_pointer, "cuPointerGetAttribute", (void *value, int attribute, driver_pointer pointer)) \
    X(launch, "cuLaunchKernel", \
      (driver_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared, driver_stream stream, void **arguments, void **extra)) \
    X(describe_error, "cuGetErrorString", (int result, const char **text))

/* Functions that only code for newer architectures calls; NULL if the driver lacks them. */
#define NACRE_NEWER_DRIVER(X) \
    X(make_map, "cuTensorMapEncodeTiled", \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *steps, \
       const uint32_t *box, const uint32_t *distances, int interleave, int swizzle, int promotion, int fill))

typedef struct nacre_driver {
#define X(field, symbol, arguments) int (*field) arguments;
    NACRE_DRIVER(X)
    NACRE_NEWER_DRIVER(X)
#undef X
} nacre_driver;

enum { DRIVER_OUT_OF_MEMORY = 2, DRIVER_NO_BINARY = 209 };

/* Loads the driver, once in a process. Returns NULL on failure, and stores the reason in `why`. */
const nacre_driver *nacre_open_driver(const char **why);

/* Returns whether this process was forked after the driver had started: the driver does not work in it. */
int nacre_is_forked(void);

/* Records the failure of a driver call that was to perform `action`, and returns the status. */
nacre_status nacre_driver_failed(const nacre_driver *driver, int result, const char *action);

#endif
