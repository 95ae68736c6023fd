"""Register tiles of a product with columns that are rows of memory, as in `x @ w.T`: a panel of columns is transposed
onto the stack, a stretch of the sum at a time, for many rows of the result.

    w in memory: N rows of K elements      panel on the stack: DEPTH rows of `width` elements
    |----------------------------|         |------|  w[n .. n + width, k]
    |    ######## (k .. k+DEPTH) |   ->    |------|  w[n .. n + width, k + 1]
    |----------------------------|         |------|  ...

Partial sums are carried from stretch to stretch on the stack. Each sum follows the order of the reduction loop,
whatever rows are computed beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....dialect.dims import bounds
from .evaluate import Evaluator, Iteration, Kept
from .forms import LANES, Form, variable
from .maps import transpose
from .order import Order
from .roles import Roles
from .schedule import Stage, turned_read
from .stretches import StretchedTiles
from .structure import Op
from .tiles import rows_from, tile_work_items

BLOCK_ROWS = 256
"""The number of rows that share a panel: the transposition then takes a few percent of the time."""
DEPTH = 256
"""The steps of the sum in a panel, which stays in a cache together with its sums."""


def share_turned(stage: Stage, op: Op, roles: Roles) -> Roles | None:
    """Returns the roles with work items of many rows, where a panel is transposed for all of them; else None."""
    if turned_read(op) is None:
        return None
    most = 1 if roles.row is None else bounds(stage.sizes[roles.row])[1]
    return replace(roles, block=BLOCK_ROWS if most > BLOCK_ROWS else max(int(most), roles.rows))


class TurnedTiles(StretchedTiles):
    """The writer of blocks of rows of one op, whose shared operand is contiguous along the sum."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles) -> None:
        number = turned_read(op)
        assert number is not None, op.location
        super().__init__(evaluator, op, roles, number, DEPTH)

    def _fill(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str, kept: Kept
    ) -> None:
        for v, mask in enumerate(masks):
            self._turn(iteration, column.plus(v * self.writer.lanes), mask, start, stop, kept)

    def _turn(self, iteration: Iteration, column: Form, mask: str | None, start: str, stop: str, kept: Kept) -> None:
        """Transposes one vector of columns: squares in registers, other elements by gathers."""
        writer, lanes, lane = self.writer, self.writer.lanes, self.roles.lane
        first = start
        if mask is None:
            whole = writer.rounded(start, stop, lanes)
            with writer.loop(start, whole, lanes) as step:
                rows = [{**iteration, lane: column.plus(i), self.sum: variable(step) + LANES} for i in range(lanes)]
                values = [writer.load(*self.evaluator.home(self.access, self.op, at)) for at in rows]
                for i, value in enumerate(transpose(writer, values)):
                    at = {lane: column + LANES, self.sum: variable(step).plus(i)}
                    writer.store(self.panel, kept.at(at), value)
            first = whole
        with writer.loop(first, stop, 1) as step, writer.masked(mask):
            at = {**iteration, lane: column + LANES, self.sum: variable(step)}
            writer.store(self.panel, kept.at(at), writer.load(*self.evaluator.home(self.access, self.op, at)))


def write_turned(evaluator: Evaluator, op: Op, order: Order, begin: str, end: str) -> None:
    stage, roles = evaluator.stage, order.roles

    def finish(iteration: Iteration) -> None:
        evaluator.write(stage.sinks, [iteration])

    tiles = TurnedTiles(evaluator, op, roles)
    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, _):
        rows = 1 if roles.row is None else rows_from(evaluator.writer, stage.sizes[roles.row], roles.block, row)
        tiles.cover_block(iteration, row, column, rows, finish)
