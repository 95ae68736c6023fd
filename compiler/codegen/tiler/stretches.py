"""Register tiles of many rows of the result: the vectors that the rows share are copied to a panel on the stack, a
stretch of the sum at a time, and stay in the nearest cache for all rows.

    w in memory: rows of N columns              panel on the stack: `depth` rows of `width` elements
    |--------------------------------|          |------|  w[k, n .. n + width]
    |      ##### (n .. n + width)    |    ->    |------|  w[k + 1, n .. n + width]
    |--------------------------------|          |------|  ...

In memory, the rows of such a panel often map to the same few cache sets. Partial sums are carried from stretch to
stretch on the stack. Each sum follows the order of the reduction loop, for any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import lcm

from ....dialect.dims import Size
from ..structured.positions import Panel
from .ends import Ends, find_ends
from .evaluate import Evaluator, Iteration, Kept, Span
from .forms import LANES, Form, constant, variable
from .roles import Roles
from .row_loops import Rows, in_tiles
from .schedule import Stage
from .structure import Access, Buffer, Op, Page
from .text import Value, element_bytes
from .tiles import Cell, RowBlockTiles, Tiles

LINE = 64
"""The bytes of a cache line."""


def find_shared(stage: Stage, op: Op, roles: Roles) -> int | None:
    """Returns the read of a sum of products over one loop that is a vector along the lanes and that all rows share."""
    # A 1x1 convolution has loops of one step too. Longer vectors read whole lines in each step, without a copy.
    summed = op.summed if roles.fetches_panels else op.reduced
    return find_columns(stage, op, roles) if len(summed) == 1 else None


def find_columns(stage: Stage, op: Op, roles: Roles) -> int | None:
    """Returns the read of a sum of products over any loops that is a vector along the lanes and that all rows share."""
    if op.factors is None or len(op.reads) != 2 or roles.windowed:
        return None
    classes = [{stage.of(op, i) for i in access.loops()} for access in op.reads]
    shared = [n for n, found in enumerate(classes) if roles.lane in found and roles.row not in found]
    other = [n for n, found in enumerate(classes) if roles.lane not in found]
    if len(shared) != 1 or len(other) != 1:
        return None
    access = op.reads[shared[0]]
    plain = access.group is None and access.tensor.view is not None and not stage.holds(access.tensor)
    return shared[0] if plain else None


def is_plain(access: Access) -> bool:
    """Returns whether an access is to memory, at an index that is known without reads."""
    return access.tensor.view is not None and not any(isinstance(p, Page | Panel) for p in access.index)


class SharingTiles(Tiles):
    """The writer of rows of one op, which share the operand with the index `number`."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, number: int) -> None:
        super().__init__(evaluator, op, roles)
        self.number, self.access, self.node = number, op.reads[number], op.factor(number)
        *_, loop = op.summed
        self.sum, self.size = self.stage.of(op, loop), op.loops[loop]

    def _together(self, *lengths: Size) -> int:
        """Returns the number of steps that one iteration of a sum takes, for stretches of these lengths."""
        steps = self.roles.sum_steps
        return steps if all(isinstance(n, int) and n % steps == 0 for n in lengths) else 1

    def _step(
        self,
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Writes one more iteration for every cell; the vectors of the panel, which all rows share, are loaded
        first."""
        for at in iterations[: len(iterations) // rows]:
            self.evaluator.body(self.op, at, root=self.node)
        return [
            self.writer.broadcast(self._accumulate(at, total, within))
            for at, total in zip(iterations, totals, strict=True)
        ]


class StretchedTiles(SharingTiles, RowBlockTiles):
    """The writer of blocks of rows, with a panel for a stretch of the sum.

    If a factor is triangular, sums leave out the steps at which it is 0, unless the other factor holds a number there
    that is not finite. The numbers of the panel are looked at as they are copied.
    """

    takes_triangles = True
    """Whether steps may be left out of sums: not where the columns are transposed, or another op bounds the steps."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, number: int, depth: int) -> None:
        super().__init__(evaluator, op, roles, number)
        self.depth = depth
        self.at_once = isinstance(self.size, int) and self.size <= depth and self.sum not in evaluator.spans
        self.together = 1 if self.sum in evaluator.spans else self._together(self.size, depth)
        self.ends = find_ends(evaluator, op, roles)
        if not self.takes_triangles:
            self.ends = Ends(kept=self.ends.kept)
        elif not self._is_checked(op.reads[1 - number]):
            self.ends = replace(self.ends, since=None)
        self.unsure: str | None = None
        """The condition that the present panel holds a number that is not finite."""
        length = self.size if isinstance(self.size, int) and self.at_once else depth
        self.panel = self._stack_panel(length)
        if not self.at_once:
            self.sums = evaluator.stack("sums", op, roles.block * roles.width)

    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        writer, evaluator, op = self.writer, self.evaluator, self.op

        def cells(first: Form, count: int) -> list[Cell]:
            return list(self.cells(iteration, row, column, masks, first, count, self._shift(rows, first, count)))

        def begin(these: Sequence[Cell]) -> list[Value]:
            starts = []
            for mask, at, _ in these:
                with writer.masked(mask):
                    starts.append(writer.broadcast(evaluator.starting(op, at)))
            return starts

        def end(these: Sequence[Cell], totals: Sequence[Value]) -> None:
            for (mask, at, _), total in zip(these, totals, strict=True):
                with writer.masked(mask):
                    evaluator.define(op, at, total)
                    finish(at)

        def load(these: Sequence[Cell]) -> list[Value]:
            return [writer.load(self.sums, slot) for _, _, slot in these]

        def store(these: Sequence[Cell], totals: Sequence[Value]) -> None:
            for (_, _, slot), total in zip(these, totals, strict=True):
                writer.store(self.sums, slot, total)

        def add(these: Sequence[Cell], count: int, starts: list[Value]) -> list[Value]:
            iterations, of = [at for _, at, _ in these], [mask for mask, _, _ in these]
            if self.together > 1:
                self._fetch_beside(iterations)
            steps = evaluator.spans[self.sum]
            if self.ends != Ends() and self.roles.row is not None:
                past = iterations[-1][self.roles.row].plus(1)
                last = self.ends.last(writer, steps, past, column, self.unsure)
                evaluator.spans[self.sum] = replace(steps, last=last)
            totals = self._sum(list(self.loops), iterations, of, starts, count)
            evaluator.spans[self.sum] = steps
            return totals

        def whole(first: Form, count: int) -> None:
            these = cells(first, count)
            end(these, add(these, count, begin(these)))

        def start(first: Form, count: int) -> None:
            these = cells(first, count)
            store(these, begin(these))

        def part(first: Form, count: int) -> None:
            these = cells(first, count)
            store(these, add(these, count, load(these)))

        def finish_rows(first: Form, count: int) -> None:
            these = cells(first, count)
            end(these, load(these))

        span = evaluator.span(self.sum)
        if self.ends.since is not None:
            span = replace(span, first=self._first_step(iteration, row, column, rows, masks[0], span))
        if self.at_once:
            with self._panel_of(iteration, column, masks, span.first, span.last):
                self._each(rows, self.roles.rows, whole)
            return
        self._each(rows, 1, start)
        with writer.loop(span.first, span.last, self.depth) as index:
            past = writer.let(f"arith.addi {index}, {writer.size(self.depth)} : index")
            stop = writer.let(f"arith.minui {past}, {span.last} : index")
            with self._panel_of(iteration, column, masks, index, stop):
                self._each(rows, self.roles.rows, part)
        self._each(rows, 1, finish_rows)

    def _stack_panel(self, length: int) -> Buffer:
        """Returns memory for the panel of some steps."""
        return self.evaluator.stack("panel", self.op, length * self.roles.width, self.node.type)

    def _each(self, rows: Rows, height: int, write: Callable[[Form, int], None]) -> None:
        """Writes tiles of a height for all rows."""
        in_tiles(self.writer, rows, height, write)

    def _shift(self, rows: Rows, first: Form, count: int) -> Form:
        """Returns the distance from a tile's first row to the row of the block that it begins with."""
        return constant(0)

    def _page_width(self, loop: int) -> int | None:
        return None  # the panel holds the steps of a stretch

    # Triangular factors

    def _is_checked(self, rows: Access) -> bool:
        """Returns whether vectors of steps of the rows can be read from memory."""
        return is_plain(rows) and rows.step(self.op.summed[0]) == 1 and rows.tensor.element == self.op.body.type

    def _first_step(
        self, iteration: Iteration, row: Form, column: Form, rows: Rows, mask: str | None, span: Span
    ) -> str:
        """Returns the first step at which the columns from `column` on are not 0: the first of all steps if a row holds
        a number before it that is not finite, or a step of the columns is not 0, as in rows of NaN."""
        writer, evaluator, op = self.writer, self.evaluator, self.op
        lanes, row_class = writer.lanes, self.roles.row
        assert row_class is not None, op.location
        first = self.ends.first(writer, span, column, lcm(lanes, self.together))
        zero = writer.broadcast(writer.constant("0.0", self.op.body.type))
        with writer.carrying(span.first, first, 1, [zero]) as steps:
            at = {**iteration, self.roles.lane: column + LANES, self.sum: variable(steps.index)}
            with writer.masked(mask):
                steps.after = [self._added(evaluator.body(op, at, root=self.node), "1.0", *steps.values)]
        end = rows if isinstance(rows, str) else writer.size(rows)
        with writer.carrying(writer.size(0), end, 1, steps.results) as each:
            with writer.carrying(span.first, first, lanes, each.values) as vectors:
                at = {**iteration, row_class: row + variable(each.index), self.sum: variable(vectors.index) + LANES}
                read = writer.load(*evaluator.home(op.reads[1 - self.number], op, at))
                vectors.after = [self._added(read, "0.0", *vectors.values)]
            each.after = vectors.results
        (total,) = each.results
        return writer.let(f"arith.select {self._is_not_zero(total)}, {span.first}, {first} : index")

    def _added(self, value: Value, factor: str, total: Value) -> Value:
        """Returns value * factor + total, in vectors."""
        writer = self.writer
        by = writer.broadcast(writer.constant(factor, total.type))
        sums = f"{writer.broadcast(value).name}, {by.name}, {total.name} : {writer.type(total)}"
        return Value(writer.let(f"vector.fma {sums}"), total.type, True)

    def _is_not_zero(self, total: Value) -> str:
        """Returns whether an element of a vector is not 0."""
        writer = self.writer
        zero = writer.broadcast(writer.constant("0.0", self.op.body.type))
        some = writer.let(f"arith.cmpf une, {total.name}, {zero.name} : {writer.type(total)}")
        return writer.let(f"vector.reduction <or>, {some} : {writer.vector_type('i1')} into i1")

    # Prefetching

    def _fetch_ahead(self, iterations: Sequence[Iteration], step: str, span: Span) -> None:
        """Prefetches the rows of the next tile: while the sums take the steps of a cache line, one line of each row."""
        access, row, writer = self.op.reads[1 - self.number], self.roles.row, self.writer
        (loop,) = self.op.summed
        if span.together == 1 or row is None or self.stage.holds(access.tensor) or access.step(loop) != 1:
            return
        if not is_plain(access):
            return
        turns = max(1, LINE // (element_bytes(access.tensor.element) * span.together))
        first, lines = iterations[0], -(-self.roles.rows // turns)
        turn = writer.let(f"arith.divui {step}, {writer.size(span.together)} : index")
        turn = writer.let(f"arith.remui {turn}, {writer.size(turns)} : index")
        for line in range(lines):
            at = {**first, row: first[row].plus(self.roles.rows + line) + variable(turn, lines)}
            writer.prefetch(*self.evaluator.home(access, self.op, at))

    def _fetch_beside(self, iterations: Sequence[Iteration]) -> None:
        """Prefetches the results of a tile, and the operands of the ops after the product: its sums take longer than
        the accesses."""
        stage, row = self.stage, self.roles.row
        read = [(op, a, False) for op in stage.ops if op is not self.op for a in op.reads if not stage.holds(a.tensor)]
        for op, access, write in [*read, *((op, op.written, True) for op in stage.sinks)]:
            steps = {stage.of(op, i): access.step(i) for i in access.loops()}
            if is_plain(access) and steps.get(self.roles.lane) == 1 and row in steps:
                for at in iterations:
                    self.writer.prefetch(*self.evaluator.home(access, op, at), write=write)

    def _fetch_next(self, iteration: Iteration, column: Form, step: Form) -> None:
        """Prefetches what the next panel has in place of this panel's `step`: the same step of the next columns, or a
        step of the next stretch."""
        writer, width = self.writer, self.roles.width
        if not self.roles.fetches_panels or not is_plain(self.access):
            return
        if self.at_once:
            column = column.plus(width)
        else:
            step = step.plus(self.depth)
        of_line = max(1, LINE // (writer.lanes * element_bytes(self.access.tensor.element)))
        for vector in range(0, width // writer.lanes, of_line):
            at = {**iteration, self.roles.lane: column.plus(vector * writer.lanes), self.sum: step}
            writer.prefetch(*self.evaluator.home(self.access, self.op, at), level=2)

    # Panels

    @contextmanager
    def _panel_of(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str
    ) -> Iterator[None]:
        """Fills the panel with a stretch of the sum; within the context, sums cover this stretch and read the panel."""
        first = constant(0) if self.at_once else variable(start)
        origin = column.times(-1) + first.times(-self.roles.width)
        kept = Kept(self.panel, {self.roles.lane: 1, self.sum: self.roles.width}, origin)
        self.unsure = self._fill(iteration, column, masks, start, stop, kept)
        node, around = (id(self.op), id(self.node)), self.evaluator.spans.get(self.sum)
        self.evaluator.made[node] = kept
        self.evaluator.spans[self.sum] = Span(start, stop, start, stop, self.together)
        yield
        del self.evaluator.spans[self.sum], self.evaluator.made[node]
        if around is not None:
            self.evaluator.spans[self.sum] = around

    def _fill(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str, kept: Kept
    ) -> str | None:
        """Copies the columns; returns whether one is not finite, if sums leave out steps then."""
        writer = self.writer
        totals = [] if self.ends.until is None else [writer.broadcast(writer.constant("0.0", self.op.body.type))]
        with writer.carrying(start, stop, 1, totals) as steps:
            after = list(steps.values)
            for v, mask in enumerate(masks):
                lane = column.plus(v * writer.lanes) + LANES
                at = {**iteration, self.roles.lane: lane, self.sum: variable(steps.index)}
                with writer.masked(mask):
                    value = self.evaluator.body(self.op, at, root=self.node)
                writer.store(self.panel, kept.at(at), value)
                # A number times 0 is 0, or NaN if it is not finite.
                after = [self._added(value, "0.0", total) for total in after]
            self._fetch_next(iteration, column, variable(steps.index))
            steps.after = after
        return self._is_not_zero(steps.results[0]) if totals else None
