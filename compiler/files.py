"""Writes files whole: beside their path first, then renamed, so that nobody ever finds half of one, and what was there
before is lost only to what replaces it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..dialect.diagnostics import Diagnostic, DiagnosticError


def _cannot_write(path: Path, reason: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("cannot-write", f"cannot write `{path}`: {reason}")])


def check_writable(path: Path) -> None:
    """Raises DiagnosticError where a file cannot be written at `path`: to be told before the work, not after it."""
    if not path.parent.is_dir():
        raise _cannot_write(path, f"there is no folder `{path.parent}`")
    # A device would be replaced by a file.
    if path.exists() and not path.is_file():
        raise _cannot_write(path, "it is there already, and no regular file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _cannot_write(path, f"nothing may be written in the folder `{path.parent}`")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well; else it is as if nothing had happened.

    A symbolic link stays one, and a file keeps its permissions. Raises DiagnosticError where writing fails.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except OSError as error:
        raise _cannot_write(path, (error.strerror or str(error)).lower()) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file, all of it or nothing. Raises DiagnosticError."""
    check_writable(path)
    with replacing(path) as file:
        file.write(text.encode())
