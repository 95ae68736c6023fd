"""The packages that compute constants and generate code."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

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
