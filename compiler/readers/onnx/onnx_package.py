"""The optional package `onnx`, which parses the protobufs and provides the schemas of operators."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError


def load_onnx(submodule: str = "") -> Any:
    """Returns the package `onnx` or one of its modules. Raises DiagnosticError if it is not installed."""
    try:
        root = import_module("onnx")
        return import_module(f"onnx.{submodule}") if submodule else root
    except ImportError as error:
        message = "an ONNX file is read with the Python package `onnx`, which is not installed"
        raise DiagnosticError([Diagnostic("no-onnx", message, help="pip install 'nacre[onnx]'")]) from error
