"""Calls of several libraries timed by the processor time of their threads, in turn, within one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

SHORTEST = 0.002
"""The least time of one measurement in seconds: shorter calls are repeated within it."""
PAUSE = 0.02
"""The seconds before each measurement, in which the threads of the library before it fall asleep."""


@dataclass(frozen=True)
class Time:
    """Seconds of processor time of a call: of the busiest thread, and of all threads."""

    busiest: float
    total: float


def _clocks() -> dict[int, int]:
    """Returns the processor clock of each thread of the process; that of this thread is the last."""
    here = threading.get_native_id()
    threads = sorted((int(name) for name in os.listdir("/proc/self/task")), key=lambda each: (each == here, each))
    return {thread: (~thread << 3) | 6 for thread in threads}  # the kernel's number of a thread's clock


def _time(call: Callable[[], object], count: int) -> Time:
    clocks = _clocks()
    before = {thread: time.clock_gettime(clock) for thread, clock in clocks.items()}
    for _ in range(count):
        call()
    spent = []
    for thread in reversed(clocks):
        with suppress(OSError):  # the thread has ended
            spent.append(time.clock_gettime(clocks[thread]) - before[thread])
    return Time(max(spent) / count, sum(spent) / count)


def measure(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Time]:
    """Returns the least times of a call of each library."""
    inner = {}
    for name, call in calls.items():
        call()
        inner[name] = max(1, int(SHORTEST / max(_time(call, 1).busiest, 1e-6)))
    best = dict.fromkeys(calls, Time(float("inf"), float("inf")))
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(PAUSE)
            call()
            found = _time(call, inner[name])
            best[name] = Time(min(best[name].busiest, found.busiest), min(best[name].total, found.total))
    return best
