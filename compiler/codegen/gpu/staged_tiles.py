"""Tiles of a contraction's operands in stages of shared memory: copies run ahead of the products.

    begin copies of the first STAGES - 1 steps
    for each step of k:  wait for the copies of this step; barrier: all warps have left the previous step
                         begin the copies of step + STAGES - 1, into the tiles of the previous step
                         the products of this step, which a subclass writes

An operand is copied by 16 bytes where the axis that is contiguous in memory is the innermost loop of its group and its
rows are aligned, which the kernel tests at its beginning; else by single elements. Elements outside of an operand are 0
in its tiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .contraction import Groups
from .fragments import BYTES, CHUNK, Source, Tile, commit_copies, wait_for_copies
from .nest import Nest, arguments_of
from .plain import split_number, write_sizes
from .text import Text

STEP_BYTES = 64
"""The bytes of the depth in a step."""


def product_of_loops(text: Text, sizes: Sequence[str], loops: Sequence[int]) -> str:
    return text.multiply(text.constant(1), *(sizes[loop] for loop in loops))


def count_tiles(text: Text, groups: Groups, sizes: Sequence[str], tile: tuple[int, int]) -> tuple[str, str, str]:
    """Returns the numbers of batches, and of tiles along the rows and the columns."""
    rows, columns = (
        text.index("ceildivui", product_of_loops(text, sizes, loops), text.constant(length))
        for loops, length in zip((groups.rows, groups.columns), tile, strict=True)
    )
    return product_of_loops(text, sizes, groups.batch), rows, columns


class StagedWriter(ABC):
    """The writer of the threads' function. `at` maps loops to their positions. A block computes a `tile` of rows and
    columns, whose sums have the dtype `sums`."""

    turns = True
    """Whether the rows, or the columns, may be the fast axis of a tile."""
    sums = "f32"

    def __init__(
        self, nest: Nest, groups: Groups, element: str, tile: tuple[int, int], threads: int, stages: int
    ) -> None:
        self.nest, self.groups, self.text = nest, groups, Text()
        self.rows, self.tile_columns = tile
        self.threads, self.stages = threads, stages
        self.element, self.size = element, BYTES[element]
        self.depth_step = STEP_BYTES // self.size
        self.at: dict[int, str] = {}
        self.own: list[str] = []
        """The first row and column of the warp or the thread in the block."""

    def write(self) -> str:
        text, nest, groups = self.text, self.nest, self.groups
        self.sizes = write_sizes(text, nest)
        batches, rows, columns = count_tiles(text, groups, self.sizes, (self.rows, self.tile_columns))
        block, thread = text.special("ctaid.x"), text.special("tid.x")
        block = self.take_part(block, [batches, rows, columns])
        batch, row, column = self.order_blocks(block, rows, columns, batches)
        self.at |= self.split(groups.batch, batch)
        first = ((row, self.rows), (column, self.tile_columns))
        self.first = [text.multiply(number, text.constant(tile)) for number, tile in first]
        lane, warp = (text.index(operation, thread, text.constant(32)) for operation in ("remui", "divui"))
        self.place_thread(lane, warp)
        self.place_tiles()
        self.store_totals(self.run_steps())
        arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
        memory = f'memref.global "private" @{nest.name}_tiles : {self.memory} = uninitialized'
        return f"{memory} {{alignment = 16 : i64}}\n" + text.function(f"@{nest.name}({arguments})")

    def order_blocks(self, block: str, rows: str, columns: str, batches: str) -> tuple[str, str, str]:
        """Returns the batch, and the numbers of the tile along the rows and the columns, by the number of a block."""
        text = self.text
        column, rest = (text.index(operation, block, columns) for operation in ("remui", "divui"))
        batch, row = (text.index(operation, rest, batches) for operation in ("remui", "divui"))
        return batch, row, column

    def take_part(self, block: str, tiles: Sequence[str]) -> str:
        """Takes a part of the depth, if blocks share it. Returns the number of the block among those of a part."""
        return block

    @abstractmethod
    def place_thread(self, lane: str, warp: str) -> None:
        """Computes the position of a thread in the block."""

    @abstractmethod
    def sum_count(self) -> int:
        """Returns the number of sums of a thread."""

    @abstractmethod
    def lanes_of_tiles(self) -> list[str]:
        """Returns the addresses in the first stage at which this thread reads the tiles."""

    @abstractmethod
    def multiply_step(self, lanes: Sequence[str], distance: str, before: Sequence[str]) -> list[str]:
        """Adds the products of a step to the sums. Its tiles are at a `distance` from the first ones."""

    @abstractmethod
    def store_totals(self, totals: Sequence[str]) -> None:
        """Stores the results of this thread."""

    def split(self, loops: Sequence[int], number: str) -> dict[int, str]:
        positions = split_number(self.text, number, [self.sizes[loop] for loop in loops])
        return dict(zip(loops, positions, strict=True))

    def positions(self, known: dict[int, str]) -> list[str]:
        zero = self.text.constant(0)
        return [known.get(loop, self.at.get(loop, zero)) for loop in range(len(self.nest.parallel))]

    # Tiles

    def place_tiles(self) -> None:
        """Places the tiles of the first stage; those of the others follow at a distance of `self.bytes`."""
        text = self.text
        sides, counts = (self.groups.rows, self.groups.columns), (self.rows, self.tile_columns)
        self.is_deep = [self._fast_group(number) == self.groups.depth for number in range(2)]
        """Whether the depth is the fast axis of each tile."""
        self.sides = [0, 1]
        step = self.depth_step
        sizes = [(count, step) if deep else (step, count) for count, deep in zip(counts, self.is_deep, strict=True)]
        bytes = [slow * (fast * self.size + CHUNK) for slow, fast in sizes]
        self.bytes = sum(bytes)
        begin = self.allot(self.stages * self.bytes)
        bases = [begin, text.add(begin, text.constant(bytes[0]))]
        self.tiles = [Tile(text, base, self.element, *size) for base, size in zip(bases, sizes, strict=True)]
        deep = product_of_loops(text, self.sizes, self.groups.depth)
        self.sources = [self.source(number, sides[number], deep, is_deep=self.is_deep[number]) for number in range(2)]
        self.aligned = [self.find_alignment(source, self._fast_group(n)) for n, source in enumerate(self.sources)]
        self.depth = deep

    def allot(self, bytes: int) -> str:
        """Returns the address of the block's shared memory, which has a number of bytes."""
        self.memory = f"memref<{bytes}xi8, 3>"
        memory = self.text.let(f"memref.get_global @{self.nest.name}_tiles : {self.memory}")
        return self.text.let(f"memref.extract_aligned_pointer_as_index {memory} : {self.memory} -> index")

    def _fast_group(self, number: int) -> tuple[int, ...]:
        """Returns the loops of the fast axis of a tile: the other side, where the last axis of an operand is read along
        it and such a tile can be read, else the depth."""
        side = (self.groups.rows, self.groups.columns)[number]
        return side if self._is_along(number, side) and self.turns else self.groups.depth

    def _is_along(self, number: int, loops: tuple[int, ...]) -> bool:
        return self.nest.inputs[number].plain_axes()[-1] == loops[-1]

    def source(self, number: int, side: tuple[int, ...], deep: str, *, is_deep: bool) -> Source:
        """Returns what is copied of an input; `is_deep` tells whether the depth is the fast axis of its tile."""
        operand = self.nest.inputs[number]
        limits = (product_of_loops(self.text, self.sizes, side), deep)

        def at(slow: str, fast: str) -> list[str]:
            here, there = (slow, fast) if is_deep else (fast, slow)
            return self.positions(self.split(side, here) | self.split(self.groups.depth, there))

        ordered = limits if is_deep else (limits[1], limits[0])
        crossed = is_deep and self._is_along(number, side)
        return Source(self.text, f"%m{number}", operand, len(operand.index) - 1, ordered, at, crossed)

    def find_alignment(self, source: Source, loops: tuple[int, ...]) -> str | None:
        """Returns whether copies by 16 bytes along loops are possible; None where they never are."""
        text = self.text
        if source.operand.plain_axes()[-1] != loops[-1]:
            return None
        aligned = source.is_aligned()
        if len(loops) == 1:
            return aligned
        # A copy must not cross the end of the innermost loop.
        rest = text.index("remui", self.sizes[loops[-1]], text.constant(CHUNK // self.size))
        whole = text.let(f"arith.cmpi eq, {rest}, {text.constant(0)} : index")
        return text.let(f"arith.andi {aligned}, {whole} : i1")

    def copy(self, stage: str, step: str) -> None:
        """Begins to copy the operands of a step into the tiles of a stage."""
        text = self.text
        distance = text.multiply(stage, text.constant(self.bytes))
        for number, tile in enumerate(self.tiles):
            moved = Tile(text, text.add(tile.base, distance), tile.element, tile.slow, tile.fast)
            side = self.first[self.sides[number]]
            first = (side, step) if self.is_deep[number] else (step, side)
            self.sources[number].copy(moved, first, self.threads, self.aligned[number])
        commit_copies(text)

    # Steps

    def depth_range(self) -> tuple[str, str, str]:
        """Returns the first position of the depth, its end, and the value from which the sums start."""
        return self.text.constant(0), self.depth, "%s0"

    def run_steps(self) -> list[str]:
        text = self.text
        zero, one, step, stages = (text.constant(n) for n in (0, 1, self.depth_step, self.stages))
        first, end, start = self.depth_range()
        for number in range(self.stages - 1):
            self.copy(text.constant(number), text.add(first, text.constant(number * self.depth_step)))
        lanes = self.lanes_of_tiles()
        count = self.sum_count()
        types = ["index", *[self.sums] * count]
        carried, begin = [text.fresh() for _ in types], text.fresh()
        starts = [zero, *[start] * count]
        with text.loop(f"{begin} = {first} to {end} step {step}", carried, starts, types) as results:
            stage = carried[0]
            wait_for_copies(text, self.stages - 2)
            text.barrier()
            ahead = text.index("remui", text.add(stage, text.constant(self.stages - 1)), stages)
            self.copy(ahead, text.add(begin, text.constant((self.stages - 1) * self.depth_step)))
            sums = self.multiply_step(lanes, text.multiply(stage, text.constant(self.bytes)), carried[1:])
            after = text.index("remui", text.add(stage, one), stages)
            text.carry([after, *sums], types)
        # No copy may be in flight when the block ends.
        wait_for_copies(text, 0)
        return results[1:]
