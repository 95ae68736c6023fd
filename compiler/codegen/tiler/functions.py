"""Functions of a text become functions of a module."""

from __future__ import annotations

from typing import Any

from ...mlir import ir


def append_functions(module: Any, text: str) -> None:
    """Adds the functions that a text defines; what it only declares is in the module, or will be."""
    parsed = ir.Module.parse(text)  # kept while its operations are read: they do not keep it alive
    for function in parsed.body.operations:
        if len(function.regions[0].blocks) > 0:
            module.body.append(function.operation.clone())
