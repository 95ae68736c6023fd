"""Stores of two neighbouring results of a thread at once, as tensor cores leave them in its registers.

    lane l has columns 2 p and 2 p + 1 of a row, p = l % 4      z[row, 2 p .. 2 p + 1]: one store of 4 or 8 bytes

Rows must have an even number of columns. Whether a tensor begins at a multiple of the bytes is known in a call only;
if it does not, the elements are stored one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....dialect.lazy_dataclass import dataclass
from .nest import Nest, Operand
from .plain import BYTES, complete_total, store_completed, store_total
from .text import Text


@dataclass(frozen=True, slots=True)
class Pairs:
    """Stores of pairs. `aligned` tells whether all tensors that are written are aligned;
    None where pairs never are."""

    text: Text
    nest: Nest
    aligned: str | None

    def store_inside(
        self, sums: Sequence[str], columns: Sequence[str], end: str, at: Callable[[str], Sequence[str]]
    ) -> None:
        """Stores what becomes of two sums in columns before the last one. `at` returns the positions of the loops in a
        column."""
        text = self.text
        if self.aligned is None:
            for value, column in zip(sums, columns, strict=True):
                with text.block(f"scf.if {text.below(column, end)}"):
                    store_total(text, self.nest, 0, value, at(column))
            return
        with text.block(f"scf.if {text.below(columns[0], end)}"):
            loops = [at(column) for column in columns]
            both = [complete_total(text, self.nest, 0, value, at) for value, at in zip(sums, loops, strict=True)]
            with text.block(f"scf.if {self.aligned}", "} else {"):
                for number, pair in enumerate(zip(*both, strict=True)):
                    store_completed(text, self.nest, number, pair, loops[0])
            with text.next_region():
                for made, positions in zip(both, loops, strict=True):
                    for number, value in enumerate(made):
                        store_completed(text, self.nest, number, (value,), positions)


def find_pairs(text: Text, nest: Nest, column: int) -> Pairs:
    """Returns the stores of a product's results; `column` is the loop along which pairs are neighbours."""
    written = written_operands(nest, column)
    size = nest.static_extent(column)
    if size is None or size % 2 or not all(_has_pairs(operand, loop) for _, operand, loop in written):
        return Pairs(text, nest, None)
    bits = text.constant(0)
    for name, operand, _ in written:
        address = text.let(f"memref.extract_aligned_pointer_as_index {name} : {operand.type} -> index")
        bits = text.index("ori", bits, text.index("andi", address, text.constant(2 * BYTES[operand.element] - 1)))
    return Pairs(text, nest, text.let(f"arith.cmpi eq, {bits}, {text.constant(0)} : index"))


def written_operands(nest: Nest, column: int) -> list[tuple[str, Operand, int]]:
    """Returns the tensors that are written, each with its name and the loop of its own nest that is the column."""
    if nest.epilogue is None:
        return [(f"%m{len(nest.inputs)}", nest.results[0], column)]
    end = nest.epilogue
    own = dict(zip(nest.results[0].plain_axes(), end.axes, strict=True))
    begin = len(end.nest.inputs)
    return [(f"%em{begin + number}", operand, own[column]) for number, operand in enumerate(end.nest.results)]


def _has_pairs(operand: Operand, loop: int) -> bool:
    """Returns whether the elements at an even position of a loop and at the next one are neighbours in memory, at a
    multiple of their bytes from the begin of a tensor."""
    if operand.element not in BYTES or "offset" in operand.type or operand.plain_axes()[-1] != loop:
        return False
    *others, last = operand.strides
    return last == 1 and all(step is not None and step % 2 == 0 for step in others)
