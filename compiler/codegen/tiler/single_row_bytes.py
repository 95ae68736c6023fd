"""Tiles of one row of 8-bit activations and a block-quantized weight, on CPUs that multiply bytes in pairs: the values
of a block are multiplied in the registers in which they are unpacked.

A zero point of 128 is taken off the activations, rather than off the sums of each column: x - 128 is x ^ 0x80, a signed
byte, and takes one instruction for all columns of a panel. Values of four bits less a constant are then the unsigned
factors of `byte_pairs.py`:

    sum of (x - 128) * (value - middle)  =  sum of (x - 128) * value  -  sum of (x - 128) * middle

The second sum is the same for all columns. If each column of a block has its own middle, the sum of x - 128 is, and is
multiplied by the middle once for a block. Bytes, and values of tables, are multiplied in halves of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..structured.body_nodes import Node, integer
from .byte_pairs import LARGEST_SUM, PRODUCTS, BytePairs
from .decoded import words_of
from .decoded_bytes import Cells, DecodedBytes
from .dots import WORD, add_products
from .evaluate import Evaluator, Iteration
from .forms import Form, constant
from .prefetch import prefetch_panels
from .quantized_sums import EVERY_BYTE, MOST
from .roles import Roles
from .row_loops import Rows
from .structure import Op, Scaled
from .text import Value

ZERO = 128
SIGNS = -2139062144
"""0x80 in every byte."""
SIGNED = Node("dot", WORD, text="arith.extsi arith.extsi")
WORDS_IN_SUM = LARGEST_SUM // (ZERO * PRODUCTS * MOST)
"""The words of products of signed bytes with values of four bits that fit in a sum of 16 bits."""
MOST_VECTORS = 6
"""The vectors of a panel whose sums and unpacked values fit in 16 registers."""


def takes_single_rows(op: Op, scaled: Scaled) -> bool:
    """Returns whether the values of all products are bytes or entries of a table, or four bits less one constant or one
    number of the block."""
    if scaled.quantized is None or scaled.quantized.number != ZERO:
        return False
    middles = [bytes.operands[1] for _, bytes in scaled.products if len(bytes.operands) > 1]
    if not middles:
        return True
    is_common = len(middles) == len(scaled.products) and len({_key(middle) for middle in middles}) == 1
    return is_common and op.loops_read(middles[0]).isdisjoint(scaled.inner)


def _key(middle: Node) -> tuple[str, int]:
    """Returns the constant or the read of a number of four bits, see `quantized_sums.py`."""
    value = integer(middle)
    if value is not None:
        return "constant", value
    (read,) = (node for node in middle.walk() if node.kind == "read")
    return "read", read.number


class SingleRowBytes(DecodedBytes):
    """The writer of one op where a work item has a single row. The base class writes items of more rows."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, pairs: BytePairs) -> None:
        super().__init__(evaluator, op, roles, pairs)
        self.middle = self.weights[0].operands[1] if len(self.weights[0].operands) > 1 else None
        self.constant = None if self.middle is None else integer(self.middle)
        self.unsigned = [replace(weight, operands=weight.operands[:1]) for weight in self.weights]
        """The values without the subtraction of the constant."""
        self.fits_in_block = words_of(op, self.scaled) <= WORDS_IN_SUM

    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        if rows != 1:
            super()._block(iteration, row, column, rows, masks, finish)
            return
        writer, op = self.writer, self.op
        cells = [(mask, at) for mask, at, _ in self.cells(iteration, row, column, masks, constant(0), 1)]
        starts = []
        for mask, at in cells:
            with writer.masked(mask):
                starts.append(writer.broadcast(self.evaluator.starting(op, at)))

        def add_block(block: Iteration, totals: Sequence[Value]) -> list[Value]:
            here = [({**at, **block}, mask) for mask, at in cells]
            after = []
            for (at, mask), part, total in zip(here, self._sum_row(here), totals, strict=True):
                with writer.masked(mask):
                    after.append(self.evaluator.add_scaled(op, self.scaled, at, part, total))
            return after

        totals = self._each_step(self.outer, {}, starts, add_block)
        for (mask, at), total in zip(cells, totals, strict=True):
            with writer.masked(mask):
                self.evaluator.define(op, at, total)
                finish(at)

    def _sum_row(self, cells: Cells) -> list[Value]:
        """Returns the sum of each vector of columns over a block."""
        writer = self.writer
        nothing = writer.broadcast(writer.constant("0", WORD))
        add = self._add_bytes if self.middle is None else self._add_unsigned

        def step(at: Iteration, sums: Sequence[Value]) -> list[Value]:
            here = [({**cell, **at}, mask) for cell, mask in cells]
            for number in self._moving():
                prefetch_panels(self.evaluator, self.op, number, [cell for cell, _ in here], self.fetched)
            xs = [self._signed(x, here[0][0]) for x, _ in self.scaled.products]
            return add(here, xs, sums)

        if self.middle is None:
            return self._each_step(self.inner, {}, [nothing] * len(cells), step)
        *sums, common = self._each_step(self.inner, {}, [nothing] * (len(cells) + 1), step)
        if self.fits_in_block:
            *sums, common = (self.pairs.widened(writer, total) for total in (*sums, common))
        return [self._centred(cell, total, common) for cell, total in zip(cells, sums, strict=True)]

    def _centred(self, cell: tuple[Iteration, str | None], total: Value, common: Value) -> Value:
        """Returns a sum of products less that of the middle."""
        (at, mask), writer = cell, self.writer
        with writer.masked(mask):
            if self.constant is None:
                number = writer.broadcast(self.evaluator.body(self.op, at, root=self.middle))
                common = writer.apply("arith.muli", "", [common, number], WORD)
            return writer.apply("arith.subi", "", [total, common], WORD)

    def _signed(self, x: Node, at: Iteration) -> Value:
        """Returns a word of activations less 128."""
        word = self.writer.broadcast(self.evaluator.body(self.op, at, root=x))
        return self.writer.apply("arith.xori", "", [word, self.writer.constant(str(SIGNS), WORD)], WORD)

    def _add_bytes(self, cells: Cells, xs: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        after = []
        for (at, mask), total in zip(cells, sums, strict=True):
            with self.writer.masked(mask):
                for x, weight in zip(xs, self.weights, strict=True):
                    value = self.writer.broadcast(self.evaluator.body(self.op, at, root=weight))
                    total = add_products(self.writer, SIGNED, total, (x, value))
            after.append(total)
        return after

    def _add_unsigned(self, cells: Cells, xs: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        """Adds the products of four bits, and those of the constant or of 1, which are the last sum."""
        middle = self.writer.constant(str((1 if self.constant is None else self.constant) * EVERY_BYTE), WORD)
        factors: list[list[Value]] = []
        for at, mask in cells:
            with self.writer.masked(mask):
                factors.append([self.evaluator.body(self.op, at, root=value) for value in self.unsigned])
        factors.append([middle] * len(xs))
        return [self._add_in_pairs(values, xs, total) for values, total in zip(factors, sums, strict=True)]

    def _add_in_pairs(self, values: Sequence[Value], xs: Sequence[Value], total: Value) -> Value:
        """Returns a sum in 16 bits if the block fits, else one in 32 bits."""
        part = total if self.fits_in_block else None
        for value, x in zip(values, xs, strict=True):
            part = self.pairs.add(self.writer, part, value, x)
        assert part is not None, self.op.location
        return part if self.fits_in_block else self._widen(total, part)
