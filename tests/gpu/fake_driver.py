"""The fake driver for tests: it is compiled, is the driver that artifacts open, and runs kernels on this CPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from ptx_to_c import UnknownError, translate

_HERE = Path(__file__).parent
_COMPILER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)
_FLAGS = ("-std=gnu11", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing")


class Machine:
    """The device of the fake driver. One exists in a process, since an artifact opens the driver once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edit: Callable[[str], str] = str
        """Changes the PTX of every module that is loaded, to plant a fault."""
        self.library = ctypes.CDLL(str(build_driver(folder)))
        self.library.fake_error.restype = self.library.fake_log.restype = ctypes.c_char_p
        self._callback = _COMPILER(self._compile)
        self.reset()

    def reset(self, capability: int = 80, devices: int = 1, memory: int = 1 << 33) -> None:
        self.edit = str
        self.library.fake_set(self._callback, capability, devices, ctypes.c_uint64(memory))
        self.library.fake_fail(b"", 0)
        self.library.fake_clear()

    def fail(self, function: str, nth: int = 1) -> None:
        self.library.fake_fail(function.encode(), nth)

    @property
    def error(self) -> str:
        return str(self.library.fake_error().decode())

    @property
    def log(self) -> list[str]:
        return self.library.fake_log().decode().splitlines()

    @property
    def launches(self) -> int:
        return int(self.library.fake_launches())

    @property
    def left(self) -> int:
        """Memory, contexts, streams and modules that were not released."""
        return int(self.library.fake_left())

    def _compile(self, ptx: bytes, path: int, capacity: int, log: int, log_bytes: int) -> int:
        try:
            made = compile_ptx(self.edit(ptx.decode()), self.folder)
        except (UnknownError, AssertionError, RuntimeError, KeyError) as error:
            text = f"{type(error).__name__}: {error}".encode()[: log_bytes - 1] + b"\0"
            ctypes.memmove(log, text, len(text))
            return 1
        text = str(made).encode() + b"\0"
        ctypes.memmove(path, text, len(text))
        return 0


def compile_ptx(ptx: str, folder: Path) -> Path:
    """Returns a library with the kernels of a PTX module, translated to C."""
    made = folder / f"{hashlib.sha256(ptx.encode()).hexdigest()[:24]}.so"
    if not made.exists():
        # Several processes may compile the same module.
        source, whole = (made.with_suffix(f".{os.getpid()}.{suffix}") for suffix in ("c", "so"))
        source.write_text(translate(ptx))
        driver = build_driver(folder)
        _run(whole, str(source), str(driver), f"-Wl,-rpath,{folder}")
        whole.rename(made)
    return made


def _run(made: Path, *inputs: str) -> None:
    command = ["cc", *_FLAGS, f"-I{_HERE}", *inputs, "-o", str(made), "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[:400])


def build_driver(folder: Path) -> Path:
    made = folder / "libfakecuda.so"
    if not made.exists():
        _run(made, str(_HERE / "fake_driver.c"), str(_HERE / "machine.c"), "-O2")
    return made


@cache
def start_machine(folder: Path) -> Machine:
    """Starts the machine, and makes it the driver of this process."""
    if shutil.which("cc") is None:
        pytest.skip("the fake driver needs a C compiler named `cc`")
    machine = Machine(folder)
    os.environ["NACRE_CUDA_DRIVER"] = str(folder / "libfakecuda.so")
    return machine


def environment_of(folder: Path, bytes: int = 1 << 26) -> dict[str, str]:
    """Returns the environment of a process in which the fake driver runs without this module."""
    compiler = f"{sys.executable} {Path(__file__).resolve()} {folder}"
    return os.environ | {"FAKE_CUDA_COMPILER": compiler, "FAKE_CUDA_BYTES": str(bytes)}


def main() -> int:
    """Compiles a module for such a process."""
    folder, source = map(Path, sys.argv[1:])
    try:
        print(compile_ptx(source.read_text(), folder))
    except (UnknownError, AssertionError, RuntimeError, KeyError) as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
