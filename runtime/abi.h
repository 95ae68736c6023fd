/* The C interface of a Nacre artifact, version 1. ABI.md specifies each call. */
#ifndef NACRE_ABI_H
#define NACRE_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NACRE_ABI_VERSION 1u
#define NACRE_ALIGNMENT 64 /* of a workspace; advised for results */

typedef int32_t nacre_status;
enum {
    NACRE_OK = 0,
    NACRE_INVALID = 1,       /* an argument, a dim or a workspace that the entry does not take */
    NACRE_OUT_OF_MEMORY = 2, /* session_create, session_reserve, and calls on a device */
    NACRE_NO_WEIGHTS = 3,    /* the weights file is missing, or is not the one of this artifact */
    NACRE_BUSY = 4,          /* the session's own workspace, or its states, are in use by another call */
    NACRE_WRONG_CPU = 5,     /* session_create only: the CPU lacks instructions that the artifact's code needs */
    NACRE_OUT_OF_RANGE = 6,  /* run and call only: an index of an operator is out of range; results are unspecified */
    NACRE_NO_DEVICE = 7,     /* session_create only: the device is not there, or the artifact has no code for it */
    NACRE_DEVICE_FAILED = 8  /* the device, or its driver, reported an error; results are unspecified */
};

typedef int32_t nacre_dtype;
enum {
    NACRE_BOOL = 1, /* one byte, 0 or 1 */
    NACRE_I8 = 2,
    NACRE_U8 = 3,
    NACRE_I16 = 4,
    NACRE_U16 = 5,
    NACRE_I32 = 6,
    NACRE_U32 = 7,
    NACRE_I64 = 8,
    NACRE_U64 = 9,
    NACRE_F16 = 10,
    NACRE_BF16 = 11,
    NACRE_F32 = 12,
    NACRE_F64 = 13,
    NACRE_F8E4M3 = 14,
    NACRE_F8E5M2 = 15
};

/* A tensor of the caller. Strides count elements; NULL means dense and row-major. */
typedef struct nacre_tensor {
    void *data;
    const int64_t *shape;
    const int64_t *strides;
    nacre_dtype dtype;
    int32_t rank;
} nacre_tensor;

typedef struct nacre_session nacre_session;

/* `bytes` is sizeof(nacre_options) of the caller, so that the struct can grow. Zero in a field selects the default. */
typedef struct nacre_options {
    uint32_t bytes;
    uint32_t threads;    /* maximum number of threads of a call; 0: $NACRE_THREADS, else all CPUs */
    const char *weights; /* path of the weights file of an artifact with external weights */
    uint32_t huge_pages; /* 1: compute from a copy of the weights on huge pages */
    uint32_t dim_count;  /* number of `dims`: the session dims of an artifact with states */
    const int64_t *dims; /* values of the session dims; NULL: a session without states */
    const char *device;  /* auto, cpu, cuda or cuda:N; NULL: $NACRE_DEVICE, else auto (a GPU if there is one) */
    uint32_t no_graphs;  /* 1: launch each kernel separately, never a repeated call as a CUDA graph */
    uint32_t reserved;
} nacre_options;

/* One call with known dims: data pointers only, in the order of arguments and results. */
typedef struct nacre_call {
    nacre_session *session;
    int64_t entry;
    const void *const *inputs;
    void *const *outputs;
    const int64_t *dims;
    void *workspace; /* NULL: the session's own workspace */
    int64_t workspace_bytes;
} nacre_call;

/* The part of a kernel that one thread computed: the start of its first work item, the end of its last one, and its
computing time in between, in nanoseconds. */
typedef struct nacre_share {
    uint64_t thread; /* unique among the threads that exist at the same time */
    int64_t begin, end, busy;
} nacre_share;

/* The end of a kernel of an observed call, when its results can be read; with `call` -1, the end of the whole call.
Times are nanoseconds of CLOCK_MONOTONIC. The pointers are those of the call, or on a GPU those of host copies, and are
valid until it ends. */
typedef struct nacre_event {
    uint64_t run; /* sequence number of the observed call in this library */
    int32_t entry, call; /* indices in the description of calls */
    int64_t begin, end;
    const void *const *inputs;
    void *const *outputs;
    char *workspace;
    const int64_t *dims;
    const nacre_share *shares; /* one for each thread that computed a part of the kernel */
    int64_t share_count;       /* 0 where `call` is -1, and on a GPU */
} nacre_event;

typedef struct nacre_observer {
    void (*tell)(void *data, const nacre_event *event); /* runs in the thread of the call */
    void *data;
} nacre_observer;

/* A record of an event, as `record` stores it: one for each share, or one with `thread` 0 if there is none. */
typedef struct nacre_record {
    uint64_t run;
    int32_t entry, call;
    int64_t begin, end;
    nacre_share share;
} nacre_record;

/* Memory for records. If `count` exceeds `capacity`, the further records were not stored. */
typedef struct nacre_recording {
    nacre_record *records;
    int64_t capacity;
    int64_t count; /* threads of calls increase it: read it when no call is in progress */
} nacre_recording;

typedef struct nacre_api {
    uint32_t version;
    uint32_t bytes; /* size of this table; later artifacts of the same version may append functions */

    const char *(*describe)(void);
    const char *(*last_error)(void);
    int32_t (*find_entry)(const char *name);

    nacre_status (*session_create)(const nacre_options *options, nacre_session **session);
    void (*session_destroy)(nacre_session *session);
    nacre_status (*session_reserve)(nacre_session *session, int64_t bytes);

    nacre_status (*bind)(int32_t entry, const nacre_tensor *inputs, int32_t count, int64_t *dims);
    int32_t (*result_shape)(int32_t entry, int32_t result, const int64_t *dims, int64_t *shape, int32_t capacity);
    int64_t (*workspace_bytes)(int32_t entry, const int64_t *dims);

    nacre_status (*run)(nacre_session *session, int32_t entry, const nacre_tensor *inputs, int32_t input_count,
                        const nacre_tensor *outputs, int32_t output_count, void *workspace, int64_t workspace_bytes);
    nacre_status (*call)(const nacre_call *call);

    const char *(*describe_calls)(void);
    nacre_status (*observe)(nacre_session *session, const nacre_observer *observer);
    void (*record)(void *recording, const nacre_event *event);

    nacre_status (*session_bind)(nacre_session *session, int32_t entry, const nacre_tensor *inputs, int32_t count,
                                 int64_t *dims);
    int64_t (*session_bytes)(const int64_t *dims, int32_t count);
    nacre_status (*session_fork)(nacre_session *source, const nacre_options *options, nacre_session **session);
    int32_t (*find_state)(const char *name);
    int32_t (*state_shape)(const nacre_session *session, int32_t state, int64_t *shape, int32_t capacity);
    nacre_status (*state_read)(nacre_session *session, int32_t state, void *data, int64_t bytes);
    nacre_status (*state_write)(nacre_session *session, int32_t state, const void *data, int64_t bytes);
    nacre_status (*state_reset)(nacre_session *session, int32_t state); /* -1: all states */

    int32_t (*session_device)(const nacre_session *session); /* number of the GPU; -1: the CPU */
    nacre_status (*session_stream)(nacre_session *session, void *stream); /* NULL: the session's own stream */
    nacre_status (*state_data)(nacre_session *session, int32_t state, void **data); /* memory of the session */
} nacre_api;

/* Every artifact exports this function under two names, also as nacre_get_api_<artifact>. It returns NULL if the
artifact does not have this version. */
const nacre_api *nacre_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
