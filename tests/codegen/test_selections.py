"""The positions at which a contraction reads a selection: each condition alone leaves the selection where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.structured.positions import Panel
from nacre.compiler.codegen.tiler.selections import positions_of
from nacre.compiler.codegen.tiler.structure import Access, Op, Position, Tensor
from nacre.dialect.emitter import Index, loop

PANEL = Panel(loop(0), 4, within=True)
X, N = Tensor((4, 8), "f32"), Tensor((4,), "i64")
READS = (Access(X, (loop(0), loop(1))), Access(N, (loop(0),)))
INSIDE = Node("arith.cmpi", "i1", (Node("index", "index", number=1), Node("read", "i64", number=1)))


def selection(*, loops: int = 2, reads: tuple[Access, ...] = READS, inside: Node = INSIDE) -> Op:
    body = Node("arith.select", "f32", (inside, Node("read", "f32"), Node("constant", "f32", text="0.0")))
    return Op((4, 8, 2)[:loops], (True,) * loops, reads, (loop(0), loop(1)), body, None)


def positions(op: Op, *index: Position) -> object:
    """The reader has the loops 5 and 6."""
    return positions_of(op, Access(Tensor((4, 8), "f32", op=op, axes=(0, 1)), index or (loop(5), loop(6))))


def test_positions_in_loops_of_the_reader() -> None:
    assert positions(selection()) == {0: loop(5), 1: loop(6)}
    assert positions(selection(reads=(Access(X, (PANEL, loop(1))), READS[1]))) == {0: loop(5), 1: loop(6)}
    # The first axis is only read along, so its position may be a sum.
    assert positions(selection(), loop(5) + loop(6), loop(6)) == {0: loop(5) + loop(6), 1: loop(6)}


EXTRACT = replace(INSIDE, operands=(INSIDE.operands[0], Node("extract", "i64", tensor=N)))


@pytest.mark.parametrize(
    ("op", "index"),
    [
        (selection(), (loop(5), loop(5) + loop(6))),
        (selection(), (loop(5), Panel(loop(6), 4, within=True))),
        (selection(reads=(Access(X, (PANEL, loop(1))), READS[1])), (loop(5) + loop(6), loop(6))),
        (selection(inside=EXTRACT), ()),
        (selection(loops=3), ()),
    ],
    ids=["a sum is compared", "panels of the reader", "panels at a sum", "an element by index", "another loop"],
)
def test_selections_that_stay(op: Op, index: tuple[Index, ...]) -> None:
    assert positions(op, *index) is None


def test_a_selection_at_sums_of_its_own_loops_stays() -> None:
    op = selection()
    op.map = (loop(0) + loop(1), loop(1))
    assert positions(op) is None
