"""Source lines of the model in generated code: the source location of each operation, from structured ops down to LLVM.

MLIR carries locations through its passes. An operation without a location, because our text omits it or a pass created
the operation, takes the location of its parent. Only builds with debug information use this module.
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir, passmanager

_UNNAMED = "-"
"""The file name that MLIR's parser assigns to operations without a location in the text."""
_ATTACH = "ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly}"


def location_of(location: Any) -> Any:
    """Returns the position in a model file that a location defines, or None; for inlined operations, that of the
    call."""
    while isinstance(location, ir.CallSiteLoc):
        location = location.caller
    if isinstance(location, ir.FusedLoc):
        return next((found for part in location.locations if (found := location_of(part)) is not None), None)
    return location if isinstance(location, ir.FileLineColLoc) and location.filename != _UNNAMED else None


def settle_locations(module: Any) -> None:
    """Gives every operation a source location: its own, or that of the surrounding operation, or the first one of its
    function, or of the module; none, if there is none."""
    default = _first_location(module.operation)
    if default is None:
        return
    for function in module.body.operations:
        first = _first_location(function.operation) or default
        settled: dict[Any, Any] = {}

        def settle(operation: Any, first: Any = first, settled: dict[Any, Any] = settled) -> Any:
            location = location_of(operation.location) or settled.get(operation.parent, first)
            operation.location = settled[operation] = location
            return ir.WalkResult.ADVANCE

        function.operation.walk(settle, ir.WalkOrder.PRE_ORDER)


def _first_location(operation: Any) -> Any:
    found: list[Any] = []

    def look(inner: Any) -> Any:
        location = location_of(inner.location)
        if location is None:
            return ir.WalkResult.ADVANCE
        found.append(location)
        return ir.WalkResult.INTERRUPT

    operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def attach_lines(module: Any) -> None:
    """Attaches line tables to the functions of a module in the LLVM dialect, without other debug information."""
    settle_locations(module)
    location = _first_location(module.operation)
    if location is not None:
        # The compile unit is named after the module's file.
        module.operation.location = location
        passmanager.PassManager.parse(f"builtin.module({_ATTACH})").run(module.operation)
