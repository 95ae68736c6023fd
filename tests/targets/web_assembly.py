"""Calls artifacts for WebAssembly in wasmtime: allocates tensors in the module's memory and calls its functions."""

from __future__ import annotations

import importlib.util
import shutil
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.dialect.types import Array, dtype_of
from nacre.runtime.arguments import DTYPE_CODES

TRIPLE = "wasm32-wasi"
_API = (
    *("describe", "last_error", "find_entry", "session_create", "session_destroy", "session_reserve", "bind"),
    *("result_shape", "workspace_bytes", "run", "call", "describe_calls", "observe", "record"),
)
"""The functions of `nacre_api`, which follow its two 32-bit fields."""


def need_engine() -> None:
    """Skips a test where no compiler or no engine is installed."""
    if importlib.util.find_spec("wasmtime") is None:
        pytest.skip("needs the package wasmtime")
    if shutil.which(f"{TRIPLE}-clang") is None and importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {TRIPLE}-clang, or the package ziglang")


@cache
def _engine() -> Any:
    import wasmtime  # noqa: PLC0415  (an optional package)

    return wasmtime, wasmtime.Engine()


def compile_module(artifact: Path) -> Any:
    """Returns the engine's code of an artifact, of which there may be any number of instances."""
    wasmtime, engine = _engine()
    return wasmtime.Module.from_file(engine, str(artifact))


class Instance:
    """An instance of an artifact. Addresses are offsets in its memory; a pointer has 4 bytes."""

    def __init__(self, module: Any) -> None:
        wasmtime, engine = _engine()
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        self.store = wasmtime.Store(engine)
        self.store.set_wasi(wasmtime.WasiConfig())
        self.exports = linker.instantiate(self.store, module).exports(self.store)
        self.exports["_initialize"](self.store)
        self.memory = self.exports["memory"]
        table = self.exports["nacre_get_api"](self.store, 1)
        assert table, "the module offers another version of the interface"
        places = struct.unpack(f"<{len(_API)}I", self.read(table + 8, 4 * len(_API)))
        functions = self.exports["__indirect_function_table"]
        self.functions = {name: functions.get(self.store, place) for name, place in zip(_API, places, strict=True)}
        self.session = self.create_session()

    def call(self, function: str, *arguments: int) -> Any:
        return self.functions[function](self.store, *arguments)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, address, address + size))

    def text(self, address: int) -> str:
        data = b""
        while not data.endswith(b"\0"):
            data += self.read(address + len(data), 1)
        return data[:-1].decode()

    def place(self, data: bytes) -> int:
        """Copies bytes into the module's memory, aligned to 64 bytes. Returns their address."""
        size = (len(data) + 63) // 64 * 64 or 64
        address = int(self.exports["aligned_alloc"](self.store, 64, size))
        assert address, f"the module has no memory for {size} bytes"
        self.memory.write(self.store, data, address)
        return address

    def create_session(self) -> int:
        place = self.place(bytes(4))
        status = self.call("session_create", 0, place)
        assert status == 0, self.text(self.call("last_error"))
        return int(struct.unpack("<I", self.read(place, 4))[0])

    def tensors(self, arrays: Sequence[Array]) -> tuple[int, list[int]]:
        """Places `nacre_tensor`s. Returns the address of the first, and those of the data."""
        data = [self.place(np.ascontiguousarray(a).tobytes()) for a in arrays]
        records = b""
        for address, a in zip(data, arrays, strict=True):
            shape = self.place(struct.pack(f"<{a.ndim}q", *a.shape))
            records += struct.pack("<IIIii", address, shape, 0, DTYPE_CODES[dtype_of(a).name], a.ndim)
        return self.place(records), data

    def run(self, entry: int, inputs: Sequence[Array], results: Sequence[Array]) -> tuple[Array, ...] | int:
        """Calls an entry with arrays of the shapes and dtypes of its results. Returns these, or the status if it is not
        0."""
        given, _ = self.tensors(inputs)
        made, places = self.tensors([np.zeros(r.shape, r.dtype) for r in results])
        dims = self.place(bytes(8 * 32))
        status = self.call("bind", entry, given, len(inputs), dims)
        if status:
            return int(status)
        size = self.call("workspace_bytes", entry, dims)
        workspace = self.place(bytes(size))
        status = self.call("run", self.session, entry, given, len(inputs), made, len(results), workspace, size)
        if status:
            return int(status)
        read = [self.read(place, r.nbytes) for place, r in zip(places, results, strict=True)]
        return tuple(np.frombuffer(data, r.dtype).reshape(r.shape) for data, r in zip(read, results, strict=True))


class Engine:
    """WebAssembly in the place of an emulator."""

    machine = "wasm32"
    triple = TRIPLE
    compiler = None  # the compiler finds one itself

    def need(self) -> None:
        need_engine()

    def call(
        self, artifact: Path, calls: Iterable[tuple[int, Sequence[Array], Sequence[Array]]]
    ) -> list[tuple[Array, ...] | int]:
        """Calls entries. Nothing frees what was placed in a memory, so each call gets an instance of its own."""
        module = compile_module(artifact)
        return [Instance(module).run(*call) for call in calls]
