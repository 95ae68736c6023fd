"""Sums of products of bytes in 16 bits, on CPUs that multiply unsigned by signed bytes and add two neighbouring
products, but have no instruction for four of them.

The instruction saturates: 255 * 127 * 2 exceeds 16 bits. Quantized values of few bits are so small that no sum does:

    values               largest pair          pairs in 16 bits
    -8 .. 7              255 * 8 * 2           8, the 32 values of a block
    -15 .. 15            255 * 15 * 2          4
    -128 .. 127          255 * 128 * 2         none; only their sums without another factor

Two instructions then add the products of a word, where splitting it into halves takes four and those of the split. The
results are the same: each sum is exact.
"""

from __future__ import annotations

from ....dialect.lazy_dataclass import dataclass
from ..isa import Instruction
from ..structured.body_nodes import Node, integer
from .dots import SIZES, WORD, parts, parts_type
from .quantized_sums import EVERY_BYTE, MOST
from .text import Value, Writer

LARGEST_SUM = (1 << 15) - 1
LARGEST_FACTOR = 255
"""The largest unsigned byte."""
PRODUCTS = 2
"""The products that are added to a sum in 16 bits."""
LARGEST_BYTE = 128


@dataclass(frozen=True, slots=True)
class BytePairs:
    """The instructions that multiply bytes, and that add up 16-bit sums."""

    multiply: Instruction
    widen: Instruction

    def add(self, writer: Writer, total: Value | None, unsigned: Value, signed: Value) -> Value:
        """Returns words of two 16-bit sums after the products of one more word of four bytes."""
        factors = (parts(writer, writer.broadcast(word).name, "i8") for word in (unsigned, signed))
        name, type = writer.use(self.multiply, *factors), parts_type(writer, "i16")
        if total is not None:
            name = writer.let(f"arith.addi {parts(writer, total.name, 'i16')}, {name} : {type}")
        return Value(writer.let(f"vector.bitcast {name} : {type} to {writer.vector_type(WORD)}"), WORD, True)

    def add_bytes(self, writer: Writer, total: Value | None, signed: Value) -> Value:
        """Returns words of two 16-bit sums after the bytes of one more word."""
        return self.add(writer, total, writer.constant(str(EVERY_BYTE), WORD), signed)

    def widened(self, writer: Writer, sums: Value, factor: int = 1) -> Value:
        """Returns the sum of both halves of each word times a factor."""
        halves = parts_type(writer, "i16")
        name = writer.use(self.widen, parts(writer, sums.name, "i16"), writer.splat(str(factor), halves))
        return Value(name, WORD, True)


def find_byte_pairs(writer: Writer) -> BytePairs | None:
    """Returns the instructions; None where one of them is missing, or where one instruction adds four products."""
    multiply, widen = writer.instruction("multiply-bytes"), writer.instruction("multiply-pairs")
    if multiply is None or widen is None or writer.instruction("dot-bytes") is not None:
        return None
    return BytePairs(multiply, widen)


def words_in_sum(bytes: Node) -> int:
    """Returns the number of words of quantized values whose products with unsigned bytes fit in a sum of 16 bits. The
    node is one of the kind `bytes`, see `quantized_sums.py`."""
    half, *table = bytes.text.split()
    if half == "whole":
        return 0
    if table:
        largest = max(abs(int(value)) for value in table)
    else:
        middle = integer(bytes.operands[1])
        largest = MOST if middle is None else max(middle, MOST - middle)
    return LARGEST_SUM // (LARGEST_FACTOR * PRODUCTS * max(largest, 1))


MOST_WORDS = LARGEST_SUM // (LARGEST_BYTE * PRODUCTS)
"""The number of words whose bytes fit in a sum of 16 bits."""
assert SIZES["i8"] == 2 * PRODUCTS
