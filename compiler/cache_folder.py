"""Where compiled things are kept between builds, and whether they are."""

from __future__ import annotations

import os
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError


def cache_folder() -> Path:
    """`$NACRE_CACHE`, else `nacre` in the user's cache folder. Raises DiagnosticError where there is neither."""
    chosen = os.environ.get("NACRE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre"
    except RuntimeError as error:
        help_text = "let NACRE_CACHE name a folder, or say where the output goes"
        raise DiagnosticError([Diagnostic("no-cache", f"there is no cache folder: {error}", help=help_text)]) from error


def cache_is_wanted() -> bool:
    """Not where `$NACRE_NO_CACHE` is set."""
    return not os.environ.get("NACRE_NO_CACHE")


def object_folder() -> Path | None:
    """Where objects are kept, which no build depends on: None if they are not, or if there is no folder."""
    if not cache_is_wanted():
        return None
    try:
        return cache_folder() / "objects"
    except DiagnosticError:
        return None
