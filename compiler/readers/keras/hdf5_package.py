"""The package `h5py`, which is imported when a file needs it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError


def require_h5py() -> None:
    """Raises DiagnosticError if the package is not installed."""
    if find_spec("h5py") is None:
        message = "a Keras model is read with the Python package `h5py`, which is not installed"
        raise DiagnosticError([Diagnostic("no-h5py", message, help="pip install 'nacre[keras]'")])


def load_h5py() -> Any:
    return import_module("h5py")
