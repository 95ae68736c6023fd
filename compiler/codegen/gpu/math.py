"""Elementary functions on a GPU are the compiler's own; a few are instructions.

The functions of `tiler/vector_math` are straight-line arithmetic on single numbers too, so results of f32 on a GPU and
on a CPU differ by the rounding of sums alone. The functions of f64 are in `double_math`. libdevice is not used.
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from ..tiler.fast_math import expand_math
from ..tiler.functions import append_functions
from .double_math import FUNCTIONS, emit_function, function_name

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
    expand_math(module)
    _expand_double_math(module)

    def visit(operation: Any) -> Any:
        if operation.name == "llvm.call_intrinsic":
            name = str(ir.StringAttr(operation.attributes["intrin"]).value)
            if name in _RENAMED:
                operation.attributes["intrin"] = ir.StringAttr.get(_RENAMED[name])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _expand_double_math(module: Any) -> None:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        name = operation.name.removeprefix("math.")
        if operation.name.startswith("math.") and name in FUNCTIONS and str(operation.results[0].type) == "f64":
            found.append((name, operation))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for name in sorted({name for name, _ in found}):
        append_functions(module, emit_function(name))
    for name, operation in found:
        with ir.InsertionPoint(operation), operation.location:
            call = ir.Operation.create(
                "func.call",
                results=[operation.results[0].type],
                operands=list(operation.operands),
                attributes={"callee": ir.FlatSymbolRefAttr.get(function_name(name))},
            )
        operation.results[0].replace_all_uses_with(call.results[0])
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
