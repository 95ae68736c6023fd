"""Functions of a text become functions of a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...mlir import ir


def append_functions(module: Any, text: str, locations: Sequence[Any] = ()) -> None:
    """Adds the functions that a text defines; what it only declares is in the module, or will be. The lines of the text
    that define something may have locations."""

    def locate(operation: Any) -> Any:
        # The parser says at which line it found the operation.
        operation.location = locations[operation.location.start_line - 1]
        return ir.WalkResult.ADVANCE

    parsed = ir.Module.parse(text)  # kept while its operations are read: they do not keep it alive
    for function in parsed.body.operations:
        if len(function.regions[0].blocks) > 0:
            if locations:
                function.operation.walk(locate)
            module.body.append(function.operation.clone())
