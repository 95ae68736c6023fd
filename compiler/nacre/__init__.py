"""Nacre: an ahead-of-time compiler for machine-learning models.

`import nacre` imports NumPy and ctypes only; the compiler is imported when a function first needs it.

    model = nacre.compile("digits.nacre")        # text -> shared library, loaded
    probabilities = model(images)
    model = nacre.load("digits.so")              # a library that was compiled before
    graph = nacre.graph.read("digits.nacre")     # a graph to query and to change
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import graph as graph
    from .compiler.api import compile
    from .compiler.base.compiler_errors import CompilerError
    from .compiler.checking import check
    from .compiler.readers.sklearn.model import from_sklearn
    from .compiler.readers.stablehlo.from_jax import from_jax
    from .compiler.readers.torch.torch_program import from_torch
    from .compiler.readers.trees.city_hash import category_hashes
    from .compiler.version import __version__
    from .dialect.diagnostics import Diagnostic, DiagnosticError, NacreWarning
    from .runtime.loader import BusyError, Model, NacreError, Session, load
    from .runtime.strings import decode_strings, encode_strings

__all__ = [
    "BusyError",
    "CompilerError",
    "Diagnostic",
    "DiagnosticError",
    "Model",
    "NacreError",
    "NacreWarning",
    "Session",
    "__version__",
    "category_hashes",
    "check",
    "compile",
    "decode_strings",
    "encode_strings",
    "from_jax",
    "from_sklearn",
    "from_torch",
    "graph",
    "load",
]

# Where each public name lives. The module is imported when the name is first asked for.
_HOMES = {
    "BusyError": ".runtime.loader",
    "CompilerError": ".compiler.base.compiler_errors",
    "Diagnostic": ".dialect.diagnostics",
    "DiagnosticError": ".dialect.diagnostics",
    "Model": ".runtime.loader",
    "NacreError": ".runtime.loader",
    "NacreWarning": ".dialect.diagnostics",
    "Session": ".runtime.loader",
    "__version__": ".compiler.version",
    "category_hashes": ".compiler.readers.trees.city_hash",
    "check": ".compiler.checking",
    "compile": ".compiler.api",
    "decode_strings": ".runtime.strings",
    "encode_strings": ".runtime.strings",
    "from_sklearn": ".compiler.readers.sklearn.model",
    "from_jax": ".compiler.readers.stablehlo.from_jax",
    "from_torch": ".compiler.readers.torch.torch_program",
    "load": ".runtime.loader",
}
_MODULES = {"graph"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Adds the cell magic `%%nacre` to a notebook: `%load_ext nacre`."""
    importlib.import_module(".compiler.notebook", __name__).register(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
