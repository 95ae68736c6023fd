"""Fast-math fix-ups for kernels that are left to the upstream passes, on memrefs and in place.

Sums may be reassociated, so that they vectorise. Elementary functions of f32 become calls of the tiler's own functions.
For the sum of exp(x) along a row:

    %0 = math.exp %in : f32              ->    %0 = call @nacre_exp_f32(%in) : (f32) -> f32
    %1 = arith.addf %total, %0 : f32     ->    %1 = arith.addf %total, %0 fastmath<reassoc> : f32
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from .functions import replace_math
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
    replace_math(module, "f32", FUNCTIONS, emit_function, function_name)


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
