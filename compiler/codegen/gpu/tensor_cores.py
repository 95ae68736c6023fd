"""The schedule of contractions on tensor cores: f16, bf16 and tf32 with sums in f32, bytes with sums in i32.

The groups of loops are those of `contraction`. Four warps compute ROWS x 64 results, each warp half of the rows and 32
columns. Operands pass through the stages of `staged_tiles`, in steps of 64 bytes of k: for each 32 bytes of them, warps
read fragments of x and w, and multiply them.

Fragments of bytes and words lie along the depth, so that a matrix whose columns are contiguous is copied by single
elements too. A convolution is such a contraction: in an image whose last axis are channels, the depth is contiguous, in
another one single elements are read.

Several blocks share a depth that is known in a call only, if there are few results: see `part_ranges`. The copies that
run ahead at the end of a part bring steps of the next one, which no product reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .contraction import Groups
from .fragments import Tile
from .mma import DEPTH_BYTES, TF32, Product, multiply, round_word
from .nest import Nest
from .pairs import Pairs, find_pairs
from .part_ranges import Part, divide_nest, number_results, store_part, take_part
from .plain import write_sizes
from .staged_tiles import StagedWriter, count_tiles, product_of_loops
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
    blocks = text.multiply(*count_tiles(text, groups, sizes, (_rows(nest, groups), COLUMNS)))
    if nest.parts is not None:
        blocks = text.multiply(blocks, divide_nest(text, nest, sizes)[2].parts)
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


class TensorCoreWriter(StagedWriter):
    """The writer of the threads' function."""

    def __init__(self, nest: Nest, groups: Groups, product: Product, element: str) -> None:
        rows = _rows(nest, groups)
        super().__init__(nest, groups, element, (rows, COLUMNS), THREADS, _STAGES[rows])
        self.product, self.sums = product, product.sums
        # `ldmatrix` transposes elements of 16 bits.
        self.turns = self.size == 2
        self.part: Part | None = None
        """The part of the depth that the block computes, if blocks share it."""

    def take_part(self, block: str, tiles: Sequence[str]) -> str:
        if self.nest.parts is None:
            return block
        text, blocks = self.text, self.text.multiply(*tiles)
        _, depth, self.division = divide_nest(text, self.nest, self.sizes)
        self.number, block = (text.index(name, block, blocks) for name in ("divui", "remui"))
        self.part = take_part(text, self.division, (block, block, self.number), blocks, depth)
        return block

    def depth_range(self) -> tuple[str, str, str]:
        if self.part is None:
            return super().depth_range()
        none = self.text.let(f"arith.constant {'0' if self.sums[0] == 'i' else '0.0'} : {self.sums}")
        start = self.text.let(f"arith.select {self.part.is_first}, %s0, {none} : {self.sums}")
        return self.part.begin, self.part.end, start

    def order_blocks(self, block: str, rows: str, columns: str, batches: str) -> tuple[str, str, str]:
        if _is_wide(self.nest, self.groups):
            return find_tile(self.text, block, rows, columns)
        return super().order_blocks(block, rows, columns, batches)

    def place_thread(self, lane: str, warp: str) -> None:
        text = self.text
        self.group, quarter = (text.index(operation, lane, text.constant(4)) for operation in ("divui", "remui"))
        self.pair = text.multiply(quarter, text.constant(2))
        across, down = (text.index(operation, warp, text.constant(2)) for operation in ("remui", "divui"))
        self.own = [text.multiply(down, text.constant(self.rows // 2)), text.multiply(across, text.constant(32))]

    def sum_count(self) -> int:
        return self.rows // 32 * 4 * 4

    def lanes_of_tiles(self) -> list[str]:
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
