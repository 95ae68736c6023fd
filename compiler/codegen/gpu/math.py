"""Elementary functions on a GPU are the compiler's own; a few are instructions.

The functions of `codegen/elementary` are straight-line arithmetic on single numbers too, so results on a GPU and on a
CPU differ by the rounding of sums alone. libdevice is not used.
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from ..elementary.functions import replace_math
from ..isa import FUSED

_INSTRUCTIONS = frozenset(
    f"math.{name}"
    for name in (
        "absf",
        "absi",
        "ceil",
        "copysign",
        "ctlz",
        "ctpop",
        "cttz",
        "floor",
        "fma",
        "roundeven",
        "sqrt",
        "trunc",
    )
)
"""Operations that LLVM compiles for GPUs without calls."""


_RENAMED = {"llvm.lrint.i32.f32": "llvm.nvvm.f2i.rn"}
"""Intrinsics that LLVM does not compile for GPUs, and those of GPUs that compute the same."""


def expand_device_math(module: Any) -> None:
    """Replaces elementary functions with the compiler's own."""
    replace_math(module, FUSED)

    def visit(operation: Any) -> Any:
        if operation.name == "llvm.call_intrinsic":
            name = str(ir.StringAttr(operation.attributes["intrin"]).value)
            if name in _RENAMED:
                operation.attributes["intrin"] = ir.StringAttr.get(_RENAMED[name])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    _round_by_instruction(module)


def _round_by_instruction(module: Any) -> None:
    """Rounds f32 to bf16 by the instruction: upstream passes would compute it in six steps."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "arith.truncf":
            types = (str(operation.operands[0].type), str(operation.results[0].type))
            found.extend([operation] if types == ("f32", "bf16") else [])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        name = ir.StringAttr.get("llvm.nvvm.f2bf16.rn")
        with ir.InsertionPoint(operation), operation.location:
            made = ir.Operation.create(
                "llvm.call_intrinsic",
                [operation.results[0].type],
                list(operation.operands),
                attributes={
                    "intrin": name,
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
                    "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                },
            )
        operation.results[0].replace_all_uses_with(made.results[0])
        operation.erase()


def find_foreign_math(module: Any) -> Any:
    """Returns an operation that would become a call of a library function that does not exist on GPUs, or None."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name.startswith("math.") and operation.name not in _INSTRUCTIONS:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found[0] if found else None
