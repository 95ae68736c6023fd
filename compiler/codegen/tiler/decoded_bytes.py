"""Register tiles of a block-quantized weight and 8-bit activations, on CPUs that multiply bytes in pairs: see
`byte_pairs.py`. The blocks are those of `decoded.py`.

The products of a row with a word of four quantized values are added

    in 16 bits, for the whole block      two instructions; values of four bits, and tables of small values
    in 16 bits, for the words of a step  two, and two for the step
    in 32 bits, half by half             four and those of the split, see `dots.py`; other values

A block begins with its values times the zero point of the activations, whose sums fit in 16 bits.

A block is unpacked for a whole panel of columns. Each tile of rows then takes all tiles of its columns before the next
rows, since rows that are 2048 bytes apart map to few sets of the first cache.

A single row takes its values from the registers in which they are unpacked: see `single_row_bytes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .byte_pairs import BytePairs, words_in_sum
from .decoded import DecodedTiles, words_of
from .dots import WORD
from .evaluate import Evaluator, Iteration
from .roles import Roles
from .structure import Op, Scaled
from .text import Value, element_bytes

PART_OF_CACHE = 2
"""The part of the first cache that a panel may take for the values of a block, and for the sums of rows."""
Cells = Sequence[tuple[Iteration, str | None]]


class DecodedBytes(DecodedTiles):
    """The writer of blocks of rows of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, pairs: BytePairs) -> None:
        is_panel = roles.block > 1 and op.scaled is not None and self._takes_panels(op, op.scaled, roles)
        super().__init__(evaluator, op, replace(roles, width=roles.step) if is_panel else roles)
        self.vectors = roles.width // evaluator.writer.lanes if is_panel else None
        self.pairs = pairs
        self.most_words = min(map(words_in_sum, self.weights))
        """The number of words whose products 16 bits hold."""
        self.is_block_exact = self.most_words >= words_of(op, self.scaled)

    def _takes_panels(self, op: Op, scaled: Scaled, roles: Roles) -> bool:
        """Returns whether the values of a block and the sums of rows stay in the first cache for a whole panel."""
        most = max(words_of(op, scaled) * self.parts, roles.block) * roles.step * element_bytes(WORD)
        return most <= roles.caches.first // PART_OF_CACHE

    def _add_zero(self, zero: int, total: Value, value: Value) -> Value:
        return self.pairs.add_bytes(self.writer, total, value)

    def _start(self, zero: int, nothing: Value, total: Value) -> Value:
        return self.pairs.widened(self.writer, total, -zero)

    def _sum_block(
        self, iterations: Sequence[Iteration], masks: Sequence[str | None], begin: Sequence[Value], rows: int
    ) -> list[Value]:
        if not self.is_block_exact:
            return super()._sum_block(iterations, masks, begin, rows)
        nothing = self.writer.broadcast(self.writer.constant("0", WORD))
        sums = super()._sum_block(iterations, masks, [nothing] * len(begin), rows)
        return [self._widen(total, part) for total, part in zip(begin, sums, strict=True)]

    def _widen(self, total: Value, part: Value) -> Value:
        """Returns a sum in 32 bits after one in 16 bits."""
        return self.writer.apply("arith.addi", "", [total, self.pairs.widened(self.writer, part)], WORD)

    # A step

    def _add_cells(self, cells: Cells, totals: Sequence[Value], width: int) -> list[Value]:
        if self.most_words < len(self.weights):
            return super()._add_cells(cells, totals, width)
        if not self.is_block_exact:
            return self._add_step(cells, totals, width)
        sums = list(totals)
        for weight, product in zip(self.weights, self.products, strict=True):
            self._read(weight, cells[:width])
            for number, (at, mask) in enumerate(cells):
                with self.writer.masked(mask):
                    sums[number] = self._add_pairs(product, at, sums[number])
        return sums

    def _add_pairs(self, product: Scaled, at: Iteration, total: Value | None) -> Value:
        """Returns the sums in 16 bits after a product."""
        ((left, right),) = product.products
        factors = [self.evaluator.body(self.op, at, root=factor) for factor in (left, right)]
        with self.writer.at(self.op.body.location):
            return self.pairs.add(self.writer, total, *factors)

    def _add_step(self, cells: Cells, totals: Sequence[Value], width: int) -> list[Value]:
        """Adds the products of a step in 16 bits first."""
        for weight in self.weights:
            self._read(weight, cells[:width])
        sums = []
        for (at, mask), total in zip(cells, totals, strict=True):
            part: Value | None = None
            with self.writer.masked(mask):
                for product in self.products:
                    part = self._add_pairs(product, at, part)
            assert part is not None, self.op.location
            sums.append(self._widen(total, part))
        return sums
