"""The CPU clocks of the threads of this process: the CPU time that each thread spends in calls.

The time of the busiest thread is the elapsed time of a call if each thread has a core of its own; other work on the
machine does not count in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress


def _clocks() -> dict[int, int]:
    """Returns the CPU clock of each thread; that of this thread is the last."""
    here = threading.get_native_id()
    threads = sorted((int(name) for name in os.listdir("/proc/self/task")), key=lambda each: (each == here, each))
    # The number of the CPU clock of a thread on Linux. Counts below /proc are stale while a thread runs.
    return {thread: (~thread << 3) | 6 for thread in threads}


def seconds_by_thread(call: Callable[[], object], count: int = 1) -> list[float]:
    """Returns the CPU seconds of each thread in `count` calls, the busiest thread first. A thread that starts during
    the calls, or ends during them, is left out."""
    clocks = _clocks()
    before = {thread: time.clock_gettime(clock) for thread, clock in clocks.items()}
    for _ in range(count):
        call()
    spent = []
    for thread in reversed(clocks):
        with suppress(OSError):  # the thread has ended
            spent.append(time.clock_gettime(clocks[thread]) - before[thread])
    return sorted(spent, reverse=True)
