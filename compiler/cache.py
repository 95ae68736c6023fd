"""Compiled models that nobody gave a place: kept in the user's cache, under a name made of all that went into them.

Nothing here decides what to compile, and nothing is ever thrown away; the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.printer import print_module
from ..runtime.loader import Model, NacreError, load
from .cache_folder import cache_folder, cache_is_wanted
from .codegen.target import identify_host
from .parameters import open_parameters
from .pipeline import Build
from .spans import relative_to
from .version import __version__

_ROOMS = [Path(__file__).parent.parent / room for room in ("compiler", "dialect", "passes", "runtime")]


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


def cached_path(build: Build) -> Path:
    """Where the artifact of a build is, or would be. Raises DiagnosticError where its checkpoint does not fit."""
    elaborated, options = build.elaborated, build.options
    digest = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            digest.update(hashlib.sha256(part.encode()).digest())

    # Code for one CPU may not run on another.
    host = identify_host() if any(target.cpu == "native" for target in options.targets) else ""
    # An artifact tells the lines of its kernels: a comment that moves them makes another one.
    graph = print_module(relative_to(elaborated.module, elaborated.file))
    add(*_compiler(), host, repr(replace(options, timeout=0.0, cache=True)), elaborated.precision, graph)
    # A budget that has changed has to be checked again.
    add(*(repr(replace(budget, span=None)) for budget in elaborated.budgets))  # type: ignore[arg-type]  # no span, on purpose
    add(*_identify(open_parameters(elaborated).files()))
    add(*(text for symbol, part in sorted(build.kernels.items()) for text in (symbol, repr(part))))
    return cache_folder() / f"{elaborated.module.name}-{digest.hexdigest()[:32]}.so"


def load_cached(build: Build, *, threads: int = 0) -> Model:
    """The artifact of a build, made only if it is not there, or if the build is to be dumped or observed, or takes
    nothing from a cache.

    Safe if several processes do so at once.
    """
    path = cached_path(build)
    wanted = cache_is_wanted() and build.options.cache and build.observer.trusts_cache and not build.dumps.active
    if wanted and path.exists():
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
