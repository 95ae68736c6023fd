"""What this machine can do, measured: the float32 peak of one core, and whether it is quiet enough to compare on."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

_PROBE = r"""
#include <time.h>
typedef float vector __attribute__((vector_size(64)));
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
/* 24 independent chains of fused multiply-adds: fewer would measure their latency. */
double peak(long rounds) {
    vector a[24], x, y;
    for (int k = 0; k < 16; k++) { x[k] = 1.0001f; y[k] = 0.99f; }
    for (int i = 0; i < 24; i++) a[i] = x * (float)i;
    double start = now();
    for (long r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) a[i] = a[i] * x + y;
    }
    double seconds = now() - start;
    float sum = 0;
    for (int i = 0; i < 24; i++) for (int k = 0; k < 16; k++) sum += a[i][k];
    volatile float keep = sum;
    (void)keep;
    return rounds * 24.0 * 32 / seconds / 1e9;
}
"""


class Probe:
    """The peak of one core in GFLOP/s, as it is at the moment of asking."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "probe.c").write_text(_PROBE)
            command = [
                "cc",
                "-O3",
                "-march=native",
                "-ffp-contract=fast",
                "-shared",
                "-fPIC",
                "-o",
                "probe.so",
                "probe.c",
            ]
            subprocess.run(command, cwd=folder, check=True)
            self._library = ctypes.CDLL(str(folder / "probe.so"))
        self._library.peak.restype = ctypes.c_double

    def peak(self) -> float:
        return float(self._library.peak(ctypes.c_long(400_000)))
