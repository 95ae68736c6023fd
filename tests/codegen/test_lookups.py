"""The tiler finds integers that four bits select, and integers that are words of four signed bytes."""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.lookups import Lookup, find_lookup
from nacre.compiler.codegen.tiler.quantized_sums import _bytes

BYTE = Node("arith.extui", "i32", (Node("read", "i8"),))


def constant(value: int) -> Node:
    return Node("constant", "i32", text=f"{value} : i32")


def less(bits: Node, subtracted: Node) -> Node:
    return Node("arith.subi", "i32", (bits, subtracted))


LOW = Node("arith.andi", "i32", (BYTE, constant(15)))
HIGH = Node("arith.shrsi", "i32", (BYTE, constant(4)))


def test_both_halves_of_a_byte_are_looked_up() -> None:
    assert find_lookup(less(LOW, constant(8))) == Lookup(BYTE, "low", tuple(range(-8, 8)))
    assert find_lookup(less(HIGH, constant(3))) == Lookup(BYTE, "high", tuple(range(-3, 13)))
    assert find_lookup(less(LOW, BYTE)) == Lookup(BYTE, "high", tuple(range(0, -256, -16)))


@pytest.mark.parametrize(
    "node",
    [
        less(Node("arith.andi", "i32", (BYTE, constant(31))), constant(8)),
        less(Node("arith.shrsi", "i32", (BYTE, constant(3))), constant(8)),
        less(Node("arith.shrsi", "i32", (Node("read", "i32"), constant(4))), constant(8)),
        less(LOW, HIGH),
        less(BYTE, constant(8)),
        less(
            LOW, Node("arith.andi", "i32", (Node("arith.extui", "i32", (Node("read", "i8", number=1),)), constant(15)))
        ),
        BYTE,
    ],
    ids=["five bits", "another shift", "not a byte", "both halves", "eight bits", "two bytes", "nothing subtracted"],
)
def test_nothing_else_is(node: Node) -> None:
    assert find_lookup(node) is None


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
    found = _bytes(less(bits, middle))
    assert (None if found is None else found.text) == half
