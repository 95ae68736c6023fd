"""The schedule of large products of f32 without tensor cores: each thread computes 8 x 8 results.

A block of 256 threads computes 128 x 128 results. Operands pass through the stages of `staged_tiles`, in steps of 16
iterations of the depth, which a thread reads from shared memory by vectors:

    a tile along the depth       thread t of a side has rows t, t + 16, ..., t + 112;    2 iterations of one row
    a tile along the side        rows 4 t .. 4 t + 3 and 64 + 4 t .. 64 + 4 t + 3;        4 rows of one iteration

An iteration reads 64 bytes for 64 calls of the body, where `contraction` reads 32 for 16. Lanes of a warp have 4
threads of the rows and 8 of the columns, so that eight lanes read one row, or different banks. Sums are those of
`contraction`, in the same order. Calls with few blocks of this size have smaller ones, by that schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...targets.chips import CHIPS
from .contraction import THREADS, Groups, write_contraction
from .fragments import shared_pointer
from .nest import Nest, call_body
from .pairs import Pairs, find_pairs
from .plain import write_sizes
from .staged_tiles import StagedWriter, count_tiles, product_of_loops
from .text import Text
from .tile_order import find_tile

TILE = 128
"""The rows and the columns of a block."""
SIDE = 8
"""The results of a thread along each side."""
BLOCKS_AT_ONCE = 2
"""The least number of blocks of a processor: ptxas then has 128 registers for a thread."""
_ALONG = TILE // SIDE
"""The threads along a side."""
_VECTOR = 4
_TOGETHER = 2
"""The iterations of the depth that a thread reads of a row at once: ptxas has no registers for four of eight rows."""
_STAGES = 2
_PROCESSORS = CHIPS["h100"].processors
"""The fewest blocks of a call: each multiprocessor of the chip has one."""


def fits_wide(nest: Nest, groups: Groups | None) -> bool:
    """Returns whether a nest is a product of f32 with one loop for the rows, the columns and the depth, which may be
    large."""
    if groups is None or not nest.is_product or nest.decoding is not None or nest.reads_positions:
        return False
    if any(operand.element != "f32" or operand.padded for operand in nest.operands):
        return False
    if any(len(loops) != 1 for loops in (groups.rows, groups.columns, groups.depth)):
        return False
    sides = [nest.static_extent(loops[0]) for loops in (groups.rows, groups.columns)]
    return all(map(_fills_tiles, sides)) and is_wide(nest, groups) is not False


def _fills_tiles(size: int | None) -> bool:
    """Returns whether a side may have many tiles that are full for three quarters at least."""
    return size is None or 4 * size >= 3 * TILE * -(-size // TILE)


def is_wide(nest: Nest, groups: Groups) -> bool | None:
    """Returns whether a product has many blocks in every call; None if calls decide."""
    sizes = [nest.static_count(loops) for loops in (groups.batch, groups.rows, groups.columns)]
    if None in sizes:
        return None
    batches, *sides = (size or 0 for size in sizes)
    blocks = batches
    for size in sides:
        blocks *= -(-size // TILE)
    return blocks >= _PROCESSORS


def write_wide(nest: Nest, groups: Groups) -> str:
    """Returns the text of the schedule for calls with many blocks: the function of the threads, and the one that counts
    the blocks."""
    text = Text()
    blocks, are_many = _count_blocks(text, groups, write_sizes(text, nest))
    if not is_wide(nest, groups):
        blocks = text.let(f"arith.select {are_many}, {blocks}, {text.constant(0)} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    count = text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])
    return WideWriter(nest, groups).write() + count


def write_others(nest: Nest, groups: Groups) -> str:
    """Returns the text of `contraction` for the other calls."""
    return write_contraction(nest, groups, lambda text, sizes: _count_blocks(text, groups, sizes)[1])


def _count_blocks(text: Text, groups: Groups, sizes: Sequence[str]) -> tuple[str, str]:
    """Returns the number of blocks, and whether they are many."""
    blocks = text.multiply(*count_tiles(text, groups, sizes, (TILE, TILE)))
    return blocks, text.below(text.constant(_PROCESSORS - 1), blocks)


class WideWriter(StagedWriter):
    """The writer of the threads' function."""

    def __init__(self, nest: Nest, groups: Groups) -> None:
        super().__init__(nest, groups, "f32", (TILE, TILE), THREADS, _STAGES)

    def order_blocks(self, block: str, rows: str, columns: str, batches: str) -> tuple[str, str, str]:
        return find_tile(self.text, block, rows, columns)

    def place_thread(self, lane: str, warp: str) -> None:
        text = self.text
        across, down = (text.index(operation, lane, text.constant(8)) for operation in ("remui", "divui"))
        right, below = (text.index(operation, warp, text.constant(2)) for operation in ("remui", "divui"))
        row = text.add(down, text.multiply(below, text.constant(4)))
        column = text.add(across, text.multiply(right, text.constant(8)))
        self.threads_of_sides = [row, column]

    def sum_count(self) -> int:
        return SIDE * SIDE

    def _first_of(self, side: int) -> str:
        """Returns the first row, or column, of the thread in the block."""
        number = self.threads_of_sides[side]
        return number if self.is_deep[side] else self.text.multiply(number, self.text.constant(_VECTOR))

    def _offset(self, side: int, number: int) -> int:
        """Returns the distance of a row, or a column, of a thread from its first one."""
        if self.is_deep[side]:
            return number * _ALONG
        return number // _VECTOR * (TILE // 2) + number % _VECTOR

    def lanes_of_tiles(self) -> list[str]:
        zero, made = self.text.constant(0), []
        for side, tile in enumerate(self.tiles):
            first = self._first_of(side)
            made.append(tile.address(first, zero) if self.is_deep[side] else tile.address(zero, first))
        return made

    def multiply_step(self, lanes: Sequence[str], distance: str, before: Sequence[str]) -> list[str]:
        text, types = self.text, ["f32"] * len(before)
        inner, k = [text.fresh() for _ in before], text.fresh()
        zero, end, step = text.constant(0), text.constant(self.depth_step), text.constant(_TOGETHER)
        moved = [text.add(lane, distance) for lane in lanes]
        with text.loop(f"{k} = {zero} to {end} step {step}", inner, before, types) as results:
            each = [self.size if deep else tile.pitch for deep, tile in zip(self.is_deep, self.tiles, strict=True)]
            places = [
                text.add(lane, text.multiply(k, text.constant(bytes))) for lane, bytes in zip(moved, each, strict=True)
            ]
            text.carry(self._multiply(places, inner), types)
        return results

    def _multiply(self, places: Sequence[str], before: Sequence[str]) -> list[str]:
        """Adds the products of some iterations, which begin at a place of each tile, to the sums."""
        sums = list(before)
        if self.is_deep == [True, True]:
            rows = [self.read(0, places[0], number, 0) for number in range(SIDE)]
            for column in range(SIDE):
                own = self.read(1, places[1], column, 0)
                for n in range(_TOGETHER):
                    self._add(sums, {(row, column): (rows[row][n], own[n]) for row in range(SIDE)})
            return sums
        deep = [
            [self.read(side, places[side], number, 0) for number in range(SIDE)] if self.is_deep[side] else []
            for side in range(2)
        ]
        for n in range(_TOGETHER):
            factors = []
            for side in range(2):
                if self.is_deep[side]:
                    factors.append([vector[n] for vector in deep[side]])
                else:
                    halves = [self.read(side, places[side], first, n) for first in range(0, SIDE, _VECTOR)]
                    factors.append([value for half in halves for value in half])
            self._add(sums, {(i, j): (factors[0][i], factors[1][j]) for i in range(SIDE) for j in range(SIDE)})
        return sums

    def read(self, side: int, place: str, number: int, k: int) -> list[str]:
        """Returns neighbouring elements of a tile: those of a row of the thread along the depth, or those of rows at an
        iteration `k`."""
        text, tile, offset = self.text, self.tiles[side], self._offset(side, number)
        bytes = offset * tile.pitch if self.is_deep[side] else offset * self.size + k * tile.pitch
        count = _TOGETHER if self.is_deep[side] else _VECTOR
        pointer, type = shared_pointer(text, text.add(place, text.constant(bytes))), f"vector<{count}xf32>"
        value = text.let(f"llvm.load {pointer} {{alignment = {count * self.size} : i64}} : !llvm.ptr<3> -> {type}")
        return [text.let(f"vector.extract {value}[{n}] : f32 from {type}") for n in range(count)]

    def _add(self, sums: list[str], factors: dict[tuple[int, int], tuple[str, str]]) -> None:
        positions = self.positions({})
        for (row, column), (x, w) in factors.items():
            at = row * SIDE + column
            ordered = [(x, w)[side] for side in self.groups.sides]
            sums[at] = self.text.let(call_body(self.nest, [*ordered, sums[at]], positions))

    def store_totals(self, totals: Sequence[str]) -> None:
        text, groups = self.text, self.groups
        ends = [product_of_loops(text, self.sizes, loops) for loops in (groups.rows, groups.columns)]
        first = [text.add(self.first[side], self._first_of(side)) for side in range(2)]
        pairs = Pairs(text, self.nest, None) if self.is_deep[1] else find_pairs(text, self.nest, groups.columns[-1])
        for row in range(SIDE):
            own = text.add(first[0], text.constant(self._offset(0, row)))

            def at(column: str, row: str = own) -> list[str]:
                return self.positions(self.split(groups.rows, row) | self.split(groups.columns, column))

            with text.block(f"scf.if {text.below(own, ends[0])}"):
                for number in range(0, SIDE, 2):
                    columns = [text.add(first[1], text.constant(self._offset(1, number + n))) for n in range(2)]
                    begin = row * SIDE + number
                    pairs.store_inside(totals[begin : begin + 2], columns, ends[1], at)
