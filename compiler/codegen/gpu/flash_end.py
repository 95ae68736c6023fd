"""The end of an attention: sums are divided by the weights' totals and stored, once warps have combined theirs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .flash_parts import FlashParts
from .flash_shape import THREADS, WARPS
from .flash_split import FEW
from .flash_tiles import LOWEST
from .plain import split_number, store_total


class FlashEnd(FlashParts):
    """The writer of the end."""

    def finish(self, totals: Sequence[str]) -> None:
        text, shape = self.text, self.shape
        most, parts, sums = totals[:2], list(totals[2:4]), totals[4:]
        for row, distance in product(range(2), (1, 2)):
            other = text.exchange(parts[row], "f32", distance)
            parts[row] = text.let(f"arith.addf {parts[row]}, {other} : f32")
        if shape.shares_keys:
            self.combine(most, parts, sums)
            return
        if not self.stores_parts:
            self.divide(parts, sums)
            return
        with text.block(f"scf.if {self.is_whole()}", "} else {"):
            self.divide(parts, sums)
        with text.next_region():
            first_lane = text.let(f"arith.cmpi eq, {self.pair}, {text.constant(0)} : index")
            for row in range(2):
                self.store_totals(self.row_numbers[row], first_lane, most[row], parts[row])
            for number, value in enumerate(sums):
                tile, part = divmod(number, 4)
                self.store_part(self.row_numbers[part // 2], self.place_column(tile, part), value)

    @property
    def stores_parts(self) -> bool:
        """Whether the launch stores parts in some calls."""
        return self.shape.parts is not None and not self.combines

    def divide(self, parts: Sequence[str], sums: Sequence[str]) -> None:
        """Stores the results of this thread."""
        text = self.text
        one = text.let("arith.constant 1.0 : f32")
        inverse = [text.let(f"arith.divf {one}, {part} : f32") for part in parts]
        for number, value in enumerate(sums):
            tile, part = divmod(number, 4)
            column = text.add(self.first_column, self.place_column(tile, part))
            result = text.let(f"arith.mulf {value}, {inverse[part // 2]} : f32")
            self.store(self.row_numbers[part // 2], column, result)

    def store_empty_sums(self) -> None:
        """Stores the results of rows without keys, sums of nothing. They replace 0 divided by 0, at the end, where
        registers are free."""
        text, attention = self.text, self.attention
        has_keys = bool(attention.scores.static_extent(attention.of_scores()[attention.key]))
        if not attention.hides and (has_keys or self.combines):
            return
        first = self.start if attention.hides_start else text.constant(0)
        end = self.length if attention.hides else self.shape.total_keys
        is_empty = text.let(f"arith.cmpi uge, {first}, {end} : index")
        if attention.hides and self.stores_parts:
            # The launch that combines the parts stores other results.
            is_empty = text.let(f"arith.andi {is_empty}, {self.is_whole()} : i1")
        with text.block(f"scf.if {is_empty}"):
            none, one = (text.let(f"arith.constant {n} : f32") for n in ("0.0", "1.0"))
            if self.shape.shares_keys:
                # Other threads stored the results of these rows.
                text.barrier()
            own = text.constant(0) if self.shape.shares_keys else self.warp
            with text.block(f"scf.if {text.let(f'arith.cmpi eq, {own}, {self.warp} : index')}"):
                self.divide([one, one], [none] * (self.shape.columns // 2))

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
        lowest, none = (text.let(f"arith.constant {n} : f32") for n in (LOWEST, "0.0"))

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
                factor = self.lower(value, safe)
                total = text.let(f"math.fma {read(warp, text.constant(shape.columns + 1))}, {factor}, {total} : f32")
                sum = text.let(f"math.fma {read(warp, index_in_row)}, {factor}, {sum} : f32")
            self.end_row(own_row, index_in_row, greatest, total, sum)

    def end_row(self, own_row: str, column: str, most: str, total: str, sum: str) -> None:
        """Stores a result, or a sum of a part, of the warps together."""
        text, row = self.text, self.text.add(self.first_row, own_row)

        def store_result() -> None:
            result = text.let(f"arith.divf {sum}, {total} : f32")
            self.store(row, text.add(self.first_column, column), result)

        if not self.stores_parts:
            store_result()
            return
        with text.block(f"scf.if {self.is_whole()}", "} else {"):
            store_result()
        with text.next_region():
            first = text.let(f"arith.cmpi eq, {column}, {text.constant(0)} : index")
            self.store_totals(row, first, most, total)
            self.store_part(row, column, sum)
