"""Things that were made before, on disk, each under a key of all that it was made from.

Every file is written whole, so any number of processes may read and write at once. A file that is damaged, or a folder
that cannot be written, is as if nothing had been kept.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from pathlib import Path

MAXIMUM_BYTES = 1 << 29
MAXIMUM_AGE = 30 * 24 * 3600.0
"""What is more, and what was not asked for in so many seconds, goes."""
PRUNED_EVERY = 24 * 3600.0
_STAMP = "pruned"


class Store:
    """Bytes by key in a folder; without one, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        path = self._folder / key
        try:
            digest, _, data = path.read_bytes().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() != digest:
                return None
            # It was of use: its age counts from now.
            os.utime(path)
            return data
        except OSError:
            return None

    def put(self, key: str, data: bytes) -> None:
        if self._folder is None:
            return
        temporary = self._folder / f".{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            temporary.replace(self._folder / key)
        except OSError:
            self._folder = None

    def prune(self) -> None:
        """Once a day, removes what is too old or too much."""
        if self._folder is None:
            return
        try:
            stamp, now = self._folder / _STAMP, time.time()
            if not self._folder.exists() or (stamp.exists() and now - stamp.stat().st_mtime < PRUNED_EVERY):
                return
            stamp.touch()
            remove_old(self._folder, now)
        except OSError:
            pass  # another process prunes, or nothing may be removed


def remove_old(folder: Path, now: float) -> None:
    """Removes the files that were not asked for lately, then those not asked for longest, until few enough are left."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        if path.name != _STAMP:
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for used, size, path in sorted(found):
        if now - used <= MAXIMUM_AGE and total <= MAXIMUM_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size
