"""Sums of products of elements narrower than 32 bits, a group of steps at a time: recognition and code.

A weight that is stored in groups (`compiler/lower/packing.py`) is read as words of 32 bits, one for each column. So is
the other factor, which is contiguous in memory, or is gathered where every column has its own elements. The rest of the
tiler treats a group as one step of the sum. Integers are summed exactly on every CPU. bf16 products are summed in f32.
The bf16 instruction treats denormal inputs as zero and flushes denormal sums; the path without it, which `strict` code
takes, does not.

Four steps of total[j] = sum of x[k] * w[k, j] in bytes become one step on words of 32 bits:

    word of w for column j        w[k, j]  w[k+1, j]  w[k+2, j]  w[k+3, j]     adjacent in the packed weight
    word of x for all columns     x[k]     x[k+1]     x[k+2]     x[k+3]        adjacent in memory
    one step                      total[j] += the sum of the four products

With VNNI this is one instruction for a vector of columns. Other CPUs widen the bytes to 16 bits and multiply the even
and the odd ones. bf16 has two elements in a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from ....dialect.dims import Size, ceil_divide
from ....dialect.emitter import Index
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import ANY
from ..isa import find
from ..structured.body_nodes import Node
from ..structured.positions import Panel, linear, plain
from .structure import Access, Group, Op, Position
from .text import Value, Writer

WORD = "i32"
SUMS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "arith.addi": ("arith.muli", "i32", {"arith.extsi": "i8", "arith.extui": "i8"}),
    "arith.addf": ("arith.mulf", "f32", {"arith.extf": "bf16"}),
}
"""For each addition: the multiplication, the type of both, and the widening of the factors with its source type."""
SIZES: Mapping[str, int] = {dtype.mlir: dtype.group for dtype in ANY if dtype.is_grouped}
"""The number of elements in a word."""
HALVES = ("even", "odd")
"""The names of every second element of a word, from the first one and from the second one on."""


@dataclass(frozen=True, slots=True)
class Halves:
    """A word of two widened bf16 values: the first one, and the second one."""

    even: Value
    odd: Value


# Recognition


def group_steps(op: Op) -> Op:
    """Returns the op with a group of steps merged into one, where it sums products with a weight that is stored in
    groups."""
    factors = _narrow_factors(op)
    if factors is None or len(op.reads) != 2:
        return op
    size = SIZES[op.reads[0].tensor.element]
    for weight, other in (op.reads, op.reads[::-1]):
        loop = grouped_loop(weight, size)
        if loop is None or op.parallel[loop] or not isinstance(steps := op.loops[loop], int):
            continue
        stride = 1 if runs_along(other, loop) else _distance(other, loop)
        if stride is None:
            continue
        group = Group(size, loop, steps % size, stride)
        stored = Group(size, loop, 0)
        reads = {
            id(weight): replace(weight, index=by_group(weight.index, loop, size), group=stored),
            id(other): replace(other, index=tuple(_times(p, loop, size) for p in other.index), group=group),
        }
        loops: list[Size] = list(op.loops)
        loops[loop] = ceil_divide(steps, size)
        words = [replace(factor.operands[0], type=WORD) for factor in factors]
        start = next(n for n in op.body.operands if n.kind == "start")
        body = Node("dot", op.body.type, (start, *words), text=" ".join(f.kind for f in factors))
        body.location = op.body.location
        return Op(tuple(loops), op.parallel, tuple(reads[id(a)] for a in op.reads), op.map, body, op.start, op.location)
    return op


def _narrow_factors(op: Op) -> tuple[Node, Node] | None:
    """Returns the widened factors, where the body adds a product of two elements that are read."""
    if op.body.kind not in SUMS or not op.reduced:
        return None
    multiply, total, widenings = SUMS[op.body.kind]
    combination = op.combination
    if combination is None or combination[1].kind != multiply or op.body.type != total:
        return None
    left, right = combination[1].operands
    for factor in (left, right):
        if factor.kind not in widenings or factor.operands[0].kind != "read":
            return None
        if factor.operands[0].type != widenings[factor.kind]:
            return None
    return (left, right) if left.operands[0].number != right.operands[0].number else None


def grouped_loop(access: Access, size: int) -> int | None:
    """Returns the loop with steps in contiguous groups of this size."""
    last = access.index[-1] if access.index else None
    if not isinstance(last, Panel) or not last.within or last.width != size:
        return None
    return plain(last.index)


def runs_along(access: Access, loop: int) -> bool:
    """Returns whether the steps of the loop, and of no other loop, are contiguous in memory."""
    *others, last = access.index
    there = access.tensor.view is not None and access.tensor.view.strides[-1] == 1
    return there and plain(last) == loop and all(loop not in replace(access, index=(p,)).loops() for p in others)


def _distance(access: Access, loop: int) -> Size | None:
    """Returns the distance in memory between steps of the loop, if there is one."""
    if any(isinstance(p, Panel) for p in access.index):
        return None
    distance = access.step(loop)
    return None if distance in (0, 1) else distance


def _times(position: Position, loop: int, size: int) -> Position:
    """Scales the strides of a loop in a position by `size`."""
    form = linear(position)
    moved = tuple((i, c * size if i == loop else c) for i, c in form.coefficients)
    return Index(moved, form.constant) if isinstance(position, Index) else position


def by_group(index: Sequence[Position], loop: int, size: int) -> tuple[Position, ...]:
    """Rewrites an index over elements as one over a loop of groups: each group begins with its first element."""
    own = Index(((loop, 1),))
    forms: Mapping[Position, Index] = {Panel(own, size, False): own, Panel(own, size, True): Index((), 0)}
    return tuple(forms.get(p, p) for p in index)


# Code


def has_instruction(node: Node, features: AbstractSet[str], lanes: int) -> bool:
    """Returns whether one instruction adds a group of products; otherwise words are split into halves."""
    if node.type == "f32":
        return find("dot-bfloats", lanes, features) is not None
    mixed = set(node.text.split()) == {"arith.extsi", "arith.extui"}
    return mixed and find("dot-bytes", lanes, features) is not None


def add_products(writer: Writer, node: Node, total: Value, words: Sequence[Value | Halves]) -> Value:
    """Returns the sum after one more group: words are vectors, or scalars for all lanes."""
    if any(isinstance(word, Halves) for word in words):
        return Value(_widened_bfloats(writer, total.name, words), total.type, True)
    left, right = (writer.broadcast(word).name for word in words if isinstance(word, Value))
    whole, halves = (_bfloats, _half_bfloats) if total.type == "f32" else (_integers, _half_integers)
    add = whole if has_instruction(node, writer.features, writer.lanes) else halves
    return Value(add(writer, total.name, left, right, node.text.split()), total.type, True)


def _integers(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    if widenings[0] == "arith.extsi":
        left, right = right, left
    instruction = writer.instruction("dot-bytes")
    assert instruction is not None, writer.features
    return writer.use(instruction, total, *(parts(writer, word, "i8") for word in (left, right)))


def _half_integers(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    sums = writer.vector_type("i32")
    for half in HALVES:
        factors = [_half_bytes(writer, word, w, half) for word, w in zip((left, right), widenings, strict=True)]
        pairs = _multiply_pairs(writer, factors)
        total = writer.let(f"arith.addi {total}, {pairs} : {sums}")
    return total


def half_word(writer: Writer, word: Value, widening: str, half: str) -> Value:
    """Returns every second byte of words, as words of two 16-bit integers, or every second bf16, as f32."""
    words = writer.broadcast(word).name
    if widening == "arith.extf":
        return Value(_every_second(writer, words, half), "f32", True)
    name, type = _half_bytes(writer, words, widening, half), writer.vector_type(WORD)
    return Value(writer.let(f"vector.bitcast {name} : {parts_type(writer, 'i16')} to {type}"), WORD, True)


def add_halves(writer: Writer, total: Value, left: Value, right: Value) -> Value:
    """Returns the sum after the products of words of two 16-bit integers, or of f32."""
    first, second, sums = writer.broadcast(left).name, writer.broadcast(right).name, writer.type(total)
    if total.type == "f32":
        return Value(writer.multiply_add(first, second, total.name, sums), "f32", True)
    pairs = _multiply_pairs(writer, [parts(writer, factor, "i16") for factor in (first, second)])
    return Value(writer.let(f"arith.addi {total.name}, {pairs} : {sums}"), WORD, True)


def _multiply_pairs(writer: Writer, factors: Sequence[str]) -> str:
    """Returns the sums of neighbouring products of 16-bit integers."""
    instruction = writer.instruction("multiply-pairs")
    return _multiply_words(writer, factors) if instruction is None else writer.use(instruction, *factors)


def _multiply_words(writer: Writer, factors: Sequence[str]) -> str:
    """Returns the sums of neighbouring products of 16-bit integers by products of words, for CPUs without the
    instruction, such as the first ones with AVX-512."""
    type, halves = writer.vector_type(WORD), parts_type(writer, "i16")
    sixteen = writer.splat("16", type)
    products: list[str] = []
    words = [writer.let(f"vector.bitcast {factor} : {halves} to {type}") for factor in factors]
    for half in HALVES:
        raised = [writer.let(f"arith.shli {w}, {sixteen} : {type}") if half == "even" else w for w in words]
        left, right = (writer.let(f"arith.shrsi {word}, {sixteen} : {type}") for word in raised)
        products.append(writer.let(f"arith.muli {left}, {right} : {type}"))
    return writer.let(f"arith.addi {', '.join(products)} : {type}")


def _half_bytes(writer: Writer, word: str, widening: str, half: str) -> str:
    """Returns every second byte of words, as 16-bit integers."""
    type = parts_type(writer, "i16")
    pairs = parts(writer, word, "i16")
    eight = writer.splat("8", type)
    if widening == "arith.extsi":
        if half == "even":
            pairs = writer.let(f"arith.shli {pairs}, {eight} : {type}")
        return writer.let(f"arith.shrsi {pairs}, {eight} : {type}")
    if half == "even":
        return writer.let(f"arith.andi {pairs}, {writer.splat('255', type)} : {type}")
    return writer.let(f"arith.shrui {pairs}, {eight} : {type}")


def _bfloats(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    instruction = writer.instruction("dot-bfloats")
    assert instruction is not None, writer.features
    return writer.use(instruction, total, *(parts(writer, word, "bf16") for word in (left, right)))


def _half_bfloats(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    sums = writer.vector_type("f32")
    for half in HALVES:
        first, second = (_every_second(writer, word, half) for word in (left, right))
        total = writer.multiply_add(first, second, total, sums)
    return total


def _widened_bfloats(writer: Writer, total: str, words: Sequence[Value | Halves]) -> str:
    sums = writer.vector_type("f32")

    def factor(word: Value | Halves, half: str) -> str:
        if isinstance(word, Halves):
            return writer.broadcast(word.even if half == "even" else word.odd).name
        return _every_second(writer, writer.broadcast(word).name, half)

    for half in HALVES:
        first, second = (factor(word, half) for word in words)
        total = writer.multiply_add(first, second, total, sums)
    return total


def _every_second(writer: Writer, word: str, half: str) -> str:
    """Returns every second bf16 of words as f32; a bf16 is the upper half of its f32."""
    type = writer.vector_type(WORD)
    if half == "even":
        bits = writer.let(f"arith.shli {word}, {writer.splat('16', type)} : {type}")
    else:
        bits = writer.let(f"arith.andi {word}, {writer.splat('-65536', type)} : {type}")
    return writer.let(f"vector.bitcast {bits} : {type} to {writer.vector_type('f32')}")


def parts_type(writer: Writer, element: str) -> str:
    return f"vector<{writer.lanes * (4 if element == 'i8' else 2)}x{element}>"


def parts(writer: Writer, word: str, element: str) -> str:
    return writer.let(f"vector.bitcast {word} : {writer.vector_type(WORD)} to {parts_type(writer, element)}")
