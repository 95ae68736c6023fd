"""Finds a C compiler, compiles the fixed runtime with it, and links artifacts.

Every path that a tool sees is relative to a temporary folder and has a constant name, so that nothing of this machine
or moment gets into what is written.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ... import runtime
from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note

RUNTIME_FOLDER = Path(runtime.__file__).parent
RUNTIME_SOURCES = ("api.c", "check.c", "error.c", "session.c")
RUNTIME_HEADERS = ("abi.h", "internal.h", "tables.h")

_COMPILE_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden")
_LINK_FLAGS = (
    "-shared",
    "-Wl,--build-id=none",
    "-Wl,--as-needed",
    "-Wl,-z,noexecstack",
    "-Wl,-z,relro",
    "-Wl,-z,now",
    "-Wl,-z,defs",
    "-Wl,--version-script=exports.map",
)


@dataclass(frozen=True, slots=True)
class Linker:
    """A C compiler driver that also assembles and links."""

    command: tuple[str, ...]

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command or Path(self.command[0]).stem == "zig"

    def run(self, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LC_ALL": "C"}
        try:
            return subprocess.run(
                [*self.command, *arguments],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise _no_linker(f"cannot run `{shlex.join(self.command)}`: {error.strerror}") from error


def _no_linker(message: str) -> DiagnosticError:
    help_text = "install a C compiler (`apt install gcc`) or `pip install nacre[zig]`, or let CC name one"
    return DiagnosticError([Diagnostic("no-linker", message, help=help_text)])


def find_linker(cc: str | Sequence[str] | None = None) -> Linker:
    """What `cc` or the variable CC names, else a compiler on the path, else the one of the `ziglang` package."""
    given = cc or os.environ.get("CC")
    if given:
        command = tuple(shlex.split(given)) if isinstance(given, str) else tuple(given)
        origin = "`cc`" if cc else "the variable CC"
        if not command or shutil.which(command[0]) is None:
            raise _no_linker(f"the C compiler `{shlex.join(command)}` that {origin} names was not found")
        return Linker(command)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return Linker((name,))
    if importlib.util.find_spec("ziglang"):
        return Linker((sys.executable, "-m", "ziglang", "cc"))
    raise _no_linker("no C compiler was found to link the artifact")


def _failure(action: str, command: Sequence[str], result: subprocess.CompletedProcess[str]) -> DiagnosticError:
    lines = [line for line in (result.stderr or result.stdout).strip().splitlines() if line.strip()]
    message = f"the C compiler could not {action} the artifact: exit status {result.returncode}"
    shown = [Note(line.strip()) for line in lines[-8:]]
    return DiagnosticError([Diagnostic("link-failed", message, notes=(Note(f"ran {shlex.join(command)}"), *shown))])


@lru_cache(maxsize=8)
def _runtime_objects(linker: Linker, sources: tuple[tuple[str, str], ...]) -> tuple[tuple[str, bytes], ...]:
    """The compiled runtime; in memory, since a process that builds many artifacts needs it every time."""
    with tempfile.TemporaryDirectory(prefix="nacre-") as name:
        folder = Path(name)
        for file, text in sources:
            (folder / file).write_text(text)
        # TLS descriptors make no use of __tls_get_addr, which would add the dynamic loader to the needed libraries.
        dialect = ["-mtls-dialect=gnu2"] if platform.machine() in ("x86_64", "AMD64") else []
        return tuple(_compile(linker, folder, Path(source).stem, dialect) for source in RUNTIME_SOURCES)


def _compile(linker: Linker, folder: Path, stem: str, dialect: Sequence[str]) -> tuple[str, bytes]:
    arguments = [*_COMPILE_FLAGS, "-c", f"{stem}.c", "-o", f"runtime_{stem}.o"]
    result = linker.run([*dialect, *arguments], folder)
    if result.returncode and dialect:
        result = linker.run(arguments, folder)
    if result.returncode:
        raise _failure("compile the runtime of", [*linker.command, *arguments], result)
    return f"runtime_{stem}.o", (folder / f"runtime_{stem}.o").read_bytes()


def link(linker: Linker, folder: Path, objects: Sequence[str], exports: Sequence[str], output: str) -> None:
    """Links `tables.c`, `blob.s` and the named objects, which stand in `folder`, with the runtime."""
    sources = tuple((file, (RUNTIME_FOLDER / file).read_text()) for file in (*RUNTIME_SOURCES, *RUNTIME_HEADERS))
    compiled = _runtime_objects(linker, sources)
    for file, data in compiled:
        (folder / file).write_bytes(data)
    for file in RUNTIME_HEADERS:
        shutil.copyfile(RUNTIME_FOLDER / file, folder / file)
    (folder / "exports.map").write_text(f"{{ global: {' '.join(f'{e};' for e in exports)} local: *; }};\n")
    libraries = ["-Wl,--exclude-libs,ALL"] if not linker.is_zig else []
    inputs = ["tables.c", "blob.s", *objects, *(file for file, _ in compiled)]
    arguments = [*_COMPILE_FLAGS, *_LINK_FLAGS, *libraries, "-o", output, *inputs, "-lm"]
    result = linker.run(arguments, folder)
    if result.returncode:
        raise _failure("link", [*linker.command, *arguments], result)
