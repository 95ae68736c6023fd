"""Small integers as floats: four bits index a table of sixteen numbers, which a register holds.

Where the CPU has a vector table lookup, it replaces masking, subtracting and converting. The results are the same.

For values of four bits that stand for -8 to 7 (`(word & 15) - 8` as f32), the register holds -8.0, -7.0, ..., 7.0.
"""

from __future__ import annotations

from .structure import Node, integer
from .text import Value, Writer

ENTRIES = 16
_WORD = "i32"


def find_lookup(node: Node) -> tuple[Node, int] | None:
    """Returns the source of the four bits (its lowest ones) and the subtrahend, where a node computes the difference as
    f32."""
    if node.kind != "arith.sitofp" or node.type != "f32" or node.operands[0].kind != "arith.subi":
        return None
    bits, middle = node.operands[0].operands
    subtracted = integer(middle)
    if subtracted is None or bits.type != _WORD:
        return None
    if bits.kind == "arith.andi":
        for source, mask in (bits.operands, bits.operands[::-1]):
            if integer(mask) == ENTRIES - 1:
                return source, subtracted
    is_upper = bits.kind == "arith.shrsi" and integer(bits.operands[1]) == 4 and _is_byte(bits.operands[0])
    return (bits, subtracted) if is_upper else None


def can_look_up(writer: Writer) -> bool:
    return writer.lanes == ENTRIES and writer.instruction("look-up") is not None


def look_up(writer: Writer, bits: Value, subtracted: int) -> Value:
    """Returns the float for the lowest four bits of each lane."""
    floats = writer.vector_type("f32")
    table = writer.splat(f"[{', '.join(f'{number - subtracted}.0' for number in range(ENTRIES))}]", floats)
    instruction = writer.instruction("look-up")
    assert instruction is not None, writer.features
    return Value(writer.use(instruction, table, writer.broadcast(bits).name), "f32", True)


def _is_byte(node: Node) -> bool:
    return node.kind == "arith.extui" and node.operands[0].type == "i8"
