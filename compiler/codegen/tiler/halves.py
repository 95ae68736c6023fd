"""16-bit floats in vectors: selections between them, and the rounding of f32 to bf16.

LLVM moves 16-bit floats one by one where the CPU has no arithmetic on them, so that a selection is one of integers of
16 bits.

A bf16 number is the upper half of an f32. Where an f32 is known to be a bf16 number, its lower half is 0: its rounding
keeps the upper half, and widening that half again gives the same f32.

    truncf(maximumf(extf(x), 0))              upper(maximumf(extf(x), 0))       `relu` of bf16
    truncf(minimumf(extf(upper(y)), 6))       upper(minimumf(y, 6))             `relu6`, where y is the node above
    truncf(addf(extf(x), extf(y)))            unchanged: rounded to nearest, halves to even

Changes of a sign alone are those of a bit, in vectors of 16-bit integers:

    truncf(negf(extf(x)))                     bitcast(xori(bitcast(x), 0x8000)), also in f16
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..elementary.vector_math.writer import f32_bits
from ..isa import supports
from ..structured.body_nodes import Node
from .text import Value, Writer

UPPER = "upper"
"""The kind of a node whose operand, an f32, is a bf16 number or a NaN with a lower half of 0."""
_ROUND, _WIDEN, _SELECT, BITCAST = "arith.truncf", "arith.extf", "arith.select", "arith.bitcast"
_CLOSED = frozenset(
    {"arith.negf", "arith.maximumf", "arith.minimumf"}
    | {f"math.{name}" for name in ("absf", "copysign", "floor", "ceil", "trunc", "roundeven")}
)
"""Operations on f32 whose result is a bf16 number if the operands are: an operand but for its sign, or an integer. A
bf16 number with a fraction is below 128, and every integer up to 128 has at most 8 significant bits."""
_NARROWED = _CLOSED - {"arith.negf", "math.absf", "math.copysign"}
"""Operations that LLVM narrows where their operands were widened from f16. Without arithmetic on f16, it would then
take the lanes one by one, and convert each of them for each step."""
_SIGNS = {"arith.negf": ("arith.xori", -0x8000), "math.absf": ("arith.andi", 0x7FFF)}
"""The operations that change a sign, as integer operations with a mask on 16 bits."""
_HALVES = ("bf16", "f16")
_QUIET = "0x7FC00000"
"""The NaN that every NaN is rounded to."""


def find_exact(node: Node) -> Node:
    """Returns the node, with `upper` or a change of the sign's bit in place of a rounding that changes no number."""
    if node.kind == _ROUND and node.type in _HALVES:
        (number,) = node.operands
        if (
            number.kind in _SIGNS
            and number.operands[0].kind == _WIDEN
            and number.operands[0].operands[0].type == node.type
        ):
            return _with_other_sign(node, number.kind, number.operands[0].operands[0])
        if node.type == "bf16" and is_bfloat(number):
            return replace(node, kind=UPPER, text="")
    if node.kind == _WIDEN and node.type == "f32" and node.operands[0].kind == UPPER:
        return node.operands[0].operands[0]
    return node


def _with_other_sign(node: Node, kind: str, number: Node) -> Node:
    operation, mask = _SIGNS[kind]
    bits = Node(BITCAST, "i16", (number,), location=node.location)
    constant = Node("constant", "i16", text=f"{mask} : i16", location=node.location)
    changed = Node(operation, "i16", (bits, constant), location=node.location)
    return replace(node, kind=BITCAST, operands=(changed,), text="")


def is_bit_pattern(node: Node) -> bool:
    """Returns whether a node is a 16-bit float made of integers of 16 bits."""
    return node.kind == BITCAST and node.type in _HALVES


def is_bfloat(node: Node) -> bool:
    """Returns whether an f32 is a bf16 number or a NaN with a lower half of 0, for any operands of the body."""
    pending, seen = [node], set[int]()
    while pending:
        part = pending.pop()
        if id(part) in seen or (part.kind == _WIDEN and part.operands[0].type == "bf16"):
            continue
        seen.add(id(part))
        if part.type != "f32":
            return False
        if part.kind == "constant":
            if not _is_short(part.text):
                return False
        elif part.kind == _SELECT:
            pending += part.operands[1:]
        elif part.kind in _CLOSED:
            pending += part.operands
        else:
            return False
    return True


def _is_short(text: str) -> bool:
    """Returns whether a constant of f32, as MLIR prints it, is a bf16 number."""
    literal = text.partition(" ")[0]
    bits = int(literal, 16) if literal.startswith("0x") else f32_bits(float(literal))
    return bits & 0xFFFF == 0


def apply_to_halves(writer: Writer, node: Node, operands: Sequence[Value]) -> Value | None:
    """Returns the result of a node on 16-bit floats where `Writer.apply` would give slower code; None for any other
    node."""
    if node.kind == UPPER:
        return _upper_half(writer, writer.apply("arith.bitcast", "", operands, "i32"))
    if not any(value.vector for value in operands):
        return None
    if node.kind == _SELECT and node.type in _HALVES:
        condition, *values = operands
        integers = [writer.apply("arith.bitcast", "", [value], "i16") for value in values]
        chosen = writer.apply(_SELECT, "", [condition, *integers], "i16")
        return writer.apply("arith.bitcast", "", [chosen], node.type)
    if node.kind in _NARROWED and any(map(_is_wide_f16, node.operands)) and _only_converts_f16(writer):
        return writer.apply(node.kind, node.text, [_fence(writer, value) for value in operands], node.type)
    if node.kind == _ROUND and node.type == "bf16" and node.operands[0].type == "f32":
        has_instruction = supports("round-to-bfloat", writer.features)
        return (_round_by_instruction if has_instruction else _round_by_integers)(writer, operands[0])
    return None


def _is_wide_f16(node: Node) -> bool:
    return node.kind == _WIDEN and node.operands[0].type == "f16"


def _only_converts_f16(writer: Writer) -> bool:
    """Returns whether the CPU is of x86 and has no arithmetic on f16."""
    return "sse2" in writer.features and not supports("compute-in-f16", writer.features)


def _fence(writer: Writer, value: Value) -> Value:
    """Returns a vector of f32 such that LLVM does not know how it was computed."""
    type = writer.type(value)
    if not value.vector:
        return value
    call = f'"llvm.arithmetic.fence.v{writer.lanes}f32"({value.name})'
    return Value(writer.let(f"llvm.call_intrinsic {call} : ({type}) -> {type}"), value.type, True)


def _upper_half(writer: Writer, word: Value) -> Value:
    """Returns the bf16 that is the upper half of a word."""
    shifted = writer.apply("arith.shrui", "", [word, writer.constant("16", "i32")], "i32")
    return writer.apply("arith.bitcast", "", [writer.apply("arith.trunci", "", [shifted], "i16")], "bf16")


def _round_by_integers(writer: Writer, value: Value) -> Value:
    """Rounds a vector of f32 to bf16: adds a little less than half a unit of the upper half, or half a unit where the
    upper half is odd.

    NaN is chosen among words; a condition for shorter elements would have to be narrowed first.
    """
    floats, words, bits = writer.type(value), writer.vector_type("i32"), writer.vector_type("i1")
    word = writer.let(f"arith.bitcast {value.name} : {floats} to {words}")
    upper = writer.let(f"arith.shrui {word}, {writer.splat('16', words)} : {words}")
    odd = writer.let(f"arith.andi {upper}, {writer.splat('1', words)} : {words}")
    added = writer.let(f"arith.addi {word}, {writer.splat('0x7FFF', words)} : {words}")
    total = writer.let(f"arith.addi {added}, {odd} : {words}")
    is_nan = writer.let(f"arith.cmpf uno, {value.name}, {value.name} : {floats}")
    chosen = writer.let(f"arith.select {is_nan}, {writer.splat(_QUIET, words)}, {total} : {bits}, {words}")
    return _upper_half(writer, Value(chosen, "i32", True))


def _round_by_instruction(writer: Writer, value: Value) -> Value:
    """Rounds a vector of f32 to bf16 with the instruction that flushes denormal inputs to zero.

    A number without exponent bits (a denormal, or zero) gets the exponent of 2 before the instruction and loses it
    afterwards. The fraction alone determines the rounding, so the result is exact: the bits 0x00012345 become
    0x40012345, then 0x4001, then 0x0001. The sequence takes five instructions; rounding by integers takes eight.
    """
    floats, words = writer.type(value), writer.vector_type("i32")
    halves, short, bits = writer.vector_type("bf16"), writer.vector_type("i16"), writer.vector_type("i1")
    word = writer.let(f"arith.bitcast {value.name} : {floats} to {words}")
    exponent = writer.let(f"arith.andi {word}, {writer.splat('0x7F800000', words)} : {words}")
    tiny = writer.let(f"arith.cmpi eq, {exponent}, {writer.splat('0', words)} : {words}")
    raised = writer.let(f"arith.ori {word}, {writer.splat('0x40000000', words)} : {words}")
    chosen = writer.let(f"arith.select {tiny}, {raised}, {word} : {bits}, {words}")
    normal = writer.let(f"arith.bitcast {chosen} : {words} to {floats}")
    rounded = writer.let(f"llvm.fptrunc {normal} : {floats} to {halves}")
    half = writer.let(f"arith.bitcast {rounded} : {halves} to {short}")
    lowered = writer.let(f"arith.subi {half}, {writer.splat('0x4000', short)} : {short}")
    result = writer.let(f"arith.select {tiny}, {lowered}, {half} : {bits}, {short}")
    return Value(writer.let(f"arith.bitcast {result} : {short} to {halves}"), "bf16", True)
