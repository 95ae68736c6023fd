"""The optional package `torch`, which represents programs and loads their files."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .....dialect.diagnostics import Diagnostic, DiagnosticError


def load_torch(submodule: str = "") -> Any:
    """Returns the package `torch` or one of its modules. Raises DiagnosticError if it is not installed."""
    try:
        root = import_module("torch")
        return import_module(f"torch.{submodule}") if submodule else root
    except ImportError as error:
        message = "a PyTorch program is read with the Python package `torch`, which is not installed"
        raise DiagnosticError([Diagnostic("no-torch", message, help="pip install 'nacre[torch]'")]) from error
