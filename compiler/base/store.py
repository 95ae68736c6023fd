"""A cache of build results on disk, each under a key of all its inputs.

Every file is written atomically, so any number of processes may read and write at once. A damaged file, or a folder
that cannot be written, behaves as an empty cache.

Cached files hold code: kernels that run, and pickles. A file that another user owns or may write is therefore never
read. Users who share a folder replace the files of each other, so each user needs a folder of their own.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

MAXIMUM_BYTES = 1 << 29
MAXIMUM_AGE = 30 * 24 * 3600.0
"""Pruning removes files beyond the size limit, and files that were not used for this many seconds."""
PRUNED_EVERY = 24 * 3600.0
_STAMP = "pruned"


def is_trusted(status: os.stat_result) -> bool:
    """Returns whether only this user, or the administrator, can have written a file."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class Store:
    """Bytes by key in a folder; if the folder is None, nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        path = self._folder / key
        try:
            with path.open("rb") as file:
                if not is_trusted(os.fstat(file.fileno())):
                    return None
                digest, _, data = file.read().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() != digest:
                return None
            # The file was used: restart its age.
            os.utime(path)
            return data
        except OSError:
            return None

    def put(self, key: str, data: bytes) -> None:
        if self._folder is None:
            return
        temporary = self._folder / f".{os.urandom(8).hex()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Some systems let a group write new files.
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            temporary.replace(self._folder / key)
        except OSError:
            self._folder = None
            with suppress(OSError):
                temporary.unlink()

    def prune(self) -> None:
        """Removes old and excess files, at most once a day."""
        if self._folder is None:
            return
        try:
            stamp, now = self._folder / _STAMP, time.time()
            if not self._folder.exists() or (stamp.exists() and now - stamp.stat().st_mtime < PRUNED_EVERY):
                return
            stamp.touch()
            remove_old(self._folder, now)
        except OSError:
            pass  # another process prunes, or files cannot be removed


def remove_old(folder: Path, now: float) -> None:
    """Removes the files that exceed the maximum age, then the least recently used ones until the size limit is met."""
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
