"""Sums of products of bf16 with pairs of numbers that are composed of bits, as those of packed floats: recognition.

A step adds products with the lower and the upper half of words. Each two of them become one product of words, with the
instruction of `dots.py`:

    total += x[k] * f32(word << 16) + x[k + 1] * f32(word & 0xFFFF0000)     ->     dot(total, word, x[k .. k + 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..structured.body_nodes import Node
from ..structured.positions import Panel
from .dots import WORD
from .structure import COMPOSED, Group, Op

WIDENED = "arith.extf"
_LOWER = ("arith.shli", "16")
_UPPER = ("arith.andi", "-65536")


def pair_steps(op: Op) -> Op:
    """Returns the op with products of words, where it adds products of bf16 in pairs."""
    words = [access for access in op.reads if access.tensor.element == WORD]
    if not op.composed or not any(isinstance(position, Panel) for access in words for position in access.index):
        return op
    pairs = [_pair(op, *two) for two in zip(op.composed[::2], op.composed[1::2], strict=False)]
    found = [pair for pair in pairs if pair is not None]
    if 2 * len(found) < len(op.composed) or len(found) < 2:
        return op
    loop = op.reduced[-1]
    reads = list(op.reads)
    body = next(node for node in op.body.operands if node.kind == "start")
    for word, number in found:
        reads[number] = replace(reads[number], group=Group(2, loop, 0))
        other = Node("read", WORD, number=number, location=word.location)
        body = Node("dot", "f32", (body, word, other), text=f"{WIDENED} {WIDENED}", location=op.body.location)
    return _without_unused(replace(op, reads=tuple(reads), body=body))


def _pair(op: Op, first: tuple[Node, Node], second: tuple[Node, Node]) -> tuple[Node, int] | None:
    """Returns the word of two products, and the read of the first of two neighbouring elements that it multiplies."""
    parts = [_parts(factors, half) for factors, half in ((first, _LOWER), (second, _UPPER))]
    if any(part is None for part in parts):
        return None
    (low, x), (high, y) = (part for part in parts if part is not None)
    if low is not high or op.reads[x.number].moved(1) != op.reads[y.number]:
        return None
    return low, x.number


def _parts(factors: Sequence[Node], half: tuple[str, str]) -> tuple[Node, Node] | None:
    """Returns the word whose half is a factor, and the read of the bf16 that is the other one."""
    for composed, other in (factors, factors[::-1]):
        if composed.kind == COMPOSED and other.kind == WIDENED and other.operands[0].kind == "read":
            (bits,) = composed.operands
            if bits.kind != half[0] or other.operands[0].type != "bf16":
                return None
            for word, constant in (bits.operands, bits.operands[::-1]):
                if constant.kind == "constant" and constant.text.split()[0] == half[1]:
                    return word, other.operands[0]
    return None


def _without_unused(op: Op) -> Op:
    """Returns the op without the reads that its body does not use."""
    used = sorted({node.number for node in op.body.walk() if node.kind == "read"})
    numbers = {number: index for index, number in enumerate(used)}
    done: dict[int, Node] = {}

    def renumbered(node: Node) -> Node:
        if id(node) not in done:
            operands = tuple(map(renumbered, node.operands))
            number = numbers[node.number] if node.kind == "read" else node.number
            done[id(node)] = replace(node, operands=operands, number=number)
        return done[id(node)]

    return Op(
        op.loops, op.parallel, tuple(op.reads[n] for n in used), op.map, renumbered(op.body), op.start, op.location
    )
