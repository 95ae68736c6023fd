"""Times calls on a GPU by events, with tensors on the device that are larger together than its second cache.

Calls are queued one after another, each between two events, so that the time of the host does not count. The inputs of
successive calls are different memory, in turn.
"""

from __future__ import annotations

import array
import ctypes
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import nacre
import numpy as np

from .cases import load
from .clock import CALLS, WARM_UP, Clock
from .compare import Array
from .driver import Driver, device_number, is_lost
from .records import DeviceLostError, Record, began, ended, out_of_time

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8}
"""The bytes of an element."""
MOST_COPIES = 64


@dataclass(frozen=True)
class Timing:
    """A call to time, of the entries of an artifact in turn, which differ in their weights. `bytes` counts weights too.
    `peer` names the operation or the model of PyTorch that computes the same; it may be empty."""

    name: str
    artifact: str
    entries: tuple[str, ...]
    arguments: tuple[tuple[str, tuple[int, ...]], ...]
    result: tuple[str, tuple[int, ...]]
    bytes: int
    flops: int
    peer: str

    @staticmethod
    def read(content: Mapping[str, Any]) -> Timing:
        arguments = tuple((dtype, tuple(shape)) for dtype, shape in content["arguments"])
        dtype, shape = content["result"]
        entries = tuple(content["entries"])
        return Timing(**{**content, "entries": entries, "arguments": arguments, "result": (dtype, tuple(shape))})

    @property
    def result_bytes(self) -> int:
        dtype, shape = self.result
        return BYTES[dtype] * prod(shape)


def random_bits(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Returns random numbers; those of bf16 by their bits. Integers are 0 and 1, for indices and masks."""
    if dtype == "i64":
        return rng.integers(0, 2, shape)
    values = rng.standard_normal(shape, np.float32)
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f32": np.float32, "f16": np.float16}[dtype])


class Frames:
    """Copies of a call's tensors on the device, and a `nacre_call` for each."""

    def __init__(self, driver: Driver, model: nacre.Model, timing: Timing, copies: int) -> None:
        self.driver = driver
        rng = np.random.default_rng(0)
        host = [random_bits(dtype, shape, rng) for dtype, shape in timing.arguments]
        dims = array.array("q", [*model.entries[timing.entries[0]].bind(*host).values(), 0])
        self.pointers: list[int] = []
        self.kept: list[array.array[int]] = [dims]
        self.addresses: list[int] = []
        indices = [list(model.entries).index(entry) for entry in timing.entries]
        for copy in range(copies):
            index = indices[copy % len(indices)]
            inputs = [self._upload(x) for x in host]
            outputs = [self._allocate(timing.result_bytes)]
            places = array.array("Q", [*inputs, *outputs])
            begin = places.buffer_info()[0]
            words = [model._session.handle, index, begin, begin + 8 * len(inputs), dims.buffer_info()[0], 0, 0]
            frame = array.array("Q", words)
            self.kept += [places, frame]
            self.addresses.append(frame.buffer_info()[0])

    def _allocate(self, bytes: int) -> int:
        self.pointers.append(self.driver.allocate(bytes))
        return self.pointers[-1]

    def _upload(self, x: Array) -> int:
        pointer = self._allocate(x.nbytes)
        data = np.ascontiguousarray(x)
        self.driver.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(x.nbytes)
        )
        return pointer

    def release(self) -> None:
        for pointer in self.pointers:
            self.driver.release(pointer)


def copies_for(timing: Timing, l2_bytes: int) -> int:
    return max(2, len(timing.entries), min(MOST_COPIES, -(-2 * l2_bytes // timing.bytes)))


def calls_before(copies: int) -> int:
    """Returns the number of calls that are not measured: the second call with each copy records its graph."""
    return max(WARM_UP, 2 * copies)


def time_entry(driver: Driver, clock: Clock, model: nacre.Model, timing: Timing, l2_bytes: int) -> float:
    """Returns the median seconds of a call."""
    copies = copies_for(timing, l2_bytes)
    frames = Frames(driver, model, timing, copies)
    call = model._session.library.functions["call"]
    marks = []
    for number in range(calls_before(copies) + CALLS):
        begin = clock.record()
        if call(frames.addresses[number % len(frames.addresses)]):
            raise nacre.NacreError(model._session.library.error())
        marks.append((begin, clock.record()))
    times = clock.seconds(marks)[-CALLS:]
    frames.release()
    return median(times)


def time_all(folder: Path, timings: Sequence[Timing], device: str, first: int, deadline: float) -> Iterator[Record]:
    """Times everything in this process, and nothing of a peer. After the deadline, no timing begins."""
    driver = Driver()
    opened = driver.open(device_number(device))
    clock = Clock(driver)
    artifact = ""
    for timing in timings[first:]:
        if time.monotonic() > deadline:
            yield out_of_time()
            return
        yield began(timing.name)
        try:
            if timing.artifact != artifact:
                artifact, model = timing.artifact, load(folder, timing.artifact, device)
                model.use_stream(clock.stream.value)
            seconds = time_entry(driver, clock, model, timing, opened.l2_bytes)
        except Exception as error:
            yield ended(timing.name, f"{type(error).__name__}: {error}")
            if is_lost(device):
                raise DeviceLostError from None
        else:
            yield ended(timing.name, None, {"seconds": seconds, "bytes": timing.bytes, "flops": timing.flops})
