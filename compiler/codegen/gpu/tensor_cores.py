"""The schedule of contractions on tensor cores: f16, bf16 and tf32 with sums in f32, bytes with sums in i32.

The groups of loops are those of `contraction`. Four warps compute ROWS x 64 results, each warp half of the rows and 32
columns. Operands pass through STAGES tiles of shared memory, so that copies run ahead of the products:

    begin copies of the first STAGES - 1 steps
    for each 64 bytes of k:  wait for the copies of this step; barrier: all warps have left the previous step
                             begin the copies of step + STAGES - 1, into the tiles of the previous step
                             for 32 bytes of k: fragments of x and w; products

An operand is copied by 16 bytes where the axis that is contiguous in memory is the innermost loop of its group and its
rows are aligned, which the kernel tests at its beginning; else by single elements. Fragments of bytes and words lie
along the depth, so that a matrix whose columns are contiguous is copied by single elements too. A convolution is such a
contraction: in an image whose last axis are channels, the depth is contiguous, in another one single elements are read.

Several blocks share a depth that is known in a call only, if there are few results: see `part_ranges`. The copies that
run ahead at the end of a part bring steps of the next one, which no product reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .contraction import Groups
from .fragments import BYTES, CHUNK, Source, Tile, commit_copies, wait_for_copies
from .mma import DEPTH_BYTES, TF32, Product, multiply, round_word
from .nest import Nest, arguments_of
from .pairs import Pairs, find_pairs
from .part_ranges import Division, Part, divide_reduction, number_results, store_part, take_part
from .plain import split_number, write_sizes
from .text import Text
from .tile_order import find_tile
from .warpgroups import fits_call

THREADS = 128
COLUMNS = 64
_MANY_COLUMNS = 4096
"""The columns of a product whose tiles are taken row by row: more of them would leave the L2 cache."""
BLOCKS_AT_ONCE = 3
"""The least number of blocks of a processor: ptxas then has 168 registers for a thread. By itself it aims at more
blocks, and some kernels spill."""
STEP_BYTES = 64
_STAGES = {128: 3, 64: 4, 32: 6}
"""The stages by the rows of a block, in at most 48 KiB. A product of few rows waits for memory: more copies run
ahead."""


def write_tensor_cores(nest: Nest, groups: Groups, product: Product, *, beside_warpgroups: bool = False) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks. `beside` that
    of `warpgroups`, there are none in calls that fit that one."""
    count = write_tensor_core_count(nest, groups, beside_warpgroups=beside_warpgroups)
    return TensorCoreWriter(nest, groups, product, nest.inputs[0].element).write() + count


def write_tensor_core_count(nest: Nest, groups: Groups, *, beside_warpgroups: bool = False) -> str:
    """Returns the text of the function that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    blocks = text.multiply(*_grid(text, nest, groups, sizes))
    if nest.parts is not None:
        blocks = text.multiply(blocks, _divide(text, nest, groups, sizes).parts)
    if beside_warpgroups:
        blocks = text.let(f"arith.select {fits_call(text, nest, groups)}, {text.constant(0)}, {blocks} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def _rows(nest: Nest, groups: Groups) -> int:
    """The rows of a block: fewer where more than half of a tile would be empty in every call."""
    total = nest.static_count(groups.rows)
    return 128 if total is None or total > 64 else 64 if total > 32 else 32


def _is_wide(nest: Nest, groups: Groups) -> bool:
    """Returns whether the blocks that run at once would read many more columns than rows, row by row."""
    total = nest.static_count(groups.columns)
    return total is None or (total > _MANY_COLUMNS and _rows(nest, groups) == max(_STAGES))


def product_of_loops(text: Text, sizes: Sequence[str], loops: Sequence[int]) -> str:
    return text.multiply(text.constant(1), *(sizes[loop] for loop in loops))


def _grid(text: Text, nest: Nest, groups: Groups, sizes: Sequence[str]) -> tuple[str, str, str]:
    """Returns the numbers of batches, and of blocks along the rows and the columns."""
    rows, columns = (
        text.index("ceildivui", product_of_loops(text, sizes, loops), text.constant(tile))
        for loops, tile in ((groups.rows, _rows(nest, groups)), (groups.columns, COLUMNS))
    )
    return product_of_loops(text, sizes, groups.batch), rows, columns


def _divide(text: Text, nest: Nest, groups: Groups, sizes: Sequence[str]) -> Division:
    """Returns the parts of the depth."""
    results, depth = (product_of_loops(text, sizes, loops) for loops in (nest.outer, groups.depth))
    return divide_reduction(text, nest, results, depth)


class TensorCoreWriter:
    """The writer of the threads' function. `at` maps loops to their positions."""

    def __init__(self, nest: Nest, groups: Groups, product: Product, element: str) -> None:
        self.nest, self.groups, self.text = nest, groups, Text()
        self.rows = _rows(nest, groups)
        self.stages = _STAGES[self.rows]
        self.element = element
        self.product, self.size = product, BYTES[element]
        self.depth_step = STEP_BYTES // self.size
        self.at: dict[int, str] = {}
        self.part: Part | None = None
        """The part of the depth that the block computes, if blocks share it."""

    def write(self) -> str:
        text, nest, groups = self.text, self.nest, self.groups
        self.sizes = write_sizes(text, nest)
        batches, rows, columns = _grid(text, nest, groups, self.sizes)
        block, thread = text.special("ctaid.x"), text.special("tid.x")
        if nest.parts is not None:
            block = self.take_part(block, text.multiply(batches, rows, columns))
        if _is_wide(nest, groups):
            batch, row, column = find_tile(text, block, rows, columns)
        else:
            column, rest = (text.index(operation, block, columns) for operation in ("remui", "divui"))
            batch, row = (text.index(operation, rest, batches) for operation in ("remui", "divui"))
        self.at |= self.split(groups.batch, batch)
        self.first = [text.multiply(row, text.constant(self.rows)), text.multiply(column, text.constant(COLUMNS))]
        lane, warp = (text.index(operation, thread, text.constant(32)) for operation in ("remui", "divui"))
        self.group, quarter = (text.index(operation, lane, text.constant(4)) for operation in ("divui", "remui"))
        self.pair = text.multiply(quarter, text.constant(2))
        across, down = (text.index(operation, warp, text.constant(2)) for operation in ("remui", "divui"))
        self.own = [text.multiply(down, text.constant(self.rows // 2)), text.multiply(across, text.constant(32))]
        self.place_tiles()
        self.store_totals(self.run_steps())
        arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
        memory = f'memref.global "private" @{nest.name}_tiles : {self.memory} = uninitialized'
        return f"{memory} {{alignment = 16 : i64}}\n" + text.function(f"@{nest.name}({arguments})")

    def take_part(self, block: str, blocks: str) -> str:
        """Takes a part of the depth. Returns the number of the block among those of a part."""
        text, depth = self.text, product_of_loops(self.text, self.sizes, self.groups.depth)
        self.division = _divide(text, self.nest, self.groups, self.sizes)
        self.number, block = (text.index(name, block, blocks) for name in ("divui", "remui"))
        self.part = take_part(text, self.division, (block, block, self.number), blocks, depth)
        return block

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
        sides, counts = (self.groups.rows, self.groups.columns), (self.rows, COLUMNS)
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
        it and `ldmatrix` can transpose the elements, else the depth."""
        side = (self.groups.rows, self.groups.columns)[number]
        return side if self._is_along(number, side) and self.size == 2 else self.groups.depth

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
            self.sources[number].copy(moved, first, THREADS, self.aligned[number])
        commit_copies(text)

    # Steps

    def run_steps(self) -> list[str]:
        text = self.text
        zero, one, step, stages = (text.constant(n) for n in (0, 1, self.depth_step, self.stages))
        first, end, start = zero, self.depth, "%s0"
        if self.part is not None:
            first, end, type = self.part.begin, self.part.end, self.product.sums
            none = text.let(f"arith.constant {'0' if type[0] == 'i' else '0.0'} : {type}")
            start = text.let(f"arith.select {self.part.is_first}, %s0, {none} : {type}")
        for number in range(self.stages - 1):
            step_of_stage = text.constant(number * self.depth_step)
            self.copy(text.constant(number), step_of_stage if self.part is None else text.add(first, step_of_stage))
        lanes = self._lanes()
        count = self.sum_count()
        types = ["index", *[self.product.sums] * count]
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

    def sum_count(self) -> int:
        """Returns the number of sums of a thread."""
        return self.rows // 32 * 4 * 4

    def _lanes(self) -> list[str]:
        """Returns the addresses in the first stage that this lane gives to `ldmatrix`, for each operand."""
        text, zero, made = self.text, self.text.constant(0), []
        for number, tile in enumerate(self.tiles):
            # Along the rows, the first bit of a matrix's number counts; along the columns, the second one.
            side_bit = number
            if self.is_deep[number]:
                made.append(tile.lanes(self.own[number], side_bit))
            else:
                made.append(
                    text.add(tile.lanes(zero, 1 - side_bit), text.multiply(self.own[number], text.constant(self.size)))
                )
        return made

    def multiply_step(self, lanes: Sequence[str], distance: str, before: Sequence[str]) -> list[str]:
        text, sums = self.text, list(before)
        moved = [text.add(lane, distance) for lane in lanes]
        for k in range(0, self.depth_step, DEPTH_BYTES // self.size):
            a = [self._matrices(0, moved[0], side, k) for side in range(0, self.rows // 2, 16)]
            b = [self._matrices(1, moved[1], side, k) for side in range(0, 32, 16)]
            sums = self.multiply_fragments(a, b, sums)
        return sums

    def multiply_fragments(
        self, a: Sequence[Sequence[str]], b: Sequence[Sequence[str]], before: Sequence[str]
    ) -> list[str]:
        """Adds the products of the fragments of a warp's rows and columns to the sums."""
        sums = list(before)
        for down, own in enumerate(a):
            for across in range(4):
                at = 4 * (4 * down + across)
                pair = b[across // 2][2 * (across % 2) : 2 * (across % 2) + 2]
                sums[at : at + 4] = multiply(self.text, self.product, own, pair, sums[at : at + 4])
        return sums

    def _matrices(self, number: int, lanes: str, side: int, k: int) -> list[str]:
        position = (side, k) if self.is_deep[number] else (k, side)
        return self.fragment(self.tiles[number], lanes, *position, turned=not self.is_deep[number])

    def fragment(self, tile: Tile, lanes: str, slow: int, fast: int, *, turned: bool = False) -> list[str]:
        """Returns the registers of a fragment, rounded to what tensor cores multiply."""
        words = tile.matrices(lanes, slow, fast, turned=turned)
        return [round_word(self.text, word) for word in words] if self.product is TF32 else words

    def store_totals(self, totals: Sequence[str]) -> None:
        text, groups = self.text, self.groups
        ends = [product_of_loops(text, self.sizes, loops) for loops in (groups.rows, groups.columns)]
        first = [text.add(self.first[0], self.own[0]), text.add(self.first[1], self.own[1])]
        pairs = find_pairs(text, self.nest, groups.columns[-1])
        for number in range(0, len(totals), 2):
            tile, part = divmod(number, 4)
            row = text.add(first[0], text.add(self.group, text.constant(16 * (tile // 4) + 8 * (part // 2))))
            columns = [text.add(first[1], text.add(self.pair, text.constant(8 * (tile % 4) + n))) for n in range(2)]

            def at(column: str, row: str = row) -> list[str]:
                return self.positions(self.split(groups.rows, row) | self.split(groups.columns, column))

            with text.block(f"scf.if {text.below(row, ends[0])}"):
                self.store_pair(pairs, totals[number : number + 2], columns, ends[1], at)

    def store_pair(
        self, pairs: Pairs, totals: Sequence[str], columns: Sequence[str], end: str, at: Callable[[str], Sequence[str]]
    ) -> None:
        """Stores neighbouring totals, or those of a part."""
        text = self.text
        if self.part is None:
            pairs.store_inside(totals, columns, end, at)
            return
        with text.block(f"scf.if {self.part.is_whole}", "} else {"):
            pairs.store_inside(totals, columns, end, at)
        with text.next_region():
            for total, column in zip(totals, columns, strict=True):
                with text.block(f"scf.if {text.below(column, end)}"):
                    number = number_results(text, self.nest, self.sizes, at(column))
                    place = text.add(text.multiply(number, self.division.parts), self.number)
                    store_part(text, self.nest, place, total)
