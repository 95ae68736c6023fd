"""Elementary functions on a GPU are the compiler's own; a few are instructions.

The functions of `tiler/vector_math` are straight-line arithmetic on single numbers too, so results of f32 on a GPU and
on a CPU differ by the rounding of sums alone. The functions of f64 are in `double_math`. libdevice is not used.
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from ..tiler.fast_math import expand_math
from ..tiler.functions import replace_math
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
    replace_math(module, "f64", FUNCTIONS, emit_function, function_name)

    def visit(operation: Any) -> Any:
        if operation.name == "llvm.call_intrinsic":
            name = str(ir.StringAttr(operation.attributes["intrin"]).value)
            if name in _RENAMED:
                operation.attributes["intrin"] = ir.StringAttr.get(_RENAMED[name])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def find_foreign_math(module: Any) -> Any:
    """Returns an operation that would become a call of a library function that does not exist on GPUs, or None."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name.startswith("math.") and operation.name not in _INSTRUCTIONS:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found[0] if found else None
