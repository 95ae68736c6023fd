"""The tiler finds floats that four bits select, and integers that are words of four signed bytes."""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.tiler.lookups import find_lookup
from nacre.compiler.codegen.tiler.quantized_sums import _bytes
from nacre.compiler.codegen.tiler.structure import Node

BYTE = Node("arith.extui", "i32", (Node("read", "i8"),))


def constant(value: int) -> Node:
    return Node("constant", "i32", text=f"{value} : i32")


def floats(bits: Node, subtracted: Node) -> Node:
    return Node("arith.sitofp", "f32", (Node("arith.subi", "i32", (bits, subtracted)),))


def test_both_halves_of_a_byte_are_looked_up() -> None:
    low = Node("arith.andi", "i32", (BYTE, constant(15)))
    high = Node("arith.shrsi", "i32", (BYTE, constant(4)))
    assert find_lookup(floats(low, constant(8))) == (BYTE, 8)
    assert find_lookup(floats(high, constant(3))) == (high, 3)


@pytest.mark.parametrize(
    "node",
    [
        floats(Node("arith.andi", "i32", (BYTE, constant(31))), constant(8)),
        floats(Node("arith.shrsi", "i32", (BYTE, constant(3))), constant(8)),
        floats(Node("arith.shrsi", "i32", (Node("read", "i32"), constant(4))), constant(8)),
        floats(Node("arith.andi", "i32", (BYTE, constant(15))), BYTE),
        floats(BYTE, constant(8)),
        Node("arith.sitofp", "f32", (BYTE,)),
    ],
    ids=["five bits", "another shift", "not a byte", "no constant", "eight bits", "nothing subtracted"],
)
def test_nothing_else_is(node: Node) -> None:
    assert find_lookup(node) is None


LOW = Node("arith.andi", "i32", (BYTE, constant(15)))
HIGH = Node("arith.shrsi", "i32", (BYTE, constant(4)))


@pytest.mark.parametrize(
    ("bits", "middle", "half"),
    [
        (LOW, constant(8), "low"),
        (LOW, LOW, "low"),
        (HIGH, constant(0), "high"),
        (HIGH, constant(16), None),
        (HIGH, BYTE, None),
        # Other operators of a byte and 15 are no four bits.
        (Node("arith.xori", "i32", (BYTE, constant(15))), constant(8), None),
        (Node("arith.shrsi", "i32", (BYTE, constant(15))), constant(8), None),
        (Node("arith.andi", "i32", (BYTE, constant(31))), constant(8), None),
        (Node("arith.andi", "i32", (Node("arith.extsi", "i32", BYTE.operands), constant(15))), constant(8), None),
    ],
)
def test_four_bits_less_a_number_are_words_of_bytes(bits: Node, middle: Node, half: str | None) -> None:
    found = _bytes(Node("arith.subi", "i32", (bits, middle)))
    assert (None if found is None else found.text) == half
