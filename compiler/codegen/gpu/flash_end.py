"""The end of an attention: sums are divided by the weights' totals and stored, once warps have combined theirs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .flash_shape import FEW, THREADS, WARPS
from .flash_tiles import LOG2E, LOWEST, FlashTiles
from .plain import split_number, store_total


class FlashEnd(FlashTiles):
    """The writer of the end."""

    def power(self, value: str) -> str:
        """Returns 2 to the power of a number, with an error of 2 units in the last place of f32."""
        return self.text.let(f"llvm.intr.exp2({value}) : (f32) -> f32")

    def finish(self, totals: Sequence[str]) -> None:
        text, shape = self.text, self.shape
        most, parts, sums = totals[:2], list(totals[2:4]), totals[4:]
        for row, distance in product(range(2), (1, 2)):
            other = text.exchange(parts[row], "f32", distance)
            parts[row] = text.let(f"arith.addf {parts[row]}, {other} : f32")
        if shape.shares_keys:
            self.combine(most, parts, sums)
            return
        one = text.let("arith.constant 1.0 : f32")
        inverse = [text.let(f"arith.divf {one}, {part} : f32") for part in parts]
        for number, value in enumerate(sums):
            tile, part = divmod(number, 4)
            column = text.add(self.first_column, self.place_column(tile, part))
            result = text.let(f"arith.mulf {value}, {inverse[part // 2]} : f32")
            self.store(self.row_numbers[part // 2], column, result)

    def store(self, row: str, column: str, value: str) -> None:
        text, attention = self.text, self.attention
        known = [
            text.below(row, self.shape.total_rows),
            text.below(column, text.constant(attention.columns or 0)),
        ]
        with text.block(f"scf.if {text.let(f'arith.andi {known[0]}, {known[1]} : i1')}"):
            positions = split_number(text, row, self.shape.row_sizes)
            loops = self._of_values(dict(zip(attention.rows, positions, strict=True)), column)
            store_total(text, attention.values, 0, value, loops)

    def combine(self, most: Sequence[str], parts: Sequence[str], sums: Sequence[str]) -> None:
        """Adds up the partial results of the warps for the same rows. Shared memory holds, for each warp and row, the
        columns, then the maximum and the sum of weights."""
        text, shape = self.text, self.shape
        view, type = self.words("f32")
        width = shape.columns + 2
        log2e, lowest, none = (text.let(f"arith.constant {n} : f32") for n in (LOG2E, LOWEST, "0.0"))

        def position(warp: str, row: str, column: str) -> str:
            number = text.add(text.multiply(warp, text.constant(FEW)), row)
            return text.add(text.multiply(number, text.constant(width)), column)

        rows = [text.add(self.group, text.constant(8 * n)) for n in range(2)]
        for number, value in enumerate(sums):
            tile, part = divmod(number, 4)
            column = self.place_column(tile, part)
            text.line(f"memref.store {value}, {view}[{position(self.warp, rows[part // 2], column)}] : {type}")
        for row in range(2):
            for n, value in enumerate((most[row], parts[row])):
                at = position(self.warp, rows[row], text.constant(shape.columns + n))
                text.line(f"memref.store {value}, {view}[{at}] : {type}")
        text.barrier()
        element = text.fresh()
        count, step = text.constant(FEW * shape.columns), text.constant(THREADS)
        thread = text.special("tid.x")
        with text.loop(f"{element} = {thread} to {count} step {step}", [], [], []):
            index_in_row, own_row = self._split(element, text.constant(shape.columns))
            warps = [text.constant(n) for n in range(WARPS)]

            def read(warp: str, what: str) -> str:
                return text.let(f"memref.load {view}[{position(warp, own_row, what)}] : {type}")

            maxima = [read(warp, text.constant(shape.columns)) for warp in warps]
            greatest = maxima[0]
            for value in maxima[1:]:
                greatest = text.let(f"arith.maximumf {greatest}, {value} : f32")
            empty = text.let(f"arith.cmpf oeq, {greatest}, {lowest} : f32")
            safe = text.let(f"arith.select {empty}, {none}, {greatest} : f32")
            total, sum = none, none
            for warp, value in zip(warps, maxima, strict=True):
                lower = text.let(f"arith.subf {value}, {safe} : f32")
                factor = self.power(text.let(f"arith.mulf {lower}, {log2e} : f32"))
                total = text.let(f"math.fma {read(warp, text.constant(shape.columns + 1))}, {factor}, {total} : f32")
                sum = text.let(f"math.fma {read(warp, index_in_row)}, {factor}, {sum} : f32")
            result = text.let(f"arith.divf {sum}, {total} : f32")
            self.store(text.add(self.first_row, own_row), text.add(self.first_column, index_in_row), result)
