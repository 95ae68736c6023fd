"""Proposes a file for a path that names none."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, MissingFileError


def similar_file(path: str | os.PathLike[str]) -> str:
    """Returns the help for a path without a file: a file of the same folder with a similar name, or nothing."""
    wanted = Path(path)
    try:
        names = [each.name for each in wanted.parent.iterdir() if each.is_file()]
    except OSError:
        return ""
    close = [name for name in names if Path(name).stem == wanted.name] or get_close_matches(wanted.name, names, 1, 0.75)
    return f"did you mean `{wanted.with_name(sorted(close)[0])}`?" if close else ""


def missing_file(path: Path) -> MissingFileError:
    """Returns the error for a path that names no file."""
    message = f"`{path}` cannot be read: no such file or directory"
    return MissingFileError([Diagnostic("missing-file", message, help=similar_file(path))])
