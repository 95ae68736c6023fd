"""Finds a C compiler, compiles the fixed runtime with it, and links artifacts.

Every path that a tool receives is relative to a temporary folder and has a constant name, so that the output does not
depend on the machine or the time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ... import runtime
from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ...dialect.lazy_dataclass import dataclass
from ..base.store import Store
from ..targets.families import FAMILIES
from ..targets.system import LINUX, NO_DEVICE, System
from .glibc import BASE_VERSIONS, stub_sources

RUNTIME_FOLDER = Path(runtime.__file__).parent
RUNTIME_HEADERS = tuple(
    f"{stem}.h"
    for stem in (
        *(
            "abi",
            "affinity",
            "cpu",
            "device",
            "floating",
            "helpers",
            "internal",
            "job",
            "memory",
            "park",
            "pool",
            "pool_layout",
            "share",
            "state",
            "tables",
            "ticks",
            "workers",
        ),
        *("cuda/code", "cuda/driver", "cuda/graph", "cuda/program", "cuda/session", "cuda/tiles"),
    )
)


@dataclass(frozen=True, slots=True)
class Linker:
    """A C compiler driver that also assembles and links."""

    command: tuple[str, ...]
    machine: str = platform.machine()
    devices: tuple[str, ...] = ()
    """The C sources that reach devices, if the artifact has code for some."""

    @property
    def system(self) -> System:
        """The system of its artifacts."""
        family = FAMILIES.get(self.machine)
        return LINUX if family is None else family.system

    @property
    def jump(self) -> tuple[str, ...]:
        """The instructions that call another function with the same arguments. Raises DiagnosticError for an
        architecture that no family describes."""
        family = FAMILIES.get(self.machine)
        if family is None:
            message = f"no library can be made for machines of `{self.machine}`"
            help_text = f"the architectures are {', '.join(name for name, family in FAMILIES.items() if family.jump)}"
            raise DiagnosticError([Diagnostic("unknown-target", message, help=help_text)])
        return family.jump

    @property
    def runtime(self) -> tuple[str, ...]:
        """The C sources of the runtime, without `.c`."""
        own = self.system.runtime
        return (*(stem for stem in own if stem != NO_DEVICE), *self.devices) if self.devices else tuple(own)

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command or Path(self.command[0]).stem == "zig"

    @property
    def stubs(self) -> tuple[str, ...]:
        """The libraries whose stubs are linked. zig has its own stubs, and musl has no symbol versions."""
        if self.is_zig or self.machine not in BASE_VERSIONS:
            return ()
        is_glibc = self.machine != platform.machine() or platform.libc_ver()[0] == "glibc"
        return tuple(stub_sources(self.machine)) if is_glibc else ()

    @property
    def static(self) -> tuple[str, ...]:
        """The libraries that become part of the runtime. glibc has `pthread_atfork` in one beside the stubbed ones."""
        return ("-lc_nonshared",) if self.stubs else ()

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of an artifact, after its objects. Stubs replace those of the system, which take longer to
        read than everything else takes to link. The functions that compilers call by themselves remain."""
        if self.stubs:
            return ("-nodefaultlibs", builtins_of(self))
        return ("-lm", "-ldl") if self.devices else ("-lm",)

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
    help_text = "install a C compiler (`apt install gcc`) or `pip install nacre[zig]`, or set CC"
    return DiagnosticError([Diagnostic("no-linker", message, help=help_text)])


@lru_cache(maxsize=8)
def builtins_of(linker: Linker) -> str:
    """Returns the path of the library of the functions that compilers call by themselves, such as conversions of f16.
    zig links its own."""
    arguments = ("-print-libgcc-file-name",)
    result = linker.run(arguments, Path(tempfile.gettempdir()))
    if result.returncode:
        raise _failure("find its own library for", [*linker.command, *arguments], result)
    return result.stdout.strip()


def find_linker(cc: str | Sequence[str] | None = None, triple: str = "") -> Linker:
    """Returns the compiler that `cc` or the variable CC names, else one on the path, else that of the `ziglang`
    package.

    For the triple of another machine, it looks for a compiler whose name contains the triple, as on Debian.
    """
    machine = triple.split("-", 1)[0] or platform.machine()
    foreign = machine != platform.machine()
    given = cc or os.environ.get("CC")
    if given:
        command = tuple(shlex.split(given)) if isinstance(given, str) else tuple(given)
        origin = "`cc`" if cc else "the variable CC"
        if not command or shutil.which(command[0]) is None:
            raise _no_linker(f"the C compiler `{shlex.join(command)}` that {origin} names was not found")
        return Linker(command, machine)
    for name in (f"{triple}-gcc", f"{triple}-clang") if foreign else ("cc", "gcc", "clang"):
        if shutil.which(name):
            return Linker((name,), machine)
    if importlib.util.find_spec("ziglang"):
        return Linker((sys.executable, "-m", "ziglang", "cc", *(["-target", triple] if foreign else [])), machine)
    raise _no_linker(f"no C compiler was found to link the artifact{f' for {triple}' if foreign else ''}")


def _failure(action: str, command: Sequence[str], result: subprocess.CompletedProcess[str]) -> DiagnosticError:
    lines = [line for line in (result.stderr or result.stdout).strip().splitlines() if line.strip()]
    message = f"the C compiler could not {action} the artifact: exit status {result.returncode}"
    shown = [Note(line.strip()) for line in lines[-8:]]
    return DiagnosticError([Diagnostic("link-failed", message, notes=(Note(f"ran {shlex.join(command)}"), *shown))])


@lru_cache(maxsize=8)
def _read_sources(stems: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the C sources of a runtime and all headers, with their texts."""
    files = (*(f"{stem}.c" for stem in stems), *RUNTIME_HEADERS)
    return tuple((file, (RUNTIME_FOLDER / file).read_text()) for file in files)


_made: dict[str, tuple[tuple[str, bytes], ...]] = {}
"""The compiled runtimes of this process, by their keys."""


def _runtime_objects(
    linker: Linker, sources: tuple[tuple[str, str], ...], kept: Path | None
) -> tuple[tuple[str, bytes], ...]:
    """Returns the compiled runtime and the stubs of the C library, cached in memory and in the folder `kept`: every
    artifact needs them."""
    family = FAMILIES.get(linker.machine)
    dialect = [] if family is None else list(family.driver_flags)
    key = _key(linker, tuple(dialect), sources)
    if key not in _made:
        _made[key] = _kept_objects(linker, Store(kept), key) or _compiled_objects(linker, dialect, sources)
    if kept is not None and not all((kept / f"{key}-{name}").exists() for name, _ in _made[key]):
        # Another process may use this folder, even if this one already has the objects.
        store = Store(kept)
        for name, data in _made[key]:
            store.put(f"{key}-{name}", data)
    return _made[key]


def prepare_runtime(linker: Linker, kept: Path | None) -> None:
    """Compiles the runtime for this process and its forks, unless it is cached. Raises DiagnosticError."""
    _runtime_objects(linker, _read_sources(linker.runtime), kept)


def _object_names(linker: Linker) -> list[str]:
    """Returns the files of the compiled runtime and the stubs. The objects of ELF are merged into one: every artifact
    writes and links them. zig merges none."""
    merged = linker.system.format == "elf" and not linker.is_zig
    return [*([_MERGED] if merged else map(_object_name, linker.runtime)), *linker.stubs]


_MERGED = "runtime.o"


def _object_name(stem: str) -> str:
    return f"runtime_{stem.replace('/', '_')}.o"


def _kept_objects(linker: Linker, store: Store, key: str) -> tuple[tuple[str, bytes], ...]:
    """Returns the objects of a store; none if it lacks one of them."""
    found = [(name, data) for name in _object_names(linker) if (data := store.get(f"{key}-{name}")) is not None]
    return tuple(found) if len(found) == len(_object_names(linker)) else ()


def _compiled_objects(
    linker: Linker, dialect: Sequence[str], sources: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, bytes], ...]:
    with tempfile.TemporaryDirectory(prefix="nacre-") as name:
        folder = Path(name)
        for file, text in sources:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        _compile(linker, folder, dialect, sources)
        names = _object_names(linker)
        if _MERGED in names:
            _merge(linker, folder, _MERGED, [*map(_object_name, linker.runtime), *linker.static])
        _make_stubs(linker, folder)
        return tuple((file, (folder / file).read_bytes()) for file in names)


@lru_cache(maxsize=8)
def _key(linker: Linker, dialect: tuple[str, ...], sources: tuple[tuple[str, str], ...]) -> str:
    """Returns the cache key of the compiled runtime: the sources, the flags, and the path and date of the compiler."""
    stubs = [text for pair in stub_sources(linker.machine).values() for text in pair] if linker.stubs else []
    texts = [*stubs, *(part for source in sources for part in source)]
    flags = [*linker.system.compile_flags, *dialect, *linker.system.merge_flags, *linker.static]
    parts = [*linker.command, *_dates(linker), *flags, *texts]
    return hashlib.sha256(b"".join(hashlib.sha256(part.encode()).digest() for part in parts)).hexdigest()


def _dates(linker: Linker) -> list[str]:
    """Returns the path, the size and the date of the compiler."""
    compiler = Path(shutil.which(linker.command[0]) or linker.command[0]).resolve()
    package = importlib.util.find_spec("ziglang") if linker.is_zig else None
    files = [compiler, *([Path(package.origin)] if package is not None and package.origin else [])]
    return [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files if file.exists()]


_compiled: dict[tuple[str, ...], bytes] = {}
"""The objects that this process compiled, by the compiler, the flags, the names and the texts that they depend on.
Runtimes that differ in a few sources share the others."""


def _compile(linker: Linker, folder: Path, dialect: Sequence[str], sources: Sequence[tuple[str, str]]) -> None:
    """Compiles the runtime, one source at a time, since zig writes the first object of several alone."""
    flags = linker.system.compile_flags
    texts = dict(sources)
    shared = [*linker.command, *_dates(linker), *dialect]
    shared += [part for source in sources if source[0].endswith(".h") for part in source]
    for stem in linker.runtime:
        arguments = [*flags, "-c", f"{stem}.c", "-o", _object_name(stem)]
        key = (*shared, *arguments, texts[f"{stem}.c"])
        if (known := _compiled.get(key)) is not None:
            (folder / _object_name(stem)).write_bytes(known)
            continue
        result = linker.run([*dialect, *arguments], folder)
        if result.returncode > 0 and dialect:
            result = linker.run(arguments, folder)
        if result.returncode:
            raise _failure("compile the runtime of", [*linker.command, *arguments], result)
        _compiled[key] = (folder / _object_name(stem)).read_bytes()


def _make_stubs(linker: Linker, folder: Path) -> None:
    for library in linker.stubs:
        code, script = stub_sources(linker.machine)[library]
        (folder / "stub.c").write_text(code)
        (folder / "stub.map").write_text(script)
        flags = ("-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=none", "-Wl,--version-script=stub.map")
        arguments = [*flags, f"-Wl,-soname,{library}", "-o", library, "stub.c"]
        result = linker.run(arguments, folder)
        if result.returncode:
            raise _failure("link the stubs for", [*linker.command, *arguments], result)


def merge_objects(linker: Linker, objects: Sequence[bytes]) -> bytes:
    """Merges object files into one relocatable object that defines all their symbols."""
    with tempfile.TemporaryDirectory(prefix="nacre-") as name:
        folder = Path(name)
        names = [f"code_{i}.o" for i in range(len(objects))]
        for file, data in zip(names, objects, strict=True):
            (folder / file).write_bytes(data)
        _merge(linker, folder, "merged.o", names)
        return (folder / "merged.o").read_bytes()


def _merge(linker: Linker, folder: Path, output: str, objects: Sequence[str]) -> None:
    arguments = [*linker.system.merge_flags, "-o", output, *objects]
    result = linker.run(arguments, folder)
    if result.returncode:
        raise _failure("merge the objects of", [*linker.command, *arguments], result)


def link(
    linker: Linker, folder: Path, objects: Sequence[str], exports: Sequence[str], output: str, kept: Path | None = None
) -> None:
    """Links `data.s` and the named objects, all in `folder`, with the runtime. The runtime's objects are cached in the
    folder `kept`, if it is not None."""
    system = linker.system
    sources = _read_sources(linker.runtime)
    compiled = _runtime_objects(linker, sources, kept)
    for file, data in compiled:
        (folder / file).write_bytes(data)
    (folder / "exports.map").write_text(f"{{ global: {' '.join(f'{e};' for e in exports)} local: *; }};\n")
    libraries = ["-Wl,--exclude-libs,ALL"] if not linker.is_zig and system.format == "elf" else []
    inputs = ["data.s", *objects, *(file for file, _ in compiled)]
    arguments = [
        *system.compile_flags,
        *system.link_flags,
        *system.export(exports),
        *libraries,
        "-o",
        output,
        *inputs,
        *linker.libraries,
    ]
    result = linker.run(arguments, folder)
    if result.returncode:
        raise _failure("link", [*linker.command, *arguments], result)


def link_shared(linker: Linker, folder: Path, objects: Sequence[str], output: str) -> None:
    """Links the named objects, all in `folder`, to a library for this process, which has loaded the C library and the
    libraries with stubs. The linker does not read these, which takes longer than all else that it does."""
    plain = [] if linker.is_zig else ["-nostdlib", builtins_of(linker)]
    arguments = ["-shared", "-o", output, *objects, *([] if linker.stubs else ["-lm"]), *plain]
    result = linker.run(arguments, folder)
    if result.returncode:
        raise _failure("link the functions of", [*linker.command, *arguments], result)
