"""Observes the calls of a loaded model: the outputs of every kernel, right after it, and its times on each thread.

    with observe(model, tell):        # tell(event), after each kernel
        model(x)
    with record(model) as recording:  # times alone, at next to no cost
        model(x)

A model that is not observed runs code without any overhead of observation. Requires only ctypes and numpy.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

import numpy as np

from .arguments import Argument, Array
from .library import Library, NacreError
from .loader import Entry, Model

Size = int | str
"""An integer, or a formula of the dims as an artifact's descriptions spell it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator that a kernel computes. `scope` is the dotted path of the block instance that contains it, `at` its
    file, line and column; `flops` counts its floating-point operations. `factors` is the dtype of the multiplied
    operands, or the one that code may round them to, if it is a sum of products."""

    op: str
    scope: str
    at: str | None
    flops: Size
    factors: str | None = None

    @property
    def line(self) -> str:
        """The file and line of the operator, or `?` if there is none."""
        return self.at.rpartition(":")[0] if self.at else "?"


@dataclass(frozen=True, slots=True)
class Point:
    """A named value of the model. Every build of the model gives it the same name: `layer.0.attention.q`, or
    `layer.0.attention.add@11:10` after operator, line and column if the model gives none. Transposed by `axes`, if
    there are any, a tensor has its axes in the order of the model."""

    name: str
    axes: tuple[int, ...]

    def turn(self, array: Array) -> Array:
        """Returns the tensor with its axes in the order of the model."""
        return array.transpose(self.axes) if self.axes else array


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that a kernel writes, into output `output` of the call or at `offset` bytes of the workspace. `point` is
    the corresponding named value of the model, if there is one."""

    name: str
    type: Argument
    operation: Operation | None
    output: int | None
    offset: Size
    point: Point | None


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a kernel by an entry. `bytes` counts its reads and writes, each tensor once."""

    number: int
    kernel: str
    kind: str
    bytes: Size
    operations: tuple[Operation, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a kernel that one thread computed: the start of its first work item, the end of its last, and its
    compute time."""

    thread: int
    begin: int
    end: int
    busy: int


@dataclass(frozen=True, slots=True)
class Event:
    """A kernel that has just run, in the `run`-th observed call. Times are nanoseconds of `time.perf_counter_ns`; those
    of a kernel on a GPU, which has no `shares`, include its launch and the wait for its end. Those of
    `record` do not."""

    entry: str
    call: Call
    run: int
    begin: int
    end: int
    dims: Mapping[str, int]
    shares: tuple[Share, ...]
    _buffers: Mapping[str, tuple[int, np.dtype[Any]]]

    def array(self, value: Value) -> Array:
        """Returns the memory of one of the call's values. It is valid until the callback returns: copy data that must
        be kept. The following kernels read data that is written to it; kernels on a GPU do not, since it is a copy."""
        address, dtype = self._buffers[value.name]
        return _memory(address, tuple(evaluate(size, self.dims) for size in value.type.shape), dtype)


@lru_cache(maxsize=1 << 12)
def _formula(text: str) -> CodeType:
    return compile(text, "<size>", "eval")


def evaluate(size: Size, dims: Mapping[str, int]) -> int:
    """Returns the value of a size. Formulas are integers, dims, `+ - * //`, `min` and `max`: Python's own arithmetic.

    They come from an artifact, whose machine code runs in this process anyhow.
    """
    if isinstance(size, int):
        return size
    return int(eval(_formula(size), {"__builtins__": {}, "min": min, "max": max}, dict(dims)))


def _memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, memoryview((ctypes.c_uint8 * size).from_address(address)))


class _Share(ctypes.Structure):
    _fields_ = (("thread", ctypes.c_uint64), *((n, ctypes.c_int64) for n in ("begin", "end", "busy")))


class _Event(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_uint64),
        ("entry", ctypes.c_int32),
        ("call", ctypes.c_int32),
        ("begin", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("workspace", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("shares", ctypes.POINTER(_Share)),
        ("share_count", ctypes.c_int64),
    )


_Tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Event))


class _Observer(ctypes.Structure):
    _fields_ = (("tell", _Tell), ("data", ctypes.c_void_p))


class _Recording(ctypes.Structure):
    _fields_ = (("records", ctypes.c_void_p), ("capacity", ctypes.c_int64), ("count", ctypes.c_int64))


RECORD = np.dtype(
    [
        ("run", np.uint64),
        ("entry", np.int32),
        ("call", np.int32),
        ("begin", np.int64),
        ("end", np.int64),
        ("thread", np.uint64),
        ("share_begin", np.int64),
        ("share_end", np.int64),
        ("busy", np.int64),
    ]
)
"""The struct `nacre_record` of abi.h: a kernel's times, and those of one thread in it; with `call` -1, the times of a
run."""


def calls(model: Model) -> dict[str, tuple[Call, ...]]:
    """Returns the kernel calls of each entry on the model's device, in order; none if an artifact does not list
    them."""
    library = model._session.library
    if "describe_calls" not in library.functions:
        raise NacreError(f"model `{model.name}` was compiled by an older Nacre: it cannot be observed")
    return read_calls(library, "entries" if model.device == "cpu" else "device")


def read_calls(library: Library, part: str = "entries") -> dict[str, tuple[Call, ...]]:
    """Returns the kernel calls of each entry of an artifact that lists them; its `device` part is for GPUs."""
    text: object = library.functions["describe_calls"]()
    assert isinstance(text, bytes)
    entries: Sequence[Mapping[str, Any]] = json.loads(text).get(part, ())
    return {e["name"]: tuple(_read_call(i, c) for i, c in enumerate(e["calls"])) for e in entries}


def _read_call(number: int, described: Mapping[str, Any]) -> Call:
    operations = tuple(
        Operation(o["op"], o["scope"], o["at"], o["flops"], o.get("factors")) for o in described["operations"]
    )
    values = tuple(
        Value(
            v["name"],
            Argument(v["name"], v["type"], v["dtype"], tuple(v["shape"])),
            None if v["operation"] is None else operations[v["operation"]],
            v.get("output"),
            v.get("workspace", 0),
            Point(v["point"]["name"], tuple(v["point"]["axes"])) if v.get("point") else None,
        )
        for v in described["values"]
    )
    return Call(number, described["kernel"], described["kind"], described["bytes"], operations, values)


@contextmanager
def _observing(model: Model, tell: Any, data: int | None) -> Iterator[None]:
    session = model._session
    observe = session.library.functions["observe"]
    observer = _Observer(tell, data)
    if session.observer is not None:
        raise NacreError(f"model `{model.name}` is observed already")
    session.observer = observer, tell
    if observe(session.handle, ctypes.addressof(observer)) != 0:
        session.observer = None
        raise NacreError(f"model `{model.name}` cannot be observed: {session.library.error()}")
    try:
        yield
    finally:
        observe(session.handle, None)
        session.observer = None


@contextmanager
def observe(model: Model, tell: Callable[[Event], None]) -> Iterator[None]:
    """A context in which `tell(event)` is called after every kernel of every call of the model, in the thread of the
    call.

    All calls must end before the context does. After an exception in `tell`, there are no further events; the calls
    continue, and the exception is raised at the end of the context. On a GPU, each kernel is launched separately, and
    the values that it wrote are copied to the host. Raises NacreError if the artifact is too old, or if the model is
    observed already.
    """
    known = calls(model)
    entries = list(model.entries.values())
    failures: list[BaseException] = []

    def reported(_: object, pointer: Any) -> None:
        event: _Event = pointer.contents
        if event.call < 0 or failures:
            return
        try:
            entry = entries[event.entry]
            tell(_make_event(entry, known[entry.name][event.call], event))
        except BaseException as failure:
            failures.append(failure)

    with _observing(model, _Tell(reported), None):
        yield
    if failures:
        raise failures[0]


def _make_event(entry: Entry, call: Call, event: _Event) -> Event:
    dims = {name: event.dims[i] for i, name in enumerate(entry.dims)}
    shares = (event.shares[i] for i in range(event.share_count))
    buffers = {
        v.name: (
            (event.workspace or 0) + evaluate(v.offset, dims) if v.output is None else event.outputs[v.output] or 0,
            entry._dtypes.of(v.type),
        )
        for v in call.values
    }
    return Event(
        entry.name,
        call,
        event.run,
        event.begin,
        event.end,
        dims,
        tuple(Share(s.thread, s.begin, s.end, s.busy) for s in shares),
        buffers,
    )


@dataclass
class Recording:
    """The times of calls: `records` is an array of `RECORD`, complete when the block has ended."""

    model: Model
    _memory: np.ndarray[tuple[int], np.dtype[Any]] = field(repr=False)
    _state: _Recording = field(repr=False)

    @property
    def records(self) -> np.ndarray[tuple[int], np.dtype[Any]]:
        count: int = self._state.count
        return self._memory[: min(count, len(self._memory))]

    @property
    def free(self) -> int:
        """The number of records that still fit."""
        return len(self._memory) - len(self.records)

    @property
    def lost(self) -> int:
        """The number of records that did not fit."""
        count: int = self._state.count
        return max(0, count - len(self._memory))

    @cached_property
    def calls(self) -> tuple[tuple[Call, ...], ...]:
        """The calls of each entry, by the entry's index."""
        return tuple(calls(self.model).values())


@contextmanager
def record(model: Model, capacity: int = 1 << 16) -> Iterator[Recording]:
    """A context in which the times of all kernels are recorded, in at most `capacity` records: one for each kernel and
    each thread that computes a part of it, and one for each call. All calls must end before the context does. On a GPU,
    the device itself stores the times, before and after each kernel; no thread is recorded. Raises NacreError as
    `observe`."""
    known = model._session.library.functions
    if "record" not in known:
        raise NacreError(f"model `{model.name}` was compiled by an older Nacre: it cannot be observed")
    memory = np.zeros(capacity, RECORD)
    state = _Recording(memory.ctypes.data, capacity, 0)
    function: Any = known["record"]
    tell = ctypes.cast(function, _Tell)
    with _observing(model, tell, ctypes.addressof(state)):
        yield Recording(model, memory, state)
