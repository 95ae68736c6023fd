"""Fast-math fix-ups for kernels that are left to the upstream passes, on memrefs and in place.

Sums may be reassociated, so that they vectorise:

    %1 = arith.addf %total, %0 : f32     ->    %1 = arith.addf %total, %0 fastmath<reassoc> : f32
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from ..structured.operations import GENERIC, body_of, iterators, operands_of, operations_in


def _generics(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == GENERIC:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def allow_fast_math(module: Any) -> None:
    """Permits reassociation of sums over a reduction loop, so that they vectorise: the order of a sum is
    unspecified."""
    flags = ir.Attribute.parse("#arith.fastmath<reassoc>")
    for generic in _generics(module):
        if all(iterators(generic)):
            continue
        block, (inputs, _) = body_of(generic), operands_of(generic)
        accumulators = list(block.arguments)[len(inputs) :]
        for operation in operations_in(block):
            if operation.name == "arith.addf" and any(o in accumulators for o in operation.operands):
                operation.attributes["fastmath"] = flags
