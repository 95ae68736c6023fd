"""Adds functions in MLIR text to a module, and calls of them in place of operations:

%0 = math.exp %in : f32      ->      %0 = call @nacre_exp_f32(%in) : (f32) -> f32
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.mlir import ir
from .find import Elementary, find_elementary


def append_functions(module: Any, text: str, locations: Sequence[Any] = ()) -> None:
    """Adds the functions that a text defines; its declarations exist in the module, or will be added. The defining
    lines of the text may have locations."""

    def locate(operation: Any) -> Any:
        # The parser records the line of the operation.
        operation.location = locations[operation.location.start_line - 1]
        return ir.WalkResult.ADVANCE

    parsed = ir.Module.parse(text)  # kept alive while its operations are read: they do not keep it alive
    for function in list(parsed.body.operations):
        if len(function.regions) == 0 or len(function.regions[0].blocks) > 0:
            if locations:
                function.operation.walk(locate)
            module.body.append(function.operation)  # moves it


def replace_math(module: Any, features: frozenset[str]) -> None:
    """Replaces operations of the math dialect on single numbers by calls of elementary functions, which vectorise,
    where a target with these features has them."""
    found: list[tuple[Elementary, Any]] = []

    def visit(operation: Any) -> Any:
        if operation.name.startswith("math."):
            function = find_elementary(operation.name, str(operation.results[0].type), features)
            found.extend([] if function is None else [(function, operation)])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for function in sorted({function for function, _ in found}, key=lambda f: f.symbol):
        append_functions(module, function.emit(features))
    for function, operation in found:
        with ir.InsertionPoint(operation), operation.location:
            call = ir.Operation.create(
                "func.call",
                results=[operation.results[0].type],
                operands=list(operation.operands),
                attributes={"callee": ir.FlatSymbolRefAttr.get(function.symbol)},
            )
        operation.results[0].replace_all_uses_with(call.results[0])
        operation.erase()
