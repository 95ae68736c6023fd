"""The functions of the CUDA driver that the checks call, through ctypes: memory, and facts about devices."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAJOR, MINOR, PROCESSORS, L2_BYTES = 75, 76, 16, 38
"""Attributes of a device."""


class DriverError(Exception):
    """A call of the driver that failed."""


def device_number(device: str) -> int:
    """Returns the number in `cuda:NUMBER`."""
    return int(device.rpartition(":")[2])


def is_lost(device: str) -> bool:
    """Returns whether the device fails all further calls of this process, as it does after a wrong address."""
    try:
        driver = Driver()
        driver.open(device_number(device))
        driver.call("cuStreamSynchronize", None)
    except DriverError:
        return True
    return False


@dataclass(frozen=True)
class Device:
    """A device, whose primary context is current in the thread that opened it."""

    name: str
    capability: int
    processors: int
    l2_bytes: int
    bytes: int


class Driver:
    """The driver, started. Every function raises DriverError."""

    def __init__(self) -> None:
        path = os.environ.get("NACRE_CUDA_DRIVER") or "libcuda.so.1"
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise DriverError(f"there is no CUDA driver: {error}") from None
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.library, name)(*arguments)
        if result:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(result, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown').decode()} (CUDA error {result})")

    def open(self, number: int) -> Device:
        """Makes the primary context of a device current."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, 100, device)
        capability = 10 * self.attribute(MAJOR, device) + self.attribute(MINOR, device)
        _, total = self.memory()
        return Device(
            name.value.decode(), capability, self.attribute(PROCESSORS, device), self.attribute(L2_BYTES, device), total
        )

    def close(self, number: int) -> None:
        """Releases the primary context of a device, which is the current one."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuCtxPopCurrent_v2", ctypes.byref(context))
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def attribute(self, attribute: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def memory(self) -> tuple[int, int]:
        """Returns the free and the total bytes of memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, bytes: int) -> int:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(bytes))
        return pointer.value

    def release(self, pointer: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    @contextmanager
    def filled(self, least: int) -> Iterator[None]:
        """Takes the memory of the device, but for less than `least` bytes in one piece."""
        taken, bytes = [], self.memory()[0]
        while bytes >= least:
            try:
                taken.append(self.allocate(bytes))
            except DriverError:
                bytes //= 2
        try:
            yield
        finally:
            for pointer in taken:
                self.release(pointer)
