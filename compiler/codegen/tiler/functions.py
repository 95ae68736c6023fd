"""Adds functions in MLIR text to a module, and calls of them in place of operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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


def replace_math(
    module: Any, type: str, names: Collection[str], emit: Callable[[str], str], symbol: Callable[[str], str]
) -> None:
    """Replaces operations of the math dialect with a result of this element type by calls of functions. `emit` returns
    the text of the function for an operation, `symbol` its name."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        name = operation.name.removeprefix("math.")
        if operation.name.startswith("math.") and name in names and str(operation.results[0].type) == type:
            found.append((name, operation))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for name in sorted({name for name, _ in found}):
        append_functions(module, emit(name))
    for name, operation in found:
        with ir.InsertionPoint(operation), operation.location:
            call = ir.Operation.create(
                "func.call",
                results=[operation.results[0].type],
                operands=list(operation.operands),
                attributes={"callee": ir.FlatSymbolRefAttr.get(symbol(name))},
            )
        operation.results[0].replace_all_uses_with(call.results[0])
        operation.erase()
