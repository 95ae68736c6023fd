"""Functions of four bits, whose sixteen values a register holds: a table look-up replaces their arithmetic.

The values are computed here for each of the bits, so that any arithmetic on 32-bit integers is recognized:

    (byte & 15) - 8       ->    -8, -7, ..., 7                  low half of the byte
    byte >> 4             ->    0, 1, ..., 15                   high half
    shifts of the words of a table, selected by bits of byte & 15    ->    the table

Floats are looked up by one instruction on CPUs that have it for sixteen lanes. Other CPUs with an instruction that
shuffles bytes look up signed bytes, four vectors of indices at a time or one (`look_up_bytes`, `look_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I8
from ..isa import SHUFFLE, Instruction, find_exponents
from ..structured.body_nodes import Node, integer
from .dots import WORD, parts, parts_type
from .forms import LANES, constant
from .text import Value, Writer

ENTRIES = 16
HALF_BITS = 16
BYTE_BITS = 8
EVERY_BIT = 0xFFFF
EXPONENT = 0x7F80
"""The exponent of a bf16."""
FRACTION_BITS = 7
"""The bits of a bf16 below its exponent."""
INDICES = 0x0F0F0F0F
UPPER_BYTES = -0x00FF0100
"""The upper byte of each half of a word."""
BYTE = I8.mlir
_OTHERS = str(0x808080)
"""The lower three bytes of a word as indices for which a shuffle returns 0."""
Words = npt.NDArray[np.int32]
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    f"predicate = {number} : i64": compare
    for number, compare in enumerate((np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal))
}
"""Signed comparisons by MLIR's printed form."""
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": lambda x, y: (x.view(np.uint32) >> y.astype(np.uint32)).view(np.int32),
}
_COMPUTED = frozenset({*_ARITHMETIC, "arith.select"})
_SHIFTS = ("arith.shli", "arith.shrsi", "arith.shrui")


@dataclass(frozen=True, slots=True)
class Lookup:
    """A function of one half of a byte: `low` or `high`. `byte` is the byte as a word."""

    byte: Node
    half: str
    values: tuple[int, ...]

    @property
    def are_bytes(self) -> bool:
        low, high = I8.integer_range
        return all(low <= value <= high for value in self.values)

    @property
    def counts(self) -> bool:
        """Whether the values are consecutive numbers, which f32 has."""
        first = self.values[0]
        return self.are_bytes and self.values == tuple(range(first, first + ENTRIES))


def find_lookup(node: Node) -> Lookup | None:
    """Returns the table of a node that computes a word of a half of a byte."""
    if not _is_computed(node):
        return None
    bytes: list[Node] = []
    results = _evaluate(node, bytes, {})
    if results is None or len(bytes) != 1:
        return None
    table = results.reshape(ENTRIES, ENTRIES)
    for half, lines in (("low", table), ("high", table.T)):
        if (lines == lines[0]).all():
            return Lookup(bytes[0], half, tuple(lines[0].tolist()))
    return None


def _evaluate(node: Node, bytes: list[Node], done: dict[int, Any]) -> Any:
    """Returns the results of a node for all values of the byte that it depends on, which becomes the element of
    `bytes`; None where it is no function of one byte."""
    if id(node) not in done:
        done[id(node)] = _compute(node, bytes, done)
    return done[id(node)]


def _compute(node: Node, bytes: list[Node], done: dict[int, Any]) -> Any:
    number = integer(node)
    if number is not None:
        return np.full(256, number, np.int32)
    if _is_byte(node):
        if not bytes:
            bytes.append(node)
        return np.arange(256, dtype=np.int32) if bytes[0] is node else None
    if node.kind not in _ARITHMETIC and node.kind not in ("arith.select", "arith.cmpi"):
        return None
    operands = [_evaluate(operand, bytes, done) for operand in node.operands]
    if any(operand is None for operand in operands):
        return None
    if node.kind == "arith.select":
        return np.where(*operands)
    if node.kind == "arith.cmpi":
        compare = _COMPARISONS.get(node.text)
        return None if compare is None else compare(*operands)
    if node.kind in _SHIFTS and not ((operands[1] >= 0) & (operands[1] < 32)).all():
        return None
    return _ARITHMETIC[node.kind](*operands)


def _is_computed(node: Node) -> bool:
    return node.type == WORD and node.kind in _COMPUTED


def _is_byte(node: Node) -> bool:
    return node.kind == "arith.extui" and node.type == WORD and node.operands[0].type == BYTE


# Code


def find_floats(writer: Writer, node: Node) -> Lookup | None:
    """Returns the look-up that replaces a node, where the node is an integer of a table as f32 and the CPU is faster
    with a look-up."""
    if node.kind != "arith.sitofp" or node.type != "f32" or not _is_computed(node.operands[0]):
        return None
    if not _has_floats(writer) and writer.instruction(SHUFFLE) is None:
        return None
    found = find_lookup(node.operands[0])
    if found is None or _has_floats(writer):
        return found
    # Without the instruction for floats, a subtraction is faster than a look-up.
    steps = {b - a for a, b in pairwise(found.values)}
    return None if len(steps) == 1 or not found.are_bytes else found


def look_up_floats(writer: Writer, lookup: Lookup, byte: Value) -> Value:
    """Returns the float of each lane."""
    words, floats = writer.vector_type(WORD), writer.vector_type("f32")
    bits = writer.broadcast(byte).name
    if lookup.half == "high" and _has_floats(writer) and lookup.counts:
        return _count_from(writer, lookup.values[0], bits)
    if lookup.half == "high":
        bits = writer.let(f"arith.shrsi {bits}, {writer.splat('4', words)} : {words}")
    if _has_floats(writer):
        # The instruction reads the lowest four bits.
        table = writer.splat(f"[{', '.join(f'{number}.0' for number in lookup.values)}]", floats)
        instruction = writer.instruction("look-up")
        assert instruction is not None, writer.features
        return Value(writer.use(instruction, table, bits), "f32", True)
    # The byte is looked up at the upper end of a word, so that a shift extends its sign.
    shift = writer.splat("24", words)
    bits = writer.let(f"arith.andi {bits}, {writer.splat(str(ENTRIES - 1), words)} : {words}")
    bits = writer.let(f"arith.shli {bits}, {shift} : {words}")
    bits = writer.let(f"arith.ori {bits}, {writer.splat(_OTHERS, words)} : {words}")
    found = look_up_bytes(writer, lookup.values, bits)
    found = writer.let(f"arith.shrsi {found}, {shift} : {words}")
    return Value(writer.let(f"arith.sitofp {found} : {words} to {floats}"), "f32", True)


def _count_from(writer: Writer, first: int, bytes: str) -> Value:
    """Returns `first + (byte >> 4)` as floats, for words of bytes. The four bits become the last ones of a float of
    2**19 or more, whose last place is 1/16, so that they are whole numbers in it, without a shift."""
    words, floats = writer.vector_type(WORD), writer.vector_type("f32")
    bits = writer.let(f"arith.andi {bytes}, {writer.splat('240', words)} : {words}")
    bits = writer.let(f"arith.ori {bits}, {writer.splat(str(0x49000000), words)} : {words}")
    number = writer.let(f"arith.bitcast {bits} : {words} to {floats}")
    base = writer.splat(f"{(1 << 19) - first}.0", floats)
    return Value(writer.let(f"arith.subf {number}, {base} : {floats}"), "f32", True)


def look_up_bytes(writer: Writer, table: Sequence[int], indices: str) -> str:
    """Returns words of signed bytes of a table, for words of indices below 16."""
    words, bytes = writer.vector_type(WORD), parts_type(writer, BYTE)
    numbers = writer.lanes * 4
    instruction = writer.instruction(SHUFFLE)
    given = parts(writer, indices, BYTE)
    if instruction is not None:
        repeated = [table[n % ENTRIES] for n in range(numbers)]
        found = writer.use(instruction, writer.splat(f"[{', '.join(map(str, repeated))}]", bytes), given)
    else:
        found = _select_bytes(writer, table, given)
    return writer.let(f"vector.bitcast {found} : {bytes} to {words}")


def _select_bytes(writer: Writer, table: Sequence[int], indices: str) -> str:
    """Selects by the bits of the indices, the lowest first."""
    bytes = parts_type(writer, BYTE)
    bits = bytes.replace(BYTE, "i1")
    found = [writer.splat(str(number), bytes) for number in table]
    zero, bit = writer.splat("0", bytes), 1
    while len(found) > 1:
        masked = writer.let(f"arith.andi {indices}, {writer.splat(str(bit), bytes)} : {bytes}")
        has = writer.let(f"arith.cmpi ne, {masked}, {zero} : {bytes}")
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [writer.let(f"arith.select {has}, {odd}, {even} : {bits}, {bytes}") for even, odd in pairs]
        bit *= 2
    return found[0]


@dataclass(frozen=True, slots=True)
class PairLookup:
    """Two entries of a table of 16 bits in memory, in the halves of a word, without the bits that are not in `mask`.
    Their indices are four bits of the halves of another word, from bit `shift` on."""

    table: Node
    indices: Node
    shift: int
    mask: int


def find_pair(node: Node) -> PairLookup | None:
    """Returns the look-up of `table[i & 15] & mask | (table[(i >> 16) & 15] & mask) << 16` in a table whose entries are
    repeated."""
    if node.kind != "arith.ori" or node.type != WORD:
        return None
    low, moved = node.operands
    if moved.kind != "arith.shli" or integer(moved.operands[1]) != HALF_BITS:
        return None
    (first, mask), (second, masked) = (_without_mask(half) for half in (low, moved.operands[0]))
    low_entry, high_entry = _entry(first), _entry(second)
    if low_entry is None or high_entry is None or mask != masked:
        return None
    (table, word, shift), (other, same, further) = low_entry, high_entry
    if table.tensor is not other.tensor or word is not same or further != shift + HALF_BITS:
        return None
    return PairLookup(table, word, shift, mask)


def _without_mask(node: Node) -> tuple[Node, int]:
    """Returns an entry without the mask that it may have, and the mask."""
    number = integer(node.operands[1]) if node.kind == "arith.andi" else None
    return (node, EVERY_BIT) if number is None else (node.operands[0], number & EVERY_BIT)


def _entry(node: Node) -> tuple[Node, Node, int] | None:
    """Returns the load of an entry, the word that holds its index, and the index's first bit."""
    if node.kind != "arith.extui" or node.operands[0].kind != "extract":
        return None
    (read,) = node.operands
    view = None if read.tensor is None else read.tensor.view
    if view is None or read.type != "i16" or read.guard is not None or view.strides != (1,):
        return None
    assert read.tensor is not None, node
    (index,) = read.operands
    while index.kind in ("arith.index_cast", "arith.extui"):
        (index,) = index.operands
    if read.tensor.shape != (2 * ENTRIES,) or index.kind != "arith.andi" or integer(index.operands[1]) != ENTRIES - 1:
        return None
    word = index.operands[0]
    if word.kind != "arith.shrui":
        return read, word, 0
    bits = integer(word.operands[1])
    return None if bits is None else (read, word.operands[0], bits)


def look_up_pair(writer: Writer, lookup: PairLookup, indices: Value) -> Value | None:
    """Returns the word of each lane; None where the CPU has no instruction for it."""
    instruction = find_exponents(writer.lanes, writer.features)
    view = None if lookup.table.tensor is None else lookup.table.tensor.view
    if instruction is None or view is None or not indices.vector:
        return None
    are_bytes = instruction.operation == SHUFFLE
    if are_bytes and lookup.mask != EXPONENT:
        return None
    words, halves = writer.vector_type(WORD), parts_type(writer, "i16")
    with writer.masked(None):
        loaded = writer.load_words(view.buffer, constant(view.offset) + LANES.times(2), 2, 2)
    table = parts(writer, loaded.name, "i16")
    if lookup.mask != EVERY_BIT:
        table = writer.let(f"arith.andi {table}, {writer.splat(str(lookup.mask), halves)} : {halves}")
    if are_bytes:
        return _shuffle_exponents(writer, instruction, table, indices.name, lookup.shift)
    moved = _moved_right(writer, indices.name, lookup.shift)
    found = writer.use(instruction, table, parts(writer, moved, "i16"))
    return Value(writer.let(f"vector.bitcast {found} : {halves} to {words}"), WORD, True)


def _shuffle_exponents(writer: Writer, shuffle: Instruction, table: str, indices: str, shift: int) -> Value:
    """Returns words of the exponents of two bf16, in the bits that they have there. One shuffle looks up those of two
    pairs, whose indices i and j are in the same bytes:

        a half of the indices, moved by 4 bits for every other pair     ....jjjj ....iiii
        a half of the exponents after the shuffle                       jjjjjjjj iiiiiiii
        the exponent of i, moved to the left by 7 bits                  0iiiiiii i0000000
        the exponent of j, moved to the right by 1 bit                  0jjjjjjj j0000000
    """
    words, halves, bytes = writer.vector_type(WORD), parts_type(writer, "i16"), parts_type(writer, BYTE)
    exponents = writer.let(f"arith.shrui {table}, {writer.splat(str(FRACTION_BITS), halves)} : {halves}")
    once = f"vector<{ENTRIES}x{BYTE}>"
    narrow = writer.let(f"arith.trunci {exponents} : {halves} to {once}")
    twice = writer.let(f"vector.shuffle {narrow}, {narrow} {[*range(ENTRIES)] * 2} : {once}, {once}")
    is_upper, first = divmod(shift, BYTE_BITS)
    moved = _moved_right(writer, indices, first)
    moved = writer.let(f"arith.andi {moved}, {writer.splat(str(INDICES), words)} : {words}")
    found = writer.use(shuffle, twice, parts(writer, moved, BYTE))
    found = writer.let(f"vector.bitcast {found} : {bytes} to {words}")
    mask = UPPER_BYTES if is_upper else ~UPPER_BYTES
    kept = writer.let(f"arith.andi {found}, {writer.splat(str(mask), words)} : {words}")
    return Value(_moved_right(writer, kept, is_upper * BYTE_BITS - FRACTION_BITS), WORD, True)


def _moved_right(writer: Writer, words: str, bits: int) -> str:
    """Returns words moved to the right, or to the left by a negative number of bits."""
    type, name = writer.vector_type(WORD), "shrui" if bits > 0 else "shli"
    return writer.let(f"arith.{name} {words}, {writer.splat(str(abs(bits)), type)} : {type}") if bits else words


def _has_floats(writer: Writer) -> bool:
    return writer.lanes == ENTRIES and writer.instruction("look-up") is not None
