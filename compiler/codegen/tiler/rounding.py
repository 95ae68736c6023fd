"""Floats as the nearest integers of few bits, as codes are made: how that is recognised, and written.

One instruction rounds to the nearest integer, halves to even, and converts. Of NaN it makes an integer whose lower half
is 0, so where only bits of that are kept, NaN needs no care.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .structure import Node
from .text import Value, Writer

_KEPT = ("i8", "i16")
_CONVERSIONS: Mapping[int, str] = {4: "sse2.cvtps2dq", 8: "avx.cvt.ps2dq.256", 16: "avx512.mask.cvtps2dq.512"}
"""By the lanes of a vector."""


def find_nearest(node: Node) -> Node:
    """The node, where it keeps the lower bits of a rounded number with a `nearest` in it."""
    if node.kind != "arith.trunci" or node.type not in _KEPT:
        return node
    (whole,) = node.operands
    if whole.kind == "arith.addi":
        return replace(node, operands=(replace(whole, operands=tuple(map(_nearest, whole.operands))),))
    return replace(node, operands=(_nearest(whole),))


def _nearest(node: Node) -> Node:
    """`fptosi(roundeven(x))`, where NaN was perhaps made 0 before."""
    if node.kind != "arith.fptosi" or node.type != "i32" or node.operands[0].kind != "math.roundeven":
        return node
    (number,) = node.operands[0].operands
    if number.type != "f32":
        return node
    return replace(node, kind="nearest", operands=(_or_nan(number),), text="")


def _or_nan(node: Node) -> Node:
    """What is 0 in its place if it is NaN."""
    if node.kind != "arith.select":
        return node
    known, number, other = node.operands
    is_zero = other.kind == "constant" and not other.text.startswith("0x") and float(other.text.split(" ")[0]) == 0
    compared = known.kind == "arith.cmpf" and _EQUAL in known.text.split(", ")
    return number if is_zero and compared and known.operands == (number, number) else node


_EQUAL = "predicate = 1 : i64"
"""How MLIR prints that a comparison is `oeq`."""


def round_to_nearest(writer: Writer, number: Value) -> Value:
    """Floats below 2**31 in magnitude as integers."""
    floats, integers = writer.vector_type("f32"), writer.vector_type("i32")
    operands, types = [writer.broadcast(number).name], [floats]
    if writer.lanes == 16:
        zeros, all = writer.splat("0", integers), writer.constant("-1", "i16").name
        rounding = writer.constant("4", "i32").name  # as the CPU is set: to nearest
        operands, types = [*operands, zeros, all, rounding], [floats, integers, "i16", "i32"]
    call = f'llvm.call_intrinsic "llvm.x86.{_CONVERSIONS[writer.lanes]}"({", ".join(operands)})'
    nearest = writer.let(f"{call} : ({', '.join(types)}) -> {integers}")
    if number.vector:
        return Value(nearest, "i32", True)
    return Value(writer.let(f"vector.extract {nearest}[0] : i32 from {integers}"), "i32")
