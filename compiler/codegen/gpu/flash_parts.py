"""The parts of an attention whose keys are split among blocks: the keys of each, and its results in memory.

    part s of row r    columns of o[s], then m[s] and l[s] for each block of columns

The rows of all batch elements lie one after another, and so do the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flash_shape import PARTS, WARPS
from .flash_split import WIDE, part_width
from .flash_tiles import LOG2E, LOWEST, FlashTiles


class FlashParts(FlashTiles):
    """The writer of what blocks read and write of parts."""

    def power(self, value: str) -> str:
        """Returns 2 to the power of a number, with an error of 2 units in the last place of f32."""
        return self.text.let(f"llvm.intr.exp2({value}) : (f32) -> f32")

    def own_keys(self, end: str) -> tuple[str, str]:
        """Returns the first key of this block, and the one after its last, among the keys of its rows before `end`."""
        text, tile, first = self.text, self.text.constant(self.shape.keys), self.begin_key
        if self.shape.parts is None:
            return first, end
        count = text.let(f"arith.subi {text.index('maxui', first, end)}, {first} : index")
        tiles = text.index("ceildivui", count, tile)
        each = text.multiply(text.index("ceildivui", tiles, self.shape.parts), tile)
        begin = text.add(first, text.multiply(self.part, each))
        return begin, text.index("minui", text.add(begin, each), end)

    def is_whole(self) -> str:
        """Returns whether this block computes all keys of its rows."""
        assert self.shape.parts is not None
        return self.text.let(f"arith.cmpi eq, {self.shape.parts}, {self.text.constant(1)} : index")

    def _memory(self) -> tuple[str, str]:
        """Returns the memory of the parts as one axis, and its type."""
        text, shape = self.text, self.shape
        size = text.multiply(shape.batches, shape.total_rows, shape.total_keys)
        type = "memref<?xf32, strided<[1]>>"
        old = self.attention.scores.results[0].type
        cast = f"memref.reinterpret_cast {PARTS} to offset: [0], sizes: [{size}], strides: [1] : {old} to {type}"
        return text.let(cast), type

    def _first_number(self, part: str, row: str) -> str:
        """Returns the position of the first number of a row in a part."""
        text, shape = self.text, self.shape
        outer = text.add(text.multiply(part, shape.batches), self.batch)
        number = text.add(text.multiply(outer, shape.total_rows), row)
        return text.multiply(number, text.constant(part_width(self.attention)))

    def _maximum_at(self, first: str) -> str:
        """Returns the position of the maximum of a row; the sum of its weights is next to it."""
        text = self.text
        block = text.index("divui", self.first_column, text.constant(WIDE))
        behind = text.constant(self.attention.columns or 0)
        return text.add(first, text.add(behind, text.multiply(block, text.constant(2))))

    def store_part(self, row: str, column: str, sum: str) -> None:
        """Stores a sum of a row at a column among those of the block, unless it lies outside."""
        text = self.text
        whole = text.add(self.first_column, column)
        inside = text.below(whole, text.constant(self.attention.columns or 0))
        known = text.let(f"arith.andi {text.below(row, self.shape.total_rows)}, {inside} : i1")
        with text.block(f"scf.if {known}"):
            memory, type = self._memory()
            at = text.add(self._first_number(self.part, row), whole)
            text.line(f"memref.store {sum}, {memory}[{at}] : {type}")

    def store_totals(self, row: str, is_own: str, most: str, total: str) -> None:
        """Stores the maximum of a row and the sum of its weights, if this thread is the one for them."""
        text = self.text
        known = text.let(f"arith.andi {text.below(row, self.shape.total_rows)}, {is_own} : i1")
        with text.block(f"scf.if {known}"):
            memory, type = self._memory()
            at = self._maximum_at(self._first_number(self.part, row))
            for number, value in enumerate((most, total)):
                place = text.add(at, text.constant(number))
                text.line(f"memref.store {value}, {memory}[{place}] : {type}")

    def load_parts(self, starts: Sequence[str]) -> list[str]:
        """Returns the combined maxima, sums of weights and sums of this thread's rows. Warps that share the keys
        combine a part each; the first lane of each row has the sum of weights."""
        text, shape, types = self.text, self.shape, ["f32"] * len(starts)
        assert shape.parts is not None
        begin, step = (self.warp, WARPS) if shape.shares_keys else (text.constant(0), 1)
        carried, part = [text.fresh() for _ in types], text.fresh()
        with text.loop(f"{part} = {begin} to {shape.parts} step {text.constant(step)}", carried, starts, types) as made:
            text.carry(self._add_part(part, carried), types)
        return made

    def _add_part(self, part: str, before: Sequence[str]) -> list[str]:
        text, (memory, type) = self.text, self._memory()
        lowest, none = (text.let(f"arith.constant {n} : f32") for n in (LOWEST, "0.0"))
        last = text.let(f"arith.subi {self.shape.total_rows}, {text.constant(1)} : index")
        first_lane = text.let(f"arith.cmpi eq, {self.pair}, {text.constant(0)} : index")
        # Threads of rows behind the last one read that row, and store nothing.
        firsts = [self._first_number(part, text.index("minui", row, last)) for row in self.row_numbers]

        def read(at: str) -> str:
            return text.let(f"memref.load {memory}[{at}] : {type}")

        maxima, totals, factors = [], [], []
        for row, first in enumerate(firsts):
            at = self._maximum_at(first)
            own, total = read(at), read(text.add(at, text.constant(1)))
            total = text.let(f"arith.select {first_lane}, {total}, {none} : f32")
            most = text.let(f"arith.maximumf {before[row]}, {own} : f32")
            empty = text.let(f"arith.cmpf oeq, {most}, {lowest} : f32")
            safe = text.let(f"arith.select {empty}, {none}, {most} : f32")
            pair = [self.lower(value, safe) for value in (before[row], own)]
            maxima.append(most)
            totals.append(self._join(before[2 + row], total, pair))
            factors.append(pair)
        sums = []
        end = text.constant((self.attention.columns or 0) - 1)
        for number, value in enumerate(before[4:]):
            tile, place = divmod(number, 4)
            column = text.index("minui", text.add(self.first_column, self.place_column(tile, place)), end)
            found = read(text.add(firsts[place // 2], column))
            sums.append(self._join(value, found, factors[place // 2]))
        return [*maxima, *totals, *sums]

    def lower(self, value: str, most: str) -> str:
        """Returns the factor of sums with a maximum, relative to those with a greater one."""
        text = self.text
        distance = text.let(f"arith.subf {value}, {most} : f32")
        return self.power(text.let(f"arith.mulf {distance}, {text.let(f'arith.constant {LOG2E} : f32')} : f32"))

    def _join(self, first: str, second: str, factors: Sequence[str]) -> str:
        scaled = self.text.let(f"arith.mulf {first}, {factors[0]} : f32")
        return self.text.let(f"math.fma {second}, {factors[1]}, {scaled} : f32")
