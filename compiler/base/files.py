"""Writes files atomically, as `runtime/files.py` does, with diagnostics for errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...runtime import files


def _cannot_write(path: Path, reason: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("cannot-write", f"cannot write `{path}`: {reason}")])


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Raises DiagnosticError for a failure to write a file, an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, (error.strerror or str(error)).lower()) from error


def check_writable(path: Path) -> None:
    """Raises DiagnosticError if a file cannot be written at `path`; called before the work starts."""
    if not path.parent.is_dir():
        raise _cannot_write(path, f"there is no folder `{path.parent}`")
    # Renaming would replace a device by a file.
    if path.exists() and not path.is_file():
        raise _cannot_write(path, "it exists and is not a regular file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _cannot_write(path, f"no permission to write to the folder `{path.parent}`")


def check_opens(path: Path) -> None:
    """Raises DiagnosticError if an existing file or device cannot be opened for writing."""
    if path.is_dir():
        raise _cannot_write(path, "it is a folder")
    if not os.access(path, os.W_OK):
        raise _cannot_write(path, "no permission to write to the file")


def check_folder(folder: Path) -> None:
    """Raises DiagnosticError if files cannot be written into a folder, which need not exist."""
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise _cannot_write(folder, f"`{existing}` is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _cannot_write(folder, f"no permission to write to the folder `{existing}`")


def path_beside(model: Path, ending: str) -> Path:
    """Returns the path beside a model, a file or a folder, with its name and another ending. Raises DiagnosticError for
    the root folder, which has no name."""
    named = model.resolve() if model.name in ("", "..") else model
    if not named.name:
        help_text = "name the output with `--output`"
        raise DiagnosticError([Diagnostic("cannot-write", f"there is no place beside `{model}`", help=help_text)])
    return named.with_name(f"{named.stem}{ending}")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that replaces `path` if the block succeeds; otherwise `path` is unchanged.

    A symbolic link stays one, and a file keeps its permissions. Raises DiagnosticError if writing fails.
    """
    with reported(path), files.replacing(path) as file:
        yield file


def write_whole(path: Path, text: str) -> None:
    """Writes a text file atomically. Raises DiagnosticError."""
    check_writable(path)
    with replacing(path) as file:
        file.write(text.encode())
