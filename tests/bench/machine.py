"""What this machine can do at the moment of asking: peak, read bandwidth, and whether two threads have two cores.

A small C library, compiled at the first use, runs in threads of Python that are pinned to one core each.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

BUFFER_BYTES = 256 << 20
"""What each thread reads to measure the bandwidth: much more than any cache."""
PEAK_OPERATIONS = 1.2e9
"""Floating-point operations of one round of the peak."""
ALONE = 1.85
"""Two threads with a core each compute at least so many times as much as one."""

_SOURCE = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __AVX512F__
enum { LANES = 16, CHAINS = 24 };
#elif defined __AVX__
enum { LANES = 8, CHAINS = 12 };
#else
enum { LANES = 4, CHAINS = 12 };
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
static double on(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

/* Independent chains of fused multiply-adds: fewer would measure their latency, and more than registers hold would
   measure memory. In GFLOP/s of the time of the thread, or of the clock on the wall. */
double peak(double operations, int of_thread) {
    clockid_t clock = of_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    long rounds = operations / (2.0 * LANES * CHAINS);
    lanes a[CHAINS], x, y;
    for (int k = 0; k < LANES; k++) { x[k] = 1.0001f; y[k] = 0.99f; }
    for (int i = 0; i < CHAINS; i++) a[i] = x * (float)i;
    double start = on(clock);
    for (long r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) a[i] = a[i] * x + y;
    }
    double seconds = on(clock) - start;
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) for (int k = 0; k < LANES; k++) sum += a[i][k];
    volatile float keep = sum;
    (void)keep;
    return rounds * 2.0 * LANES * CHAINS / seconds / 1e9;
}

/* A buffer that is written once, on huge pages if wanted, so that every page exists. */
void *buffer(size_t bytes, int huge) {
    float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes / 4; i++) p[i] = 1;
    return p;
}
void release(void *p, size_t bytes) { munmap(p, bytes); }

/* The sum of a buffer, in GB/s of the time of the thread: other work on its core does not count. */
double read_once(const void *memory, size_t bytes) {
    const lanes *p = memory;
    lanes sum[8] = {{0}};
    const long line = 64 / sizeof(lanes);
    double start = on(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < bytes / sizeof(lanes); i += 8) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            /* Prefetches far ahead into the second cache and a little ahead into the first read up to 8 % faster. */
            if (k % line == 0) {
                __builtin_prefetch(p + i + k + 256 * line, 0, 2);
                __builtin_prefetch(p + i + k + 32 * line, 0, 3);
            }
            sum[k] += p[i + k];
        }
    }
    double seconds = on(CLOCK_THREAD_CPUTIME_ID) - start;
    volatile float keep = 0;
    for (int k = 0; k < 8; k++) keep = keep + sum[k][k % LANES];
    return bytes / seconds / 1e9;
}
"""


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """The calling thread, and all threads that it starts meanwhile, run on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def on_each(cores: Sequence[int], measure: Callable[[], float]) -> list[float]:
    """What `measure` gives in threads on these cores, all at once."""
    results = [0.0] * len(cores)
    gate = threading.Barrier(len(cores))

    def run(index: int) -> None:
        os.sched_setaffinity(0, [cores[index]])
        gate.wait()
        results[index] = measure()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(cores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Probe:
    """Measures the cores that it is given. One round of the peak takes about 10 ms, of processor time with `cpu_time`:
    other work on a core then does not count."""

    def __init__(self, cores: Sequence[int], *, cpu_time: bool = False) -> None:
        self.cores, self.cpu_time = tuple(cores), cpu_time
        self._library = compile_c(_SOURCE, "probe")
        self._library.peak.restype = self._library.read_once.restype = ctypes.c_double
        self._library.buffer.restype = ctypes.c_void_p

    def _peak(self) -> float:
        return float(self._library.peak(ctypes.c_double(PEAK_OPERATIONS), int(self.cpu_time)))

    def alone(self) -> list[float]:
        """GFLOP/s of each core while the others rest."""
        return [on_each([core], self._peak)[0] for core in self.cores]

    def together(self) -> list[float]:
        """GFLOP/s of each core while all of them compute."""
        return on_each(self.cores, self._peak)

    def bandwidth(self, huge: bool) -> float:
        """Returns the GB/s that all cores read together from memory, the best of three times."""
        size = ctypes.c_size_t(BUFFER_BYTES)
        buffers = [ctypes.c_void_p(self._library.buffer(size, int(huge))) for _ in self.cores]
        assert all(buffers), "no memory for the probe"
        rate = max(self._read([(memory, BUFFER_BYTES) for memory in buffers]) for _ in range(3))
        for memory in buffers:
            self._library.release(memory, size)
        return rate

    def file_bandwidth(self, path: Path) -> float:
        """Returns the GB/s that all cores read together from a file in memory, a part each; the best of three times."""
        content = np.memmap(path, np.uint8, "r")
        length = content.size // len(self.cores) // 4096 * 4096
        parts = [(ctypes.c_void_p(content.ctypes.data + n * length), length) for n in range(len(self.cores))]
        return max(self._read(parts) for _ in range(3))

    def _read(self, parts: Sequence[tuple[ctypes.c_void_p, int]]) -> float:
        """Returns the GB/s at which the cores read a part each, once."""
        left = list(parts)

        def read() -> float:
            memory, size = left.pop()
            return float(self._library.read_once(memory, ctypes.c_size_t(size)))

        return sum(on_each(self.cores, read))


def compile_c(source: str, name: str, *flags: str) -> ctypes.CDLL:
    """A C text as a loaded library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.c"
        path.write_text(source)
        library = path.with_suffix(".so")
        command = ["cc", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", *flags]
        subprocess.run([*command, "-o", str(library), str(path)], check=True)
        return ctypes.CDLL(str(library))
