"""The cache of artifacts that were compiled without an output path, named by digests of all inputs of the build.

This module decides nothing about compilation and removes no file; the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.printer import print_module
from ..runtime.loader import Model, NacreError, load, load_later
from .base.cache_folder import cache_folder, cache_is_wanted
from .base.spans import relative_to
from .base.store import is_trusted
from .identity import identify_compiler, identify_files
from .model.parameters import needed_checkpoints, open_parameters
from .model.source import WeightSource
from .pipeline import Build
from .targets.target import identify_host


def cached_path(build: Build) -> Path:
    """Returns the cache path of a build's artifact. Raises DiagnosticError if its checkpoint does not fit."""
    source_model, options = build.source_model, build.options
    digest = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            digest.update(hashlib.sha256(part.encode()).digest())

    # Code for one CPU may not run on another.
    host = identify_host() if any(target.cpu == "native" for target in options.targets) else ""
    # The artifact records the source lines of its kernels: a comment that moves them gives another artifact.
    graph = print_module(relative_to(source_model.module, source_model.file))
    add(identify_compiler(), host, options.identity, source_model.precision, graph)
    # The variable names the C compiler where no option does.
    add("" if options.cc else os.environ.get("CC", ""))
    # Nothing but the version of the assembler says which machine code it makes.
    add(*map(options.assembler, options.targets))
    # A changed budget must be checked again.
    add(*(repr(replace(budget, span=None)) for budget in source_model.budgets))  # type: ignore[arg-type]  # no span, on purpose
    reader = open_parameters(source_model)
    add(*identify_files(reader.files()), *reader.digests())
    # Models of one file may read the same files in exchanged roles.
    for name, source in sorted(needed_checkpoints(source_model).items()):
        add(name, _identify_weights(source))
    # An artifact is accepted for the content of these files.
    written = source_model.written.policies if source_model.written is not None else ()
    required = {requirement.path for policy in written for requirement in policy.requirements}
    add(*identify_files(sorted(path for path in required if path.exists())))
    add(*(text for symbol, part in sorted(build.kernels.items()) for text in (symbol, repr(part))))
    return cache_folder() / f"{source_model.module.name}-{digest.hexdigest()[:32]}.so"


def _identify_weights(source: WeightSource | None) -> str:
    if isinstance(source, Path):
        return str(source.resolve())
    return "" if source is None else source.digest or str(source.path.resolve())


def load_built(path: Path, build: Build, *, threads: int = 0) -> Model:
    """Loads the artifact of a build. The device of one for GPUs alone is needed by calls only."""
    options = build.options
    if options.family.device and options.weights == "embedded":
        return load_later(path, threads)
    return load(path, threads=threads)


def load_cached(build: Build, *, threads: int = 0) -> Model:
    """Returns the artifact of a build from the cache. Builds it if it is not there, or if the build dumps stages, has
    an observer that needs a build, or does not use the cache.

    Safe for concurrent calls from several processes.
    """
    path = cached_path(build)
    wanted = cache_is_wanted() and build.options.cache and build.observer.trusts_cache and not build.dumps.active
    try:
        if wanted and is_trusted(path.stat()):
            return load_built(path, build, threads=threads)
    except (OSError, NacreError):
        pass  # it was not built yet, or the file is damaged
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write into the cache `{path.parent}`: {(error.strerror or str(error)).lower()}"
        help_text = "set NACRE_CACHE to another folder"
        raise DiagnosticError([Diagnostic("cannot-write", message, help=help_text)]) from error
    build.run(path)
    path.chmod(path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    return load_built(path, build, threads=threads)
