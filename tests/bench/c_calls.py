"""Calls of our artifacts from C, through their interface alone. Peers' packages for Python have nothing to compare."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from machine import compile_c
from measure import Contender
from prepare import Model

RUNTIME = Path(__file__).parents[2] / "runtime"
DTYPES = {np.dtype(np.int64): 8, np.dtype(np.float32): 12}

_SOURCE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include "abi.h"

enum { MOST = 16 };
typedef struct {
    const nacre_api *api;
    nacre_call call;
    const void *inputs[MOST];
    void *outputs[MOST];
    int64_t dims[MOST];
} caller;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

/* A caller of the first entry, for a result of `bytes` bytes. NULL if anything is refused. */
caller *caller_open(const char *path, uint32_t threads, const nacre_tensor *inputs, int32_t count, size_t bytes) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const nacre_api *(*get)(uint32_t) = library ? dlsym(library, "nacre_get_api") : NULL;
    caller *c = calloc(1, sizeof *c);
    if (!get || !c || count > MOST) return NULL;
    c->api = get(NACRE_ABI_VERSION);
    const nacre_options options = {sizeof options, threads, NULL};
    if (c->api->session_create(&options, &c->call.session)) return NULL;
    if (c->api->bind(0, inputs, count, c->dims)) return NULL;
    for (int i = 0; i < count; i++) c->inputs[i] = inputs[i].data;
    c->outputs[0] = aligned_alloc(64, bytes / 64 * 64 + 64);
    c->call.inputs = c->inputs;
    c->call.outputs = c->outputs;
    c->call.dims = c->dims;
    c->call.workspace_bytes = c->api->workspace_bytes(0, c->dims);
    c->call.workspace = aligned_alloc(64, (size_t)c->call.workspace_bytes / 64 * 64 + 64);
    return c->api->call(&c->call) ? NULL : c;
}
void *caller_result(caller *c) { return c->outputs[0]; }
double caller_seconds(caller *c, long count) {
    double start = now();
    for (long i = 0; i < count; i++) c->api->call(&c->call);
    return now() - start;
}
"""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    )


def contenders(model: Model, artifacts: Mapping[str, Path], threads: int) -> Iterator[Contender]:
    library = compile_c(_SOURCE, "caller", f"-I{RUNTIME}")
    library.caller_open.restype = library.caller_result.restype = ctypes.c_void_p
    library.caller_seconds.restype = ctypes.c_double
    (expected,) = model.expected
    arrays = list(model.inputs.values())
    shapes = [(ctypes.c_int64 * array.ndim)(*array.shape) for array in arrays]
    tensors = (_Tensor * len(arrays))(
        *(_Tensor(a.ctypes.data, s, None, DTYPES[a.dtype], a.ndim) for a, s in zip(arrays, shapes, strict=True))
    )
    for name, path in artifacts.items():
        size = ctypes.c_size_t(expected.size * 4)
        opened = library.caller_open(str(path).encode(), ctypes.c_uint32(threads), tensors, len(arrays), size)
        assert opened, f"{path} refuses to be called"
        caller = ctypes.c_void_p(opened)

        def fetch(_: Any, caller: ctypes.c_void_p = caller) -> list[Any]:
            result = ctypes.cast(library.caller_result(caller), ctypes.POINTER(ctypes.c_float))
            return [np.ctypeslib.as_array(result, expected.shape).copy()]

        def clock(count: int, caller: ctypes.c_void_p = caller) -> float:
            return float(library.caller_seconds(caller, ctypes.c_long(count)))

        yield Contender(name, lambda clock=clock: clock(1), fetch, clock)
