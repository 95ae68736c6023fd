"""Sums of products of 8-bit activations with block-quantized weights: recognition, and unpacking into words.

    total + (sum of (x - zero) * (value - middle) over a block, in i32) * scale

Quantized values of a weight are read as words, one for each column, of four values, or of eight with four bits each.
They become words of four signed bytes, which `dots.py` multiplies. The zero point of x is factored out of a block once
for all rows: as a multiple of the sum of quantized values.

A word of weights of four bits holds two groups of four steps; `low` and `high` select one of them:

    stored word       h3 l3  h2 l2  h1 l1  h0 l0      eight values of four bits
    low               0f & word           ->  l3 l2 l1 l0      a byte each, less `middle`
    high              0f & (word >> 4)    ->  h3 h2 h1 h0

Values of a table are looked up by the bytes of `low` and `high`, instead of a subtraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....dialect.emitter import Index
from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node, integer
from .dots import SIZES, WORD, add_products, by_group, grouped_loop, parts, parts_type, runs_along
from .lookups import find_lookup, look_up_bytes
from .structure import Access, Group, Op
from .text import Value, Writer

SUM = "quantized_sum"
"""The kind of node that is a sum over a block. Its operands are words of x and of bytes in turn; `number` is the zero
point of x."""
BYTES = "bytes"
"""The kind of node that is a word of four signed bytes: the quantized values that `text` selects from the word in the
first operand, less the second operand. A half may be followed by the table that its four bits are an index of."""
SIZE = SIZES["i8"]
MOST = 15
"""The largest quantized value of four bits."""
NIBBLES = "252645135"
"""0x0f in every byte."""
EVERY_BYTE = 0x01010101
DOT = Node("dot", WORD, text="arith.extui arith.extsi")


# Recognition


def group_quantized(op: Op) -> Op:
    """Returns the op with a group of steps merged into one, where it adds up scaled sums of products of block-quantized
    values."""
    for sum, factor, inner in op.factored():
        found = _find_products(sum)
        if found is not None:
            return _grouped_op(op, found, factor, inner) or op
    return op


@dataclass(frozen=True, slots=True)
class _Product:
    """A product `(x - zero) * bytes`, where x is read from memory."""

    x: Node
    zero: int
    bytes: Node

    @property
    def weight(self) -> int:
        """The index of the read that the bytes come from."""
        return self.bytes.operands[0].number


def _find_products(sum: Node) -> list[_Product] | None:
    if sum.kind != "arith.sitofp" or sum.operands[0].type != WORD:
        return None
    found = [_product(node) for node in _terms(sum.operands[0])]
    products = [p for p in found if p is not None]
    return products if len(products) == len(found) and len({p.zero for p in products}) == 1 else None


def _grouped_op(op: Op, products: Sequence[_Product], factor: Node, inner: frozenset[int]) -> Op | None:
    loop, *others = {grouped_loop(op.reads[p.weight], SIZE) for p in products}
    if others or loop is None or loop not in inner:
        return None
    steps = op.loops[loop]
    inputs, weights = {p.x.number for p in products}, {p.weight for p in products}
    if not isinstance(steps, int) or steps % SIZE or not all(runs_along(op.reads[n], loop) for n in inputs):
        return None
    if any(loop in op.reads[n].loops() for n in range(len(op.reads)) if n not in inputs | weights):
        return None
    reads = tuple(_grouped(access, n, weights, inputs, loop) for n, access in enumerate(op.reads))
    words = tuple(word for p in products for word in (replace(p.x, type=WORD), p.bytes))
    total = Node(SUM, WORD, words, number=products[0].zero)
    start = next(n for n in op.body.operands if n.kind == "start")
    product = Node("arith.mulf", "f32", (Node("arith.sitofp", "f32", (total,)), factor))
    body = Node("arith.addf", "f32", (start, product))
    for node in (total, *product.operands[:1], product, body):
        node.location = op.body.location
    sizes = tuple(size // SIZE if n == loop and isinstance(size, int) else size for n, size in enumerate(op.loops))
    return Op(sizes, op.parallel, reads, op.map, body, op.start, op.location)


def _grouped(access: Access, number: int, weights: set[int], inputs: set[int], loop: int) -> Access:
    if number in weights:
        return replace(access, index=by_group(access.index, loop, SIZE), group=Group(SIZE, loop, 0))
    if number in inputs:
        return replace(access, index=(*access.index[:-1], Index(((loop, SIZE),))), group=Group(SIZE, loop, 0))
    return access


def _terms(node: Node) -> list[Node]:
    """Returns the terms of a sum in i32."""
    return [t for o in node.operands for t in _terms(o)] if node.kind == "arith.addi" else [node]


def _product(node: Node) -> _Product | None:
    if node.kind != "arith.muli":
        return None
    for left, right in (node.operands, node.operands[::-1]):
        x, bytes = _steps(left), _bytes(right)
        if x is not None and bytes is not None:
            return _Product(*x, bytes)
    return None


def _steps(node: Node) -> tuple[Node, int] | None:
    """Matches `x - zero` of an unsigned byte."""
    zero: int | None = 0
    if node.kind == "arith.subi":
        node, subtracted = node.operands
        zero = integer(subtracted)
    return (node.operands[0], zero) if _is_widened(node, "arith.extui") and zero is not None else None


def _bytes(node: Node) -> Node | None:
    """Matches quantized values that fit a signed byte: signed bytes, four bits less another 4-bit number, or entries of
    a table of signed bytes, selected by four bits."""
    if _is_widened(node, "arith.extsi"):
        return Node(BYTES, WORD, (replace(node.operands[0], type=WORD),), text="whole")
    if node.kind != "arith.subi":
        return _table_bytes(node)
    bits, middle = node.operands
    number = integer(middle)
    if not (_is_low(middle) or (number is not None and 0 <= number <= MOST)):
        return None
    word = bits.operands[0] if bits.operands else bits
    if _is_low(bits):
        half = "low"
    elif bits.kind in ("arith.shrsi", "arith.shrui") and integer(bits.operands[1]) == 4 and _is_unsigned(word):
        half = "high"
    else:
        return None
    return Node(BYTES, WORD, (replace(word.operands[0], type=WORD), middle), text=half)


def _table_bytes(node: Node) -> Node | None:
    found = find_lookup(node)
    if found is None or not _is_unsigned(found.byte) or not found.are_bytes:
        return None
    text = " ".join([found.half, *map(str, found.values)])
    return Node(BYTES, WORD, (replace(found.byte.operands[0], type=WORD),), text=text)


def _is_low(node: Node) -> bool:
    """Returns whether the node is the lowest four bits of a byte."""
    return node.kind == "arith.andi" and integer(node.operands[1]) == MOST and _is_unsigned(node.operands[0])


def _is_unsigned(node: Node) -> bool:
    return _is_widened(node, "arith.extui")


def _is_widened(node: Node, by: str) -> bool:
    return node.kind == by and node.type == WORD and node.operands[0].kind == "read" and node.operands[0].type == "i8"


# Writing


def unpack(writer: Writer, selected: str, word: Value, subtracted: Sequence[Value]) -> Value:
    """Returns a word of four signed bytes for each column."""
    half, *table = selected.split()
    type = writer.vector_type(WORD)
    name = writer.broadcast(word).name
    if half == "high":
        name = writer.let(f"arith.shrui {name}, {writer.splat('4', type)} : {type}")
    if half != "whole":
        name = writer.let(f"arith.andi {name}, {writer.splat(NIBBLES, type)} : {type}")
    if table:
        return Value(look_up_bytes(writer, list(map(int, table)), name), WORD, True)
    for number in subtracted:
        middle = writer.apply("arith.muli", "", [number, writer.constant(str(EVERY_BYTE), WORD)], WORD)
        bytes = parts_type(writer, "i8")
        operands = f"{parts(writer, name, 'i8')}, {parts(writer, writer.broadcast(middle).name, 'i8')}"
        name = writer.let(f"arith.subi {operands} : {bytes}")
        name = writer.let(f"vector.bitcast {name} : {bytes} to {type}")
    return Value(name, WORD, True)


def add_quantized(writer: Writer, total: Value, x: Value, bytes: Value) -> Value:
    """Returns the sum over a block after one more group."""
    return add_products(writer, DOT, total, (x, bytes))


def add_zero(writer: Writer, zero: int, total: Value, bytes: Value) -> Value:
    """Returns the sum of the zero point's products after one more group."""
    return add_quantized(writer, total, writer.constant(str(_signed(zero * EVERY_BYTE)), WORD), bytes)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
