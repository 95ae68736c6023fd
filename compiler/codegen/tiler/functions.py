"""Parses functions from MLIR text into a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.mlir import ir


def append_functions(module: Any, text: str, locations: Sequence[Any] = ()) -> None:
    """Adds the functions that a text defines; its declarations exist in the module, or will be added. The defining
    lines of the text may have locations."""

    def locate(operation: Any) -> Any:
        # The parser records the line of the operation.
        operation.location = locations[operation.location.start_line - 1]
        return ir.WalkResult.ADVANCE

    parsed = ir.Module.parse(text)  # kept alive while its operations are read: they do not keep it alive
    for function in parsed.body.operations:
        if len(function.regions) == 0 or len(function.regions[0].blocks) > 0:
            if locations:
                function.operation.walk(locate)
            module.body.append(function.operation.clone())
