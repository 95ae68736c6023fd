"""Register tiles of a block-quantized weight and 8-bit activations, where products are summed in halves of words, on
CPUs that multiply bytes in pairs.

Words of both factors are split into halves once for each block, rather than in each tile: the values of a block when it
is unpacked, and the rows of a work item before its first tile, for all columns of a panel. The halves of a row are then
adjacent on the stack:

    word           b3 b2 b1 b0
    even half         b2    b0      each in 16 bits
    odd half          b3    b1

A tile loads a half of each vector of columns, and broadcasts that of each row, for one instruction that multiplies and
one that adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from .byte_pairs import BytePairs, words_in_sum
from .decoded_bytes import Cells, DecodedBytes
from .dots import HALVES, WORD, add_halves, half_word
from .evaluate import Evaluator, Iteration, Kept
from .forms import LANES, Form, constant
from .roles import Roles
from .row_loops import Rows, each_row
from .structure import Op, Scaled
from .text import Value


def takes_split_rows(evaluator: Evaluator, op: Op, scaled: Scaled) -> bool:
    """Returns whether products do not fit in 16 bits, and words of rows fill whole vectors."""
    sizes = [op.loops[loop] for loop in scaled.inner]
    fits = min(words_in_sum(bytes) for _, bytes in scaled.products) >= len(scaled.products)
    whole = len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] % evaluator.writer.lanes == 0
    return whole and not fits


class SplitBytes(DecodedBytes):
    """The writer of blocks of rows of one op, whose innermost loop has whole vectors of words."""

    parts = len(HALVES)

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, pairs: BytePairs) -> None:
        super().__init__(evaluator, op, roles, pairs)
        (loop,) = self.scaled.inner
        steps = op.loops[loop]
        assert isinstance(steps, int) and steps % evaluator.writer.lanes == 0, op.location
        self.steps, self.moving = steps, self.stage.of(op, loop)
        self.distance = len(self.weights) * self.parts * steps
        """The words of a row on the stack."""
        self.split_rows = evaluator.stack("rows", op, roles.block * self.distance, WORD)
        self.first_row = constant(0)

    def _keep(self, kept: Kept, at: Iteration, value: Value) -> None:
        for part, half in enumerate(HALVES):
            word = half_word(self.writer, value, "arith.extsi", half)
            self.writer.store(self.numbers, kept.at(at).plus(part * self.roles.width), word)

    def _prepare(self, iteration: Iteration, row: Form, rows: Rows) -> None:
        """Splits the rows of a work item."""
        self.first_row = row
        with each_row(self.writer, rows) as number:
            at = iteration if self.roles.row is None else {**iteration, self.roles.row: row + number}
            for product, (x, _) in enumerate(self.scaled.products):
                for step in range(0, self.steps, self.writer.lanes):
                    word = self.evaluator.body(self.op, {**at, self.moving: constant(step) + LANES}, root=x)
                    for part, half in enumerate(HALVES):
                        slot = self._slot(number, product, part).plus(step) + LANES
                        self.writer.store(self.split_rows, slot, half_word(self.writer, word, "arith.extui", half))

    def _slot(self, number: Form, product: int, part: int) -> Form:
        """Returns the position of the halves of a row, the `number`-th one of a work item."""
        return number.times(self.distance).plus((product * self.parts + part) * self.steps)

    def _add_cells(self, cells: Cells, totals: Sequence[Value], width: int) -> list[Value]:
        """Adds one half before the other, since both halves of several vectors would take too many registers."""
        writer, sums = self.writer, list(totals)
        for product, weight in enumerate(self.weights):
            kept = self.evaluator.made[self._node(weight)]
            for part in range(self.parts):
                words = [
                    writer.load(self.numbers, kept.at(at).plus(part * self.roles.width)) for at, _ in cells[:width]
                ]
                for number, (at, _) in enumerate(cells):
                    row = constant(0) if self.roles.row is None else at[self.roles.row] + self.first_row.times(-1)
                    x = writer.load(self.split_rows, self._slot(row, product, part) + at[self.moving])
                    with writer.at(self.op.body.location):
                        sums[number] = add_halves(writer, sums[number], x, words[number % width])
        return sums
