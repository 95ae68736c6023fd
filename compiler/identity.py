"""The state of the compiler and of files, for keys of caches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from .base.packages import identify_packages
from .version import __version__

_ROOMS = [Path(__file__).parents[1] / room for room in ("compiler", "dialect", "passes", "runtime")]


def identify_files(files: Iterable[Path]) -> Iterator[str]:
    """Yields a text per file that identifies its state without reading it: path, size and modification time."""
    for path in files:
        status = path.stat()
        yield f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


@lru_cache(maxsize=1)
def identify_compiler() -> str:
    """Returns a digest of the compiler's version, the packages that it uses, and its files, which change during
    development."""
    files = sorted(p for room in _ROOMS for suffix in ("py", "lark", "c", "h") for p in room.rglob(f"*.{suffix}"))
    parts = (__version__, *identify_packages(), *identify_files(files))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
