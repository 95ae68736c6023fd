"""Calls artifacts of other machines: a cross compiler links them, qemu runs them, a C program calls their entries."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.dialect.types import Array, dtype_of
from nacre.runtime.arguments import DTYPE_CODES

CPUS = {"riscv64": "rv64,v=true,Zfhmin=true"}
"""The CPU to emulate, where the default one lacks instructions of the family."""

SOURCE = Path(__file__).with_name("calls.c")


@dataclass(frozen=True)
class Emulator:
    """qemu for one machine, and the cross compiler of its triple."""

    machine: str

    @property
    def triple(self) -> str:
        return f"{self.machine}-linux-gnu"

    @property
    def compiler(self) -> str | None:
        return shutil.which(f"{self.triple}-gcc")

    @property
    def command(self) -> str | None:
        return shutil.which(f"qemu-{self.machine}") or shutil.which(f"qemu-{self.machine}-static")

    @property
    def version(self) -> int:
        """The major version of qemu."""
        shown = subprocess.run([str(self.command), "--version"], capture_output=True, text=True, check=True).stdout
        return int(shown.split("version ", 1)[1].split(".", 1)[0])

    @property
    def libraries(self) -> Path:
        return Path("/usr", self.triple)

    def need(self) -> None:
        """Skips a test where the machine cannot be emulated."""
        if self.compiler is None or self.command is None or not self.libraries.exists():
            pytest.skip(f"needs {self.triple}-gcc, qemu-{self.machine}, and the C library in {self.libraries}")

    def call(
        self, artifact: Path, calls: Iterable[tuple[int, Sequence[Array], Sequence[Array]]]
    ) -> list[tuple[Array, ...] | int]:
        """For each call of an entry with inputs, and arrays of the shapes and dtypes of its results: the results, or
        the status where it is not 0."""
        program, given, made = (artifact.with_name(name) for name in ("calls", "calls.in", "calls.out"))
        if not program.exists():
            command = [str(self.compiler), "-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{RUNTIME_FOLDER}", str(SOURCE)]
            subprocess.run([*command, "-o", str(program), "-ldl"], check=True)
        calls = list(calls)
        given.write_bytes(b"".join(_written(*call) for call in calls))
        cpu = ["-cpu", CPUS[self.machine]] if self.machine in CPUS else []
        command = [
            str(self.command),
            *cpu,
            "-L",
            str(self.libraries),
            str(program),
            str(artifact),
            str(given),
            str(made),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        data, at = made.read_bytes(), 0
        answers: list[tuple[Array, ...] | int] = []
        for _, _, results in calls:
            (status,) = struct.unpack_from("q", data, at)
            at += 8
            arrays = []
            for result in results:
                arrays.append(np.frombuffer(data, result.dtype, result.size, at).reshape(result.shape))
                at += result.nbytes
            answers.append(status or tuple(arrays))
        assert at == len(data)
        return answers


def _written(entry: int, inputs: Sequence[Array], results: Sequence[Array]) -> bytes:
    parts = [struct.pack("3q", entry, len(inputs), len(results))]
    for array in (*inputs, *results):
        parts.append(_head(array))
        if len(parts) <= 2 * len(inputs):
            parts.append(np.ascontiguousarray(array).tobytes())
    return b"".join(parts)


def _head(array: Array) -> bytes:
    numbers = (DTYPE_CODES[dtype_of(array).name], array.ndim, *array.shape, array.nbytes)
    return struct.pack(f"{len(numbers)}q", *numbers)
