"""Small whole numbers as floats: four bits are looked up in a table of sixteen numbers, which a register holds.

Where the CPU looks a vector of numbers up by one instruction, that takes the place of masking, subtracting and
converting. What it gives is the same.
"""

from __future__ import annotations

from .structure import Node, integer
from .text import Value, Writer

ENTRIES = 16
_WORD = "i32"


def find_lookup(node: Node) -> tuple[Node, int] | None:
    """What four bits are the lowest of, and what is subtracted from them, where a node gives the difference as f32."""
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
    return writer.lanes == ENTRIES and "avx512f" in writer.features


def look_up(writer: Writer, bits: Value, subtracted: int) -> Value:
    """The float for the lowest four bits of each lane."""
    floats, words = writer.vector_type("f32"), writer.vector_type(_WORD)
    table = writer.splat(f"[{', '.join(f'{number - subtracted}.0' for number in range(ENTRIES))}]", floats)
    operands = f"{table}, {writer.broadcast(bits).name}"
    call = f'llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"({operands}) : ({floats}, {words}) -> {floats}'
    return Value(writer.let(call), "f32", True)


def _is_byte(node: Node) -> bool:
    return node.kind == "arith.extui" and node.operands[0].type == "i8"
