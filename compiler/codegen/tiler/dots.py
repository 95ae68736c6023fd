"""Sums of products of numbers narrower than 32 bits, a group of steps at a time: how they are recognised, and added.

A weight that is stored in groups (`compiler/lower/packing.py`) is read as words of 32 bits, one for each column, and so
are the numbers that it meets, which lie beside each other in memory, or are put together where every column meets
numbers of its own. To the rest of the tiler a group is one step of the sum. Integers are summed exactly, whatever the
CPU. Bfloats are summed in f32; the instruction for them takes denormal numbers for zero and flushes denormal sums, the
way without it, which `strict` code goes, does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ....dialect.dims import Size, ceil_divide
from ....dialect.emitter import Index
from .structure import Access, Group, Node, Op, Panel, Position, linear, plain
from .text import Value, Writer

WORD = "i32"
SUMS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "arith.addi": ("arith.muli", "i32", {"arith.extsi": "i8", "arith.extui": "i8"}),
    "arith.addf": ("arith.mulf", "f32", {"arith.extf": "bf16"}),
}
"""By what adds: what multiplies, the type of both, and what widens the factors, with the type that it widens."""
SIZES: Mapping[str, int] = {"i8": 4, "bf16": 2}
"""The elements of a word."""


@dataclass(frozen=True, slots=True)
class Halves:
    """A word of two bfloats that were widened: the one that comes first, and the other."""

    even: Value
    odd: Value


# Recognised


def group_steps(op: Op) -> Op:
    """The op with a group of steps as one, where it sums products with a weight that is stored in groups."""
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
    """The widened factors, where the body adds a product of two elements that are read."""
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
    """The loop whose steps stand in groups of this size beside each other."""
    last = access.index[-1] if access.index else None
    if not isinstance(last, Panel) or not last.within or last.width != size:
        return None
    return plain(last.index)


def runs_along(access: Access, loop: int) -> bool:
    """Are steps of the loop, and of it alone, neighbours in memory?"""
    *others, last = access.index
    there = access.tensor.view is not None and access.tensor.view.strides[-1] == 1
    return there and plain(last) == loop and all(loop not in replace(access, index=(p,)).loops() for p in others)


def _distance(access: Access, loop: int) -> Size | None:
    """How far apart steps of the loop are in memory, if they are apart."""
    if any(isinstance(p, Panel) for p in access.index):
        return None
    distance = access.step(loop)
    return None if distance in (0, 1) else distance


def _times(position: Position, loop: int, size: int) -> Position:
    """A position that steps of the loop move so many times as far."""
    form = linear(position)
    moved = tuple((i, c * size if i == loop else c) for i, c in form.coefficients)
    return Index(moved, form.constant) if isinstance(position, Index) else position


def by_group(index: Sequence[Position], loop: int, size: int) -> tuple[Position, ...]:
    """An index in groups, as one over a loop of groups: each begins with its first element."""
    own = Index(((loop, 1),))
    forms: Mapping[Position, Index] = {Panel(own, size, False): own, Panel(own, size, True): Index((), 0)}
    return tuple(forms.get(p, p) for p in index)


# Added


def has_instruction(node: Node, features: Collection[str], lanes: int) -> bool:
    """Does one instruction add a group of products? Where none does, words are taken apart in halves."""
    if node.type == "f32":
        return "avx512bf16" in features
    bytes = "avx512vnni" in features or ("avxvnni" in features and lanes < 16)
    return bytes and set(node.text.split()) == {"arith.extsi", "arith.extui"}


def add_products(writer: Writer, node: Node, total: Value, words: Sequence[Value | Halves]) -> Value:
    """The sum after one more group: words are vectors, or one for all lanes."""
    if any(isinstance(word, Halves) for word in words):
        return Value(_widened_bfloats(writer, total.name, words), total.type, True)
    left, right = (writer.broadcast(word).name for word in words if isinstance(word, Value))
    whole, halves = (_bfloats, _half_bfloats) if total.type == "f32" else (_integers, _half_integers)
    add = whole if has_instruction(node, writer.features, writer.lanes) else halves
    return Value(add(writer, total.name, left, right, node.text.split()), total.type, True)


def _integers(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    if widenings[0] == "arith.extsi":
        left, right = right, left
    operands = [total, *(parts(writer, word, "i8") for word in (left, right))]
    types = (writer.vector_type("i32"), *[parts_type(writer, "i8")] * 2)
    return _call(writer, f"avx512.vpdpbusd.{32 * writer.lanes}", operands, types)


def _half_integers(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    sums = writer.vector_type("i32")
    for half in ("even", "odd"):
        factors = [_half_bytes(writer, word, w, half) for word, w in zip((left, right), widenings, strict=True)]
        pairs = _multiply_pairs(writer, factors)
        total = writer.let(f"arith.addi {total}, {pairs} : {sums}")
    return total


PAIRS: Mapping[int, str] = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
"""What multiplies 16-bit integers with a sign and adds neighbouring products, by the lanes of the sums. No sum of two
products of bytes is beyond 32 bits; what multiplies bytes and adds in 16 bits would saturate."""


def _multiply_pairs(writer: Writer, factors: Sequence[str]) -> str:
    """The sums of neighbouring products of 16-bit integers."""
    if writer.lanes == 16 and "avx512bw" not in writer.features:
        return _multiply_words(writer, factors)
    types = [parts_type(writer, "i16")] * 2
    return _call(writer, PAIRS[writer.lanes], factors, types, writer.vector_type("i32"))


def _multiply_words(writer: Writer, factors: Sequence[str]) -> str:
    """The same by products of words, for the first CPUs with AVX-512, which has no 16-bit integers there."""
    type, halves = writer.vector_type(WORD), parts_type(writer, "i16")
    sixteen = writer.splat("16", type)
    products: list[str] = []
    words = [writer.let(f"vector.bitcast {factor} : {halves} to {type}") for factor in factors]
    for half in ("even", "odd"):
        raised = [writer.let(f"arith.shli {w}, {sixteen} : {type}") if half == "even" else w for w in words]
        left, right = (writer.let(f"arith.shrsi {word}, {sixteen} : {type}") for word in raised)
        products.append(writer.let(f"arith.muli {left}, {right} : {type}"))
    return writer.let(f"arith.addi {', '.join(products)} : {type}")


def _half_bytes(writer: Writer, word: str, widening: str, half: str) -> str:
    """Every second byte of words, as integers of 16 bits."""
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
    operands = [total, *(parts(writer, word, "bf16") for word in (left, right))]
    types = (writer.vector_type("f32"), *[parts_type(writer, "bf16")] * 2)
    return _call(writer, f"avx512bf16.dpbf16ps.{32 * writer.lanes}", operands, types)


def _half_bfloats(writer: Writer, total: str, left: str, right: str, widenings: Sequence[str]) -> str:
    sums = writer.vector_type("f32")
    for half in ("even", "odd"):
        first, second = (_every_second(writer, word, half) for word in (left, right))
        total = writer.multiply_add(first, second, total, sums)
    return total


def _widened_bfloats(writer: Writer, total: str, words: Sequence[Value | Halves]) -> str:
    sums = writer.vector_type("f32")

    def factor(word: Value | Halves, half: str) -> str:
        if isinstance(word, Halves):
            return writer.broadcast(word.even if half == "even" else word.odd).name
        return _every_second(writer, writer.broadcast(word).name, half)

    for half in ("even", "odd"):
        first, second = (factor(word, half) for word in words)
        total = writer.multiply_add(first, second, total, sums)
    return total


def _every_second(writer: Writer, word: str, half: str) -> str:
    """Every second bfloat of words as f32, of which it is the upper half."""
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


def _call(
    writer: Writer, intrinsic: str, operands: Sequence[str], types: Sequence[str], result: str | None = None
) -> str:
    """A call of an intrinsic of LLVM for x86; its result has the type of the first operand unless `result` says it."""
    signature = f"({', '.join(types)}) -> {result or types[0]}"
    return writer.let(f'llvm.call_intrinsic "llvm.x86.{intrinsic}"({", ".join(operands)}) : {signature}')
