"""Compiled models that nobody gave a place: kept in the user's cache, under a name made of all that went into them."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import replace
from pathlib import Path

from ..dialect.printer import print_module
from .frontend import Elaborated
from .pipeline import Build, Options
from .version import __version__


def cache_folder() -> Path:
    """`$NACRE_CACHE`, else `nacre` in the user's cache folder."""
    chosen = os.environ.get("NACRE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre"


def _cpu() -> str:
    """What `native` means here, as far as the system tells: code for one CPU may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))


def _identity(path: Path | None) -> str:
    """What tells one state of a checkpoint from another without reading it: names, sizes and times of its files."""
    if path is None:
        return ""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return "\n".join(f"{f.resolve()} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files if f.is_file())


def cached_path(elaborated: Elaborated, options: Options) -> Path:
    """Where the artifact of this model under these options is, or would be."""
    digest = hashlib.sha256()
    parts = [__version__, repr(replace(options, timeout=0.0)), _cpu(), print_module(elaborated.module)]
    parts += [_identity(path) for path in elaborated.weights.values() if path is None or path.exists()]
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return cache_folder() / f"{elaborated.module.name}-{digest.hexdigest()[:32]}.so"


def build_cached(build: Build) -> Path:
    """The artifact of a build, made only if it is not there. Safe if several processes do so at once."""
    path = cached_path(build.elaborated, build.options)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        build.run(path)
    return path
