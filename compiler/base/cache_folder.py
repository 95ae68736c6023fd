"""The folders in which build results are cached, and whether caching is enabled."""

from __future__ import annotations

import os
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError


def cache_folder() -> Path:
    """Returns `$NACRE_CACHE`, else `nacre` in the user's cache folder. Raises DiagnosticError if neither exists."""
    chosen = os.environ.get("NACRE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre"
    except RuntimeError as error:
        help_text = "set NACRE_CACHE to a folder, or give an output path"
        raise DiagnosticError([Diagnostic("no-cache", f"there is no cache folder: {error}", help=help_text)]) from error


def cache_is_wanted() -> bool:
    """Returns whether the cache is enabled; `$NACRE_NO_CACHE` disables it."""
    return not os.environ.get("NACRE_NO_CACHE")


def object_folder() -> Path | None:
    """Returns the folder for cached objects, which are optional: None if the cache is disabled or has no folder."""
    if not cache_is_wanted():
        return None
    try:
        return cache_folder() / "objects"
    except DiagnosticError:
        return None
