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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ....dialect.dims import bounds
from .evaluate import Evaluator, Kept, Place, Span
from .forms import LANES, Form, constant, variable
from .maps import transpose
from .order import Order
from .roles import Roles
from .row_loops import Rows, each_row, in_tiles
from .schedule import Stage, turned_read
from .structure import Op
from .text import Value
from .tiles import Cell, Tiles, rows_from, tile_units

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


class TurnedTiles(Tiles):
    """The writer of blocks of rows of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles) -> None:
        super().__init__(evaluator, op, roles)
        number = turned_read(op)
        assert number is not None, op.location
        self.number, self.access = number, op.reads[number]
        self.node = next(n for n in op.body.walk() if n.kind == "read" and n.number == number)
        (loop,) = op.reduced
        self.sum, self.size = self.stage.of(op, loop), op.loops[loop]
        self.at_once = isinstance(self.size, int) and self.size <= DEPTH
        depth = self.size if isinstance(self.size, int) and self.at_once else DEPTH
        self.panel = evaluator.stack("panel", op, depth * roles.width, self.access.tensor.element)
        if not self.at_once:
            self.sums = evaluator.stack("sums", op, roles.block * roles.width)

    def cover_block(self, place: Place, row: Form, column: Form, rows: Rows, finish: Callable[[Place], None]) -> None:
        """Writes all lanes from `column` on that belong to one panel, for `rows` rows from `row` on."""
        self.across(column, lambda start, masks: self._block(place, row, start, rows, masks, finish))

    def _block(
        self,
        place: Place,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Place], None],
    ) -> None:
        writer, evaluator, op = self.writer, self.evaluator, self.op

        def cells(first: Form, count: int) -> Iterator[Cell]:
            return self.cells(place, row, column, masks, first, count)

        def begin(first: Form, count: int) -> list[Value]:
            starts = []
            for mask, at, _ in cells(first, count):
                with writer.masked(mask):
                    starts.append(writer.broadcast(evaluator.starting(op, at)))
            return starts

        def end(first: Form, totals: Sequence[Value]) -> None:
            for (mask, at, _), total in zip(cells(first, len(totals) // len(masks)), totals, strict=True):
                with writer.masked(mask):
                    evaluator.define(op, at, total)
                    finish(at)

        def load(first: Form, count: int) -> list[Value]:
            return [writer.load(self.sums, slot) for _, _, slot in cells(first, count)]

        def store(first: Form, totals: Sequence[Value]) -> None:
            for (_, _, slot), total in zip(cells(first, len(totals) // len(masks)), totals, strict=True):
                writer.store(self.sums, slot, total)

        def add(
            first: Form,
            count: int,
            before: Callable[[Form, int], list[Value]],
            after: Callable[[Form, Sequence[Value]], None],
        ) -> None:
            these = list(cells(first, count))
            places, of = [at for _, at, _ in these], [mask for mask, _, _ in these]
            after(first, self._sum(list(self.loops), places, of, before(first, count), count))

        if self.at_once:
            with self._turned(place, column, masks, writer.size(0), writer.size(self.size)):
                in_tiles(writer, rows, self.roles.rows, lambda first, count: add(first, count, begin, end))
            return
        with each_row(writer, rows) as first:
            store(first, begin(first, 1))
        with writer.loop(writer.size(0), writer.size(self.size), DEPTH) as start:
            past = writer.let(f"arith.addi {start}, {writer.size(DEPTH)} : index")
            stop = writer.let(f"arith.minui {past}, {writer.size(self.size)} : index")
            with self._turned(place, column, masks, start, stop):
                in_tiles(writer, rows, self.roles.rows, lambda first, count: add(first, count, load, store))
        with each_row(writer, rows) as first:
            end(first, load(first, 1))

    # Panels

    @contextmanager
    def _turned(self, place: Place, column: Form, masks: Sequence[str | None], start: str, stop: str) -> Iterator[None]:
        """Transposes the panel of a stretch of the sum; within the context, sums cover this stretch and read the
        panel."""
        origin = column.times(-1) + self._form(start).times(-self.roles.width)
        kept = Kept(self.panel, {self.roles.lane: 1, self.sum: self.roles.width}, origin)
        for v, mask in enumerate(masks):
            self._turn(place, column.plus(v * self.writer.lanes), mask, start, stop, kept)
        self.evaluator.made[id(self.op), id(self.node)] = kept
        self.evaluator.spans[self.sum] = Span(start, stop, start, stop)
        yield
        del self.evaluator.spans[self.sum], self.evaluator.made[id(self.op), id(self.node)]

    def _form(self, start: str) -> Form:
        return constant(0) if self.at_once else variable(start)

    def _turn(self, place: Place, column: Form, mask: str | None, start: str, stop: str, kept: Kept) -> None:
        """Transposes one vector of columns: squares in registers, other elements by gathers."""
        writer, lanes, lane = self.writer, self.writer.lanes, self.roles.lane
        first = start
        if mask is None:
            whole = writer.rounded(start, stop, lanes)
            with writer.loop(start, whole, lanes) as step:
                rows = [{**place, lane: column.plus(i), self.sum: variable(step) + LANES} for i in range(lanes)]
                values = [writer.load(*self.evaluator.home(self.access, self.op, at)) for at in rows]
                for i, value in enumerate(transpose(writer, values)):
                    at = {lane: column + LANES, self.sum: variable(step).plus(i)}
                    writer.store(self.panel, kept.at(at), value)
            first = whole
        with writer.loop(first, stop, 1) as step, writer.masked(mask):
            at = {**place, lane: column + LANES, self.sum: variable(step)}
            writer.store(self.panel, kept.at(at), writer.load(*self.evaluator.home(self.access, self.op, at)))

    def _step(
        self, places: Sequence[Place], masks: Sequence[str | None], totals: Sequence[Value], rows: int, within: bool
    ) -> list[Value]:
        """Writes one more iteration for every cell; the vectors of the panel, which all rows share, are loaded
        first."""
        for at in places[: len(places) // rows]:
            self.evaluator.body(self.op, at, root=self.node)
        return [
            self.writer.broadcast(self._accumulate(at, total, within)) for at, total in zip(places, totals, strict=True)
        ]


def write_turned(evaluator: Evaluator, op: Op, order: Order, begin: str, end: str) -> None:
    stage, roles = evaluator.stage, order.roles

    def finish(place: Place) -> None:
        evaluator.write(stage.sinks, [place])

    tiles = TurnedTiles(evaluator, op, roles)
    with tile_units(evaluator, order, begin, end) as (place, row, column, _):
        rows = 1 if roles.row is None else rows_from(evaluator.writer, stage.sizes[roles.row], roles.block, row)
        tiles.cover_block(place, row, column, rows, finish)
