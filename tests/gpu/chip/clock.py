"""Times what a stream runs, by events."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .driver import Driver

WARM_UP, CALLS = 5, 40


class Clock:
    """Events of a stream."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def record(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.driver.call("cuEventCreate", ctypes.byref(event), 0)
        self.driver.call("cuEventRecord", event, self.stream)
        return event

    def seconds(self, marks: Sequence[tuple[ctypes.c_void_p, ctypes.c_void_p]]) -> list[float]:
        """Waits, and returns the time between each two events, which are released."""
        self.driver.call("cuStreamSynchronize", self.stream)
        found = []
        for begin, end in marks:
            value = ctypes.c_float()
            self.driver.call("cuEventElapsedTime", ctypes.byref(value), begin, end)
            found.append(value.value * 1e-3)
            for event in (begin, end):
                self.driver.call("cuEventDestroy_v2", event)
        return found

    def release(self) -> None:
        """Releases the stream."""
        self.driver.call("cuStreamDestroy_v2", self.stream)
