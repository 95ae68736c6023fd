"""Imports MLIR: the upstream bindings if a build of them is installed, else torch-mlir's copy. No other module does.

Only the code generation child imports this module; the compiler's own process writes text and never loads MLIR.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

PACKAGE = "mlir" if find_spec("mlir") is not None and find_spec("mlir.ir") is not None else "torch_mlir"
"""The package that the bindings come from. An empty placeholder named `mlir` does not count."""

ir: Any = importlib.import_module(f"{PACKAGE}.ir")
passmanager: Any = importlib.import_module(f"{PACKAGE}.passmanager")
_llvm: Any = importlib.import_module(f"{PACKAGE}._mlir_libs._mlirDialectsLLVM")
# Operation classes of the dialects are not loaded: loading them takes longer than loading MLIR. The name, operands and
# attributes of an operation suffice.
importlib.import_module(f"{PACKAGE}._mlir_libs._mlir").globals.dialect_search_modules = []


def translate(module: Any) -> str:
    """Returns LLVM IR as text, in the syntax of the bindings' own LLVM.

    Aborts the process if operations of another dialect remain; check this first.
    """
    return str(_llvm.translate_module_to_llvmir(module.operation))
