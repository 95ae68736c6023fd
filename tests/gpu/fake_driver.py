"""The fake driver for tests: it is compiled, is the driver that artifacts open, and runs kernels on this CPU."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import compile_kernels
import pytest
from assembler import find_cubins, kernels_in
from compile_kernels import REFUSED, build_driver, compile_ptx, find_others, find_ptx
from nacre.compiler.pipeline import Build

_COMPILER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)


_LIBC = ctypes.CDLL(None)


class _Symbol(ctypes.Structure):
    """The result of `dladdr`, a struct `Dl_info`; `file` is the path of the library that has an address."""

    _fields_ = (("file", ctypes.c_char_p), *((name, ctypes.c_void_p) for name in ("begin", "symbol", "address")))
    file: bytes | None


class Banks(ctypes.Structure):
    """Accesses to shared memory: their phases, the conflicts of these, which cost a step each, and the most conflicts
    of one access, and its instruction."""

    _fields_ = (
        ("phases", ctypes.c_uint64),
        ("conflicts", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
        ("worst", ctypes.c_char_p),
    )
    phases: int
    conflicts: int
    most: int
    worst: bytes | None


class Machine:
    """The device of the fake driver. One exists in a process, since an artifact opens the driver once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edit: Callable[[str], str] = str
        """Changes the PTX of every module that is loaded, to plant a fault."""
        self.library = ctypes.CDLL(str(build_driver(folder)))
        self.library.fake_error.restype = self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_banks.restype = Banks
        self._together: dict[str, Path] = {}
        self._callback = _COMPILER(self._compile)
        self.reset()

    def reset(
        self, capability: int = 80, devices: int = 1, memory: int = 1 << 33, processors: int = 4, version: int = 12090
    ) -> None:
        self.edit = str
        self._together = {}
        self.library.fake_processors(processors)
        self.library.fake_version(version)
        self.library.fake_name(b"a device in C")
        self.library.fake_reserve(ctypes.c_uint64(0))
        self.library.fake_set(self._callback, capability, devices, ctypes.c_uint64(memory))
        self.library.fake_fail(b"", 0)
        self.library.fake_clear()
        self.find_races()

    def find_races(self, is_wanted: bool = True) -> None:
        """Makes accesses of two threads of a block without a barrier between them an error from now on. Without it, the
        machine finds those that give a wrong result in one of the orders in which threads run here."""
        self.library.fake_find_races(int(is_wanted))

    def plant(self, pattern: str, replacement: str, kernels: Collection[str]) -> None:
        """Changes the code of some kernels from now on. The modules of others stay as they are."""

        def edit(text: str) -> str:
            is_wanted = any(f".entry {kernel}" in text for kernel in kernels)
            return re.sub(pattern, replacement, text) if is_wanted else text

        self.edit = edit

    def fail(self, function: str, nth: int = 1, result: int = 999) -> None:
        self.library.fake_fail_with(function.encode(), nth, result)

    def count_banks(self, call: Callable[[], object]) -> Banks:
        """Returns the accesses to the banks of shared memory in all launches of a call."""
        self.library.fake_count_banks(1)
        try:
            call()
            counted = self.library.fake_banks()
            assert isinstance(counted, Banks)
            return counted
        finally:
            self.library.fake_count_banks(0)

    def know_cubins(self, artifact: Path) -> int:
        """Tells the driver the PTX of each cubin in an artifact. Returns their number."""
        code = artifact.read_bytes()
        texts, cubins = find_ptx(code), find_cubins(code)
        for cubin in cubins:
            (text,) = (text for text in texts if all(f".entry {name}(" in text for name in kernels_in(cubin)))
            self.library.fake_know(cubin, ctypes.c_uint64(len(cubin)), text.encode())
        return len(cubins)

    @property
    def error(self) -> str:
        return str(self.library.fake_error().decode())

    @property
    def lacks_order(self) -> bool:
        """Whether the error is one that a missing barrier or wait leads to, or blocks that write the same element."""
        return any(text in self.error for text in ("a race", "never written", "in the same launch"))

    @property
    def log(self) -> list[str]:
        return self.library.fake_log().decode().splitlines()

    @property
    def launches(self) -> int:
        return int(self.library.fake_launches())

    @property
    def blocks(self) -> int:
        """The blocks of the last launch."""
        return self.blocks_of(self.launches - 1)

    def blocks_of(self, number: int) -> int:
        """Returns the blocks of a launch, one of the last 256, by its number from 0."""
        return int(self.library.fake_blocks_of(number))

    @property
    def left(self) -> int:
        """Memory, contexts, streams and modules that were not released."""
        return int(self.library.fake_left())

    def _compile(self, ptx: int, path: int, capacity: int, log: int, log_bytes: int) -> int:
        try:
            original = ctypes.string_at(ptx).decode()
            text = self.edit(original)
            made = self._compile_others(original, ptx) if text == original else compile_ptx(text, self.folder)
        except REFUSED as error:
            text = f"{type(error).__name__}: {error}".encode()[: log_bytes - 1] + b"\0"
            ctypes.memmove(log, text, len(text))
            return 1
        text = str(made).encode() + b"\0"
        ctypes.memmove(path, text, len(text))
        return 0

    def _compile_others(self, text: str, address: int) -> Path:
        """Compiles a module of an artifact, and its other small modules with it."""
        if text not in self._together:
            found = _Symbol()
            _LIBC.dladdr(ctypes.c_void_p(address), ctypes.byref(found))
            texts = find_others(text, Path(found.file.decode())) if found.file else [text]
            self._together |= dict.fromkeys(texts, compile_ptx(texts[0], self.folder, *texts[1:]))
        return self._together[text]


def kernels_of(build: Build, entry: str) -> list[str]:
    """Returns the kernels of an entry, in the order of its calls."""
    assert build.program is not None
    (function,) = (f for f in build.program.lowered.functions if f.name == entry)
    return list(dict.fromkeys(call.symbol for call in function.calls))


def schedules_of(build: Build, entry: str) -> list[str]:
    """Returns the schedules of the launches of an entry's kernels, in order."""
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    return [each for kernel in kernels_of(build, entry) for each in kernels[kernel].report.schedules]


@cache
def start_machine(folder: Path) -> Machine:
    """Starts the machine, and makes it the driver of this process."""
    if shutil.which("cc") is None:
        pytest.skip("the fake driver needs a C compiler named `cc`")
    machine = Machine(folder)
    os.environ["NACRE_CUDA_DRIVER"] = str(folder / "libfakecuda.so")
    return machine


def environment_of(folder: Path, bytes: int = 1 << 26, capability: int = 80) -> dict[str, str]:
    """Returns the environment of a process in which the fake driver runs without this module."""
    compiler = f"{sys.executable} {Path(compile_kernels.__file__).resolve()} {folder}"
    return os.environ | {
        "FAKE_CUDA_COMPILER": compiler,
        "FAKE_CUDA_BYTES": str(bytes),
        "FAKE_CUDA_CAPABILITY": str(capability),
    }
