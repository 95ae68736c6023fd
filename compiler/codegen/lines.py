"""Lines of the model in generated code: which place each operation comes from, from structured ops down to LLVM.

MLIR carries locations through its passes. What has none of its own, since our text does not say it or since a pass made
it up, takes that of what it stands in. Only builds with debug information come here.
"""

from __future__ import annotations

from typing import Any

from ..mlir import ir, passmanager

_UNNAMED = "-"
"""The file that MLIR's parser takes an operation to be from whose text tells no location."""
_ATTACH = "ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly}"


def place_of(location: Any) -> Any:
    """The place in a model file that a location tells, or None; of what was inlined, where it was called."""
    while isinstance(location, ir.CallSiteLoc):
        location = location.caller
    if isinstance(location, ir.FusedLoc):
        return next((place for part in location.locations if (place := place_of(part)) is not None), None)
    return location if isinstance(location, ir.FileLineColLoc) and location.filename != _UNNAMED else None


def settle_places(module: Any) -> None:
    """Gives every operation a place: its own, or that of the operation around it, or the first one of its function, or
    of the module; none, if nothing has any."""
    default = _first_place(module.operation)
    if default is None:
        return
    for function in module.body.operations:
        first = _first_place(function.operation) or default
        settled: dict[Any, Any] = {}

        def settle(operation: Any, first: Any = first, settled: dict[Any, Any] = settled) -> Any:
            place = place_of(operation.location) or settled.get(operation.parent, first)
            operation.location = settled[operation] = place
            return ir.WalkResult.ADVANCE

        function.operation.walk(settle, ir.WalkOrder.PRE_ORDER)


def _first_place(operation: Any) -> Any:
    found: list[Any] = []

    def look(inner: Any) -> Any:
        place = place_of(inner.location)
        if place is None:
            return ir.WalkResult.ADVANCE
        found.append(place)
        return ir.WalkResult.INTERRUPT

    operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def attach_lines(module: Any) -> None:
    """Tables of lines for the functions of a module in the LLVM dialect, and nothing else that debuggers know."""
    settle_places(module)
    place = _first_place(module.operation)
    if place is not None:
        # The compile unit is named after the module's file.
        module.operation.location = place
        passmanager.PassManager.parse(f"builtin.module({_ATTACH})").run(module.operation)
