"""The choices of the tiler that no result shows: the loops of tiles and of maps, and the sizes of tiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.maps import CHUNK, MapStage
from nacre.compiler.codegen.tiler.roles import assign_roles, even_rows
from nacre.compiler.codegen.tiler.schedule import Stage
from nacre.compiler.codegen.tiler.structure import Access, Buffer, Op, Tensor, View
from nacre.compiler.targets.vector_unit import VectorUnit
from nacre.dialect.dims import Size, Symbol, multiply
from nacre.dialect.emitter import Index

LANES = 8
UNIT = VectorUnit(32, 4, 3, (2, 4), (2, 2))
"""Registers of 8 floats, for tiles of up to 4 rows by 3 vectors."""
ROW_MAJOR, COLUMN_MAJOR = (), (1, 0)


def tensor(name: str, shape: tuple[Size, ...], order: tuple[int, ...] = ROW_MAJOR) -> Tensor:
    """A tensor whose axes lie in memory in this order."""
    strides: list[Size] = [0] * len(shape)
    step: Size = 1
    for axis in reversed(order or range(len(shape))):
        strides[axis], step = step, multiply(step, shape[axis])
    return Tensor(shape, "f32", View(Buffer(name, "f32"), 0, tuple(strides)))


def stage_of(loops: tuple[Size, ...], result: Tensor, *reads: tuple[Tensor, tuple[int, ...]], summed: int = 0) -> Stage:
    """A stage of one op with these loops. The last loops are summed; each loop is a class."""

    def at(numbers: tuple[int, ...]) -> tuple[Index, ...]:
        return tuple(Index(((number, 1),), 0) for number in numbers)

    outer = len(loops) - summed
    body = Node("arith.mulf", "f32", tuple(Node("read", "f32", number=i) for i in range(len(reads))))
    parallel = tuple(number < outer for number in range(len(loops)))
    op = Op(loops, parallel, tuple(Access(t, at(n)) for t, n in reads), at(tuple(range(outer))), body, None)
    op.result, result.op = result, op
    return Stage([op], {(id(op), i): i for i in range(len(loops))}, list(loops), [op])


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        # Columns are split evenly into tiles of at most 3 vectors.
        (100, 8, (4, 8)),
        (100, 9, (4, 16)),
        (100, 24, (4, 24)),
        (100, 32, (4, 16)),
        (100, 33, (4, 24)),
        (100, 56, (4, 24)),
        (3, 72, (3, 24)),
        (4, 73, (4, 24)),
        (5, 80, (4, 24)),
    ],
)
def test_tiles_of_a_product(rows: int, columns: int, tile: tuple[int, int]) -> None:
    x, w, y = tensor("x", (rows, 40)), tensor("w", (40, columns)), tensor("y", (rows, columns))
    stage = stage_of((rows, columns, 40), y, (x, (0, 2)), (w, (2, 1)), summed=1)
    roles = assign_roles(stage, stage.ops[0], UNIT, LANES)
    assert (roles.lane, roles.row, roles.outer) == (1, 0, ())
    assert (roles.rows, roles.width) == tile


@pytest.mark.parametrize(
    ("rows", "columns", "height"),
    [
        # Tiles as wide as the unit's: 28 rows are 4 tiles of 7.
        (28, 48, 7),
        (14, 48, 7),
        (9, 48, 5),
        (128, 48, 8),
        (7, 48, 7),
        # Narrower tiles leave registers for more rows.
        (56, 32, 14),
        (28, 16, 14),
        (15, 32, 8),
        (128, 32, 13),
        (0, 32, 1),
        # Remainders of a number that is known in the call only would need a tile for each height.
        (Symbol("B").size, 32, 8),
    ],
)
def test_heights_of_tiles_are_even(rows: Size, columns: int, height: int) -> None:
    unit = VectorUnit(64, 8, 3, (7, 2), (7, 3), tall=14)
    x, w, y = tensor("x", (rows, 40)), tensor("w", (40, columns)), tensor("y", (rows, columns))
    stage = stage_of((rows, columns, 40), y, (x, (0, 2)), (w, (2, 1)), summed=1)
    roles = even_rows(stage, assign_roles(stage, stage.ops[0], unit, 16))
    assert (roles.rows, roles.block) == (height, height)


@pytest.mark.parametrize(("columns", "vectors"), [(8, 1), (56, 7), (64, 8), (72, 8), (500, 8)])
def test_sums_of_one_row_that_are_under_way(columns: int, vectors: int) -> None:
    """Eight of them hide the time of an addition."""
    x, w, y = tensor("x", (40,)), tensor("w", (40, columns)), tensor("y", (columns,))
    stage = stage_of((columns, 40), y, (x, (1,)), (w, (1, 0)), summed=1)
    roles = assign_roles(stage, stage.ops[0], UNIT, LANES)
    assert (roles.lane, roles.row) == (0, None)
    assert (roles.rows, roles.width) == (1, vectors * LANES)


def map_of(stage: Stage) -> MapStage:
    evaluator: Any = SimpleNamespace(stage=stage, writer=SimpleNamespace(lanes=LANES))
    return MapStage(evaluator)


def test_lanes_of_a_map_are_the_neighbours_of_its_result() -> None:
    shape = (30, 40, 50)
    for order, lane, outer in ((ROW_MAJOR, 2, [0, 1]), ((0, 2, 1), 1, [0, 2]), ((1, 2, 0), 0, [1, 2])):
        result = tensor("y", shape, order)
        found = map_of(stage_of(shape, result, (tensor("x", shape, order), (0, 1, 2))))
        assert (found.lane, found.across, found.outer) == (lane, None, outer)
        assert found.counts() == [shape[c] for c in outer] + [-(-shape[lane] // (CHUNK * LANES))]


def test_blocks_are_turned_along_the_neighbours_of_an_operand() -> None:
    shape = (30, 40, 50)
    for order, across, outer in (((0, 2, 1), 1, [0]), ((1, 2, 0), 0, [1])):
        found = map_of(stage_of(shape, tensor("y", shape), (tensor("x", shape, order), (0, 1, 2))))
        assert (found.lane, found.across, found.outer) == (2, across, outer)
        assert found.counts() == [shape[outer[0]], -(-shape[across] // LANES), -(-50 // (CHUNK * LANES))]
    # An operand without the lanes, and one that is the same all along them, need no turning.
    plain = stage_of(shape, tensor("y", shape), (tensor("x", (40,)), (1,)), (tensor("z", (30, 40)), (0, 1)))
    assert map_of(plain).across is None


@pytest.mark.parametrize(("size", "height"), [(48, 16), (40, LANES), (Symbol("N", 16, 48).size, LANES)])
def test_blocks_are_as_high_as_a_cache_line(size: Size, height: int) -> None:
    """Each line of the operand is read by one block, where whole blocks divide the operand."""
    shape = (size, 50)
    found = map_of(stage_of(shape, tensor("y", shape), (tensor("x", shape, COLUMN_MAJOR), (0, 1))))
    assert (found.lane, found.across, found.height) == (1, 0, height)
    if isinstance(size, int):
        assert found.counts() == [size // height, 1]


def test_loops_of_one_turn_have_no_part_in_a_map() -> None:
    shape = (1, 40, 1, 50, 1)
    found = map_of(stage_of(shape, tensor("y", shape), (tensor("x", shape), (0, 1, 2, 3, 4))))
    assert (found.order, found.lane, found.outer) == ([1, 3], 3, [1])


def test_loops_around_a_map_come_first() -> None:
    shape = (4, 1, 40, 50)
    stage = stage_of(shape, tensor("y", shape), (tensor("x", shape), (0, 1, 2, 3)))
    stage.around = (0, 1)
    found = map_of(stage)
    assert (found.order, found.lane, found.outer) == ([2, 3], 3, [0, 1, 2])
