"""Register tiles of a product with columns that are rows of memory, as in `x @ w.T`: a panel of columns is transposed
onto the stack, a stretch of the sum at a time, for many rows of the result.

    w in memory: N rows of K elements      panel on the stack: `depth` rows of `width` elements
    |----------------------------|         |------|  w[n .. n + width, k]
    |    ######## (k .. k+depth) |   ->    |------|  w[n .. n + width, k + 1]
    |----------------------------|         |------|  ...

Partial sums are carried from stretch to stretch on the stack. Each sum follows the order of the reduction loop,
for any number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from .evaluate import Iteration, Kept
from .forms import LANES, Form, variable
from .maps import transpose
from .stretches import StretchedTiles


class TurnedTiles(StretchedTiles):
    """The writer of blocks of rows of one op, whose shared operand is contiguous along the sum."""

    takes_triangles = False

    def _fill(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str, kept: Kept
    ) -> str | None:
        for v, mask in enumerate(masks):
            self._turn(iteration, column.plus(v * self.writer.lanes), mask, start, stop, kept)
        return None

    def _turn(self, iteration: Iteration, column: Form, mask: str | None, start: str, stop: str, kept: Kept) -> None:
        """Transposes one vector of columns: squares in registers, other elements by gathers."""
        writer, lanes, lane = self.writer, self.writer.lanes, self.roles.lane
        first = start
        if mask is None:
            whole = writer.rounded(start, stop, lanes)
            with writer.loop(start, whole, lanes) as step:
                rows = [{**iteration, lane: column.plus(i), self.sum: variable(step) + LANES} for i in range(lanes)]
                values = [self.evaluator.body(self.op, at, root=self.node) for at in rows]
                for i, value in enumerate(transpose(writer, values)):
                    at = {lane: column + LANES, self.sum: variable(step).plus(i)}
                    writer.store(self.panel, kept.at(at), value)
            first = whole
        with writer.loop(first, stop, 1) as step, writer.masked(mask):
            at = {**iteration, lane: column + LANES, self.sum: variable(step)}
            writer.store(self.panel, kept.at(at), self.evaluator.body(self.op, at, root=self.node))
