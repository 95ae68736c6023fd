"""Compiled models that nobody gave a place: kept in the user's cache, under a name made of all that went into them.

Nothing here decides what to compile, and nothing is ever thrown away; the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..runtime.loader import Model, NacreError, load
from .codegen.target import Target
from .parameters import open_parameters
from .pipeline import Build, source_hash
from .version import __version__

_ROOMS = [Path(__file__).parent.parent / room for room in ("compiler", "dialect", "passes", "runtime")]


def cache_folder() -> Path:
    """`$NACRE_CACHE`, else `nacre` in the user's cache folder."""
    chosen = os.environ.get("NACRE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre"
    except RuntimeError as error:
        help_text = "let NACRE_CACHE name a folder, or say where the output goes"
        raise DiagnosticError([Diagnostic("no-cache", f"there is no cache folder: {error}", help=help_text)]) from error


def _identify(files: Iterable[Path]) -> Iterator[str]:
    """What tells one state of files from another without reading them."""
    for path in files:
        status = path.stat()
        yield f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


@lru_cache(maxsize=1)
def _compiler() -> tuple[str, ...]:
    """The compiler itself: its version, and its files, which change while somebody works on it."""
    files = sorted(p for room in _ROOMS for suffix in ("py", "lark", "c", "h") for p in room.rglob(f"*.{suffix}"))
    return (__version__, *_identify(files))


def _cpu(target: Target) -> Iterator[str]:
    """What `native` means here, as far as the system tells: code for one CPU may not run on another."""
    if target.cpu != "native":
        return
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name {platform.processor()}"]
    yield from dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features")))


def cached_path(build: Build) -> Path:
    """Where the artifact of a build is, or would be. Raises DiagnosticError where its checkpoint does not fit."""
    elaborated, options = build.elaborated, build.options
    digest = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            digest.update(hashlib.sha256(part.encode()).digest())

    add(*_compiler(), *_cpu(options.target), repr(replace(options, timeout=0.0)), source_hash(elaborated.module))
    # A budget that has changed has to be checked again.
    add(*(repr(replace(budget, span=None)) for budget in elaborated.budgets))  # type: ignore[arg-type]  # no span, on purpose
    add(*_identify(open_parameters(elaborated).files()))
    return cache_folder() / f"{elaborated.module.name}-{digest.hexdigest()[:32]}.so"


def load_cached(build: Build, *, threads: int = 1) -> Model:
    """The artifact of a build, made only if it is not there, or if the build is to be dumped.

    Safe if several processes do so at once.
    """
    path = cached_path(build)
    if path.exists() and not build.dumps.active:
        try:
            return load(path, threads=threads)
        except NacreError:
            pass  # it was damaged, and is made again
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write into the cache `{path.parent}`: {(error.strerror or str(error)).lower()}"
        help_text = "let NACRE_CACHE name another folder"
        raise DiagnosticError([Diagnostic("cannot-write", message, help=help_text)]) from error
    build.run(path)
    return load(path, threads=threads)
