"""Python packages: those that compute constants and generate code, and those that a tool needs."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ...dialect.diagnostics import Diagnostic, DiagnosticError

_NAMES = ("llvmlite", "mlir", "numpy", "torch-mlir")


@lru_cache(maxsize=1)
def identify_packages() -> tuple[str, ...]:
    """Identifies the packages by their versions; those that are not installed are left out."""
    found = []
    for name in _NAMES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(found)


def require_package(name: str, message: str, help: str) -> None:
    """Raises DiagnosticError with the message if a package is not installed; `help` names the command that installs
    it."""
    if find_spec(name) is None:
        raise DiagnosticError([Diagnostic("missing-package", message, help=help)])
