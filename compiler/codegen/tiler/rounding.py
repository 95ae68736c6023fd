"""Rounding of floats to narrow integers, as in quantization: recognition and code.

One instruction rounds to the nearest integer, halves to even, and converts. It turns NaN into an integer with a lower
half of 0, so NaN needs no special case where only bits of the lower half are kept.

    trunci(fptosi(roundeven(select(x == x, x, 0))))    as quantization to i8 is written
    trunci(nearest(x))                                 `nearest` is one instruction, see `isa`
"""

from __future__ import annotations

from dataclasses import replace

from ..structured.body_nodes import Node
from .text import Value, Writer

_KEPT = ("i8", "i16")


def find_nearest(node: Node) -> Node:
    """Returns the node with a `nearest` in it, where it keeps the lower bits of a rounded number."""
    if node.kind != "arith.trunci" or node.type not in _KEPT:
        return node
    (whole,) = node.operands
    if whole.kind == "arith.addi":
        return replace(node, operands=(replace(whole, operands=tuple(map(_nearest, whole.operands))),))
    return replace(node, operands=(_nearest(whole),))


def _nearest(node: Node) -> Node:
    """Rewrites `fptosi(roundeven(x))` as a `nearest` node; NaN may have been replaced by 0 before."""
    if node.kind != "arith.fptosi" or node.type != "i32" or node.operands[0].kind != "math.roundeven":
        return node
    (number,) = node.operands[0].operands
    if number.type != "f32":
        return node
    return replace(node, kind="nearest", operands=(_or_nan(number),), text="")


def _or_nan(node: Node) -> Node:
    """Returns the number that a node replaces by 0 if it is NaN, or the node itself."""
    if node.kind != "arith.select":
        return node
    known, number, other = node.operands
    is_zero = other.kind == "constant" and not other.text.startswith("0x") and float(other.text.split(" ")[0]) == 0
    compared = known.kind == "arith.cmpf" and _EQUAL in known.text.split(", ")
    return number if is_zero and compared and known.operands == (number, number) else node


_EQUAL = "predicate = 1 : i64"
"""MLIR's printed form of the comparison `oeq`."""


def round_to_nearest(writer: Writer, number: Value) -> Value:
    """Rounds floats below 2**31 in magnitude to integers."""
    floats, integers = writer.vector_type("f32"), writer.vector_type("i32")
    name = writer.broadcast(number).name
    instruction = writer.instruction("nearest")
    if instruction is not None:
        nearest = writer.use(instruction, name)
    else:
        rounded = writer.let(f"math.roundeven {name} : {floats}")
        # This turns NaN into 0; the result of `arith.fptosi` would be undefined.
        call = f'llvm.call_intrinsic "llvm.fptosi.sat.v{writer.lanes}i32.v{writer.lanes}f32"({rounded})'
        nearest = writer.let(f"{call} : ({floats}) -> {integers}")
    if number.vector:
        return Value(nearest, "i32", True)
    return Value(writer.let(f"vector.extract {nearest}[0] : i32 from {integers}"), "i32")
