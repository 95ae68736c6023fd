"""The function that LLVM calls to round f32 to bf16 on CPUs without an instruction for it.

Kernels round by integer arithmetic, so their text has no such conversion. LLVM keeps a bf16 value that lives across
blocks as f32, though, and converts it back by a call of `__truncsfbf2`, which glibc does not define.
"""

from __future__ import annotations

NAME = "__truncsfbf2"
DEFINITION = f"""
define weak hidden bfloat @{NAME}(float %x) nounwind {{
  %bits = bitcast float %x to i32
  %upper = lshr i32 %bits, 16
  %odd = and i32 %upper, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %nearest = lshr i32 %sum, 16
  %quiet = or i32 %upper, 64
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i32 %quiet, i32 %nearest
  %half = trunc i32 %chosen to i16
  %result = bitcast i16 %half to bfloat
  ret bfloat %result
}}
"""
"""Rounds to nearest, ties to even; a NaN stays a NaN."""


def calls_rounding(code: bytes) -> bool:
    """Whether an object refers to the function."""
    return NAME.encode() in code
