"""Writes files atomically: to a temporary file beside the path, which is then renamed. Readers never see a partial
file, and an existing file is lost only when its replacement is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a file that replaces `path` if the block succeeds; otherwise `path` is unchanged.

    A symbolic link stays one, and a file keeps its permissions. Raises OSError if writing fails.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:64]}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            yield file
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
