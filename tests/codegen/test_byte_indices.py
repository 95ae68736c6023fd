"""The form of indices that vectors of bytes compute, and others that they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.byte_indices import LINE, ByteIndex, find_byte_index
from nacre.compiler.codegen.tiler.row_values import dependents, in_order
from nacre.compiler.codegen.tiler.structure import Buffer, Op, Tensor, View

BLOCK, TERM, LANE = 0, 1, 2
ROWS, COLUMNS = 32, 4


def index(loop: int) -> Node:
    return Node("index", "index", number=loop)


def constant(value: int, type: str = "index") -> Node:
    return Node("constant", type, text=f"{value} : {type}")


def add(*operands: Node) -> Node:
    return Node("arith.addi", "index", operands)


def load(type: str, shape: tuple[int, ...], *operands: Node) -> Node:
    strides = tuple(shape[1] if axis + 1 < len(shape) else 1 for axis in range(len(shape)))
    return Node("extract", type, operands, tensor=Tensor(shape, type, View(Buffer("%t", type), 0, strides)))


def leaf(
    mask: int = (COLUMNS - 1) * ROWS, block: int = BLOCK, term: int = TERM, numbers: int = LINE, words: int = LINE
) -> Node:
    """The value of a leaf below a node that all rows compare with, and a node of a table."""
    column = Node("arith.andi", "index", (load("index", (5,), index(TERM)), constant(mask)))
    rank = load("i8", (7, COLUMNS * ROWS), index(block), add(column, index(LANE)))
    is_left = Node("arith.cmpi", "i1", (rank, load("i8", (5,), index(TERM))))
    number = Node("arith.select", "i8", (is_left, constant(0, "i8"), constant(numbers - 1, "i8")))
    word = load("i32", (5, words), index(term), Node("arith.extui", "index", (number,)))
    is_right = Node("arith.cmpi", "i1", (rank, Node("arith.trunci", "i8", (word,))))
    wide = Node("arith.extui", "index", (number,))
    return load("f64", (1000,), add(index(TERM), add(add(wide, wide), Node("arith.extui", "index", (is_right,)))))


def find(root: Node) -> ByteIndex | None:
    op = Op((7, 5, ROWS), (True, False, True), (), (), root, None)

    def differing(loop: int) -> Callable[[Node], bool]:
        found = dependents(in_order(root), lambda node: node.kind == "index" and node.number == loop)
        return lambda node: id(node) in found

    return find_byte_index(op, root, LANE, differing(LANE), differing(BLOCK))


def test_parts_of_an_index() -> None:
    found = find(leaf())
    assert found is not None
    assert (found.most, found.width, len(found.shared), len(found.columns)) == (2 * LINE - 1, COLUMNS * ROWS, 1, 1)
    (table,) = found.tables.values()
    assert (table.first, table.lines) == (0, 1)


OTHERS: dict[str, dict[str, Any]] = {
    "columns that begin at any row": {"mask": (COLUMNS - 1) * ROWS + 1},
    "rows as blocks": {"block": LANE},
    "tables of blocks": {"term": BLOCK},
    "three lines": {"numbers": 2 * LINE + 1, "words": 3 * LINE},
    "numbers behind the table": {"words": LINE - 1},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_other_indices(changed: dict[str, Any]) -> None:
    assert find(leaf(**changed)) is None
