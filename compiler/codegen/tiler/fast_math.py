"""Fast-math fix-ups for kernels that are left to the upstream passes, on memrefs and in place.

Sums may be reassociated, so that they vectorise. Elementary functions of f32 become calls of the tiler's own functions.
For the sum of exp(x) along a row:

    %0 = math.exp %in : f32              ->    %0 = call @nacre_exp_f32(%in) : (f32) -> f32
    %1 = arith.addf %total, %0 : f32     ->    %1 = arith.addf %total, %0 fastmath<reassoc> : f32
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from .functions import append_functions
from .vector_math import FUNCTIONS, emit_function, function_name


def _generics(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "linalg.generic":
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def expand_math(module: Any) -> None:
    """Replaces elementary functions of f32 with the tiler's own, which vectorise."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        name = operation.name.removeprefix("math.")
        if operation.name.startswith("math.") and name in FUNCTIONS and str(operation.results[0].type) == "f32":
            found.append((name, operation))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for name in sorted({name for name, _ in found}):
        append_functions(module, emit_function(name))
    for name, operation in found:
        with ir.InsertionPoint(operation), operation.location:
            callee = ir.FlatSymbolRefAttr.get(function_name(name))
            call = ir.Operation.create(
                "func.call",
                results=[operation.results[0].type],
                operands=list(operation.operands),
                attributes={"callee": callee},
            )
        operation.results[0].replace_all_uses_with(call.results[0])
        operation.erase()


def allow_fast_math(module: Any) -> None:
    """Permits reassociation of sums over a reduction loop, so that they vectorise: the order of a sum is
    unspecified."""
    flags = ir.Attribute.parse("#arith.fastmath<reassoc>")
    for generic in _generics(module):
        if "reduction" not in str(generic.attributes["iterator_types"]):
            continue
        block = generic.regions[0].blocks[0]
        inputs, _ = ir.DenseI32ArrayAttr(generic.attributes["operandSegmentSizes"])
        accumulators = list(block.arguments)[inputs:]
        for operation in block.operations:
            if operation.operation.name == "arith.addf" and any(o in accumulators for o in operation.operands):
                operation.operation.attributes["fastmath"] = flags
