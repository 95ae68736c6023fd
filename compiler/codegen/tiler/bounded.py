"""Computes only the part of a block of rows that a mask of positions keeps: loops along the rows have run-time ends.

For 8 rows of a causal mask, where the last row sees the keys before 100:

    keys        0        64       100     128      2048
    scores      |--------------------------|             columns up to a multiple of the loop step along rows
    exp, sums   |--------------------------|
    times V     |-------------------|                    later weights are exactly 0

Ends are rounded to whole loop iterations, so that a row has the same bits in every block: blocks may overlap, and zeros
that are added or left out change no sum. A block is computed again with whole rows where one of its maxima is not far
above the masked scores, as in a fully masked row. It is computed with whole rows at once where the values hold a
non-finite number.

Where a length masks the rows and the values (see `ranges.py`), the values after it are never read, so they may be
anything: the products with values end at the length even in whole rows. Where rows have own lengths, such as those of a
causal mask after the tokens of earlier calls, the greatest one of a block is the end of the block. The values between
it and the length of all rows are looked at only if there are some. Where a start masks the rows and the values too, as
with a sliding window, the values before it are not read either, and the own starts of rows bound a block likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import lcm

from ....dialect.dims import Size, bounds
from ..structured.body_nodes import Node
from .evaluate import Evaluator, Iteration, Span
from .forms import LANES, Form, constant, variable
from .ranges import Affine, MaskedRows, find_masked_rows
from .row_loops import Rows
from .rows import AT_ONCE
from .schedule import Stage
from .selections import drop_selection
from .structure import Buffer, Op
from .text import ENDLESS, Value, Writer, stored_type

SHORTEST = 32
"""The row length up to which rows are computed as a whole: bounds would leave out no more than a tile or two."""
FAR = {"f32": 128.0, "f64": 768.0}
"""exp is 0 for arguments further below 0 than this, by dtype."""


class BoundedRows:
    """The writer of a stage's blocks of rows within their bounds; `steps` are the widths of tiles along the rows."""

    def __init__(
        self, evaluator: Evaluator, rows: MaskedRows, batch: Sequence[int], row: int, steps: Sequence[int]
    ) -> None:
        self.evaluator, self.rows, self.batch, self.row = evaluator, rows, batch, row
        self.writer, self.stage = evaluator.writer, evaluator.stage
        self.turn = AT_ONCE * self.writer.lanes
        self.multiple = lcm(self.turn, *steps)
        self.size = self.stage.sizes[rows.column]
        self.has_length = rows.kept.length is not None
        self.by_row = not self.has_length or rows.ended
        """Whether blocks of rows have different bounds. A bound leaves weights of 0 out, so that values are checked."""
        self.schedule = "own lengths" if self.has_length and rows.ended else "bounded rows"
        """The name of the schedule in reports."""
        self.doubt = self.writer.constant("false", "i1")
        """The flag for a row in the block with a maximum that is too low."""
        self.whole = "", ""
        """The start and the length of all rows of the present block."""
        self.seen, self.found = self.writer.on_stack(1, "index"), self.writer.on_stack(1, "i1")
        """The index of the last batch with checked values, and the result of the check."""

    # Non-finite values

    def prepare(self) -> None:
        """Writes the initial state before the first block: no batch is checked yet."""
        if self.by_row:
            self.writer.store(self.seen, constant(0), Value("", "index", form=constant(-1)))
            self.writer.store(self.found, constant(0), self.writer.constant("false", "i1"))

    def _any_infinite(self, iteration: Iteration, span: Span, begin: str, end: str) -> str:
        """Returns whether the values of a batch between two positions hold a non-finite number, if a span leaves some
        of them out. Consecutive blocks of a batch share the search."""
        writer = self.writer
        if not self.by_row:
            return writer.constant("false", "i1").name
        if not self.has_length:
            return self._search(iteration, begin, end)
        shorter = writer.let(f"arith.cmpi slt, {span.last}, {end} : index")
        if self.begins:
            later = writer.let(f"arith.cmpi sgt, {span.first}, {begin} : index")
            shorter = writer.let(f"arith.ori {shorter}, {later} : i1")
        with writer.when(shorter):
            self._search(iteration, begin, end)
        return writer.let(f"arith.andi {shorter}, {self._load_found()} : i1")

    @property
    def begins(self) -> tuple[Node, ...]:
        """The starts that bound blocks of rows and not their values."""
        if not self.rows.ended:
            return ()
        start = self.rows.kept.start
        return (*(() if self.rows.started or start is None else (start,)), *self.rows.kept.begins)

    def _search(self, iteration: Iteration, begin: str, end: str) -> str:
        """Returns whether the values of a batch between two positions hold a non-finite number."""
        writer, number = self.writer, constant(0)
        for c in self.batch:
            number = number.times(self.stage.sizes[c]) + iteration[c]
        current = writer.index(number)
        # Blocks of one batch follow each other, so remembering the last batch is enough.
        before = self._fresh_load(self.seen)
        with writer.when(writer.let(f"arith.cmpi ne, {before}, {current} : index")):
            writer.store(self.seen, constant(0), Value(current, "index"))
            writer.store(self.found, constant(0), writer.constant("false", "i1"))
            for op, value in (*self.rows.sums, *self.rows.factors):
                self._scan(op, value, iteration, begin, end)
        return self._load_found()

    def _load_found(self) -> str:
        return self.writer.let(f"arith.trunci {self._fresh_load(self.found)} : i8 to i1")

    def _scan(self, op: Op, value: Node, iteration: Iteration, since: str, until: str) -> None:
        """Adds up the values between two positions times 0; the sum is NaN if a value is not finite."""
        writer, lanes = self.writer, self.writer.lanes
        along = {*self.stage.outer, self.rows.column}
        inner = (c for c in self.stage.parallel(op) if c not in along and self.stage.sizes[c] != 1)
        lane = next(inner, None)
        zero = writer.broadcast(writer.number(0.0, op.body.type))

        def add_up(start: str) -> None:
            with writer.carrying(since, until, 1, [zero]) as loop:
                at = {**iteration, self.rows.column: variable(loop.index)}
                if lane is not None:
                    at[lane] = variable(start) + LANES
                factor = writer.broadcast(self.evaluator.body(op, at, root=value))
                (total,) = loop.values
                sums = f"{factor.name}, {zero.name}, {total.name} : {writer.type(total)}"
                loop.after = [Value(writer.let(f"vector.fma {sums}"), total.type, True)]
            (total,) = loop.results
            nan = writer.let(f"arith.cmpf uno, {total.name}, {total.name} : {writer.type(total)}")
            some = writer.let(f"vector.reduction <or>, {nan} : {writer.vector_type('i1')} into i1")
            with writer.when(some):
                writer.store(self.found, constant(0), writer.constant("true", "i1"))

        start, size = writer.size(0), self.stage.sizes[lane] if lane is not None else 1
        end = writer.rounded(start, writer.size(size), lanes)
        with writer.loop(start, end, lanes) as index:
            add_up(index)
        left = writer.let(f"arith.subi {writer.size(size)}, {end} : index")
        some = writer.let(f"arith.cmpi ugt, {left}, {writer.size(0)} : index")
        with writer.when(some), writer.masked(writer.first_lanes(variable(left))):
            add_up(end)

    def _fresh_load(self, buffer: Buffer) -> str:
        """Loads the current content of the memory, not a remembered value."""
        name, element = self.writer.fresh(), stored_type(buffer.element)
        memory = self.writer.memory(buffer)
        self.writer.add(f"{name} = memref.load {memory}[{self.writer.size(0)}] : memref<{ENDLESS}x{element}>")
        return name

    # Ends

    def _end(self, bound: Affine, iteration: Iteration, row: Form, count: Rows, *, greatest: bool) -> str:
        """Returns the greatest or least value of a bound in a block of rows, clamped to the length of a row."""
        total = constant(bound.constant)
        last = row + (constant(count) if isinstance(count, int) else variable(count)).plus(-1)
        for c, factor in bound.terms:
            # A bound is linear in the row, so its extremes in a block are at the first or the last row.
            form = iteration[c] if c != self.row else last if (factor > 0) == greatest else row
            total = total + form.times(factor)
        writer = self.writer
        positive = writer.let(f"arith.maxsi {writer.index(total)}, {writer.size(0)} : index")
        return writer.let(f"arith.minsi {positive}, {writer.size(self.size)} : index")

    def _length(self, op: Op, node: Node, iteration: Iteration) -> str:
        """Returns a length that is known at run time, as an index; it may be beyond the row."""
        length = self.writer.scalar(self.evaluator.body(op, iteration, root=node))
        if length.type == "index":
            return length.name
        return self.writer.let(f"arith.index_cast {length.name} : {length.type} to index")

    def _among_rows(self, op: Op, node: Node, iteration: Iteration, row: Form, count: Rows, *, greatest: bool) -> str:
        """Returns the greatest or the least of the own bounds of a block of rows, at least 0 or at most all columns."""
        writer = self.writer
        outermost, join = Value(writer.size(0 if greatest else self.size), "index"), "maxsi" if greatest else "minsi"

        def joined(at: Form, so_far: Value) -> Value:
            bound = self._length(op, node, {**iteration, self.row: at})
            return Value(writer.let(f"arith.{join} {so_far.name}, {bound} : index"), "index")

        if count == 1:
            return joined(row, outermost).name
        end = count if isinstance(count, str) else writer.size(count)
        with writer.carrying(writer.size(0), end, 1, [outermost]) as loop:
            loop.after = [joined(row + variable(loop.index), loop.values[0])]
        return loop.results[0].name

    def _span(self, iteration: Iteration, row: Form, count: Rows) -> tuple[Span, tuple[str, str]]:
        """Returns the part of the rows of a block that is kept, and the start and the length of all rows."""
        writer = self.writer

        def let(operation: str, left: str, right: str | int) -> str:
            right = writer.size(right) if isinstance(right, int) else right
            return writer.let(f"arith.{operation} {left}, {right} : index")

        first, last = writer.size(0), writer.size(self.size)
        if self.rows.kept.length is not None:
            length = self._length(*self.rows.kept.length, {**iteration, self.row: row})
            last = let("minsi", let("maxsi", length, 0), last)
            if self.rows.started and self.rows.kept.start is not None:
                start = self._length(self.rows.kept.length[0], self.rows.kept.start, {**iteration, self.row: row})
                first = let("minsi", let("maxsi", start, 0), last)
        whole = first, last
        if self.rows.kept.length is not None and self.rows.ended:
            op, _ = self.rows.kept.length
            for node in self.rows.kept.ends:
                last = let("minsi", last, self._among_rows(op, node, iteration, row, count, greatest=True))
            for node in self.begins:
                first = let("maxsi", first, self._among_rows(op, node, iteration, row, count, greatest=False))
        for bound in self.rows.kept.lower:
            first = let("maxsi", first, self._end(bound, iteration, row, count, greatest=False))
        for bound in self.rows.kept.upper:
            last = let("minsi", last, self._end(bound, iteration, row, count, greatest=True))
        if self.begins:
            first = let("minsi", first, last)
        # The end is rounded up to whole iterations of the loops along rows, the begin down to a step of every loop.
        turns = let("muli", let("divui", let("addi", last, self.turn - 1), self.turn), self.turn)
        end = let("minsi", turns, writer.size(self.size))
        begin = let("minsi", let("muli", let("divui", first, self.multiple), self.multiple), end)
        return Span(begin, end, first, last), whole

    # Blocks

    @contextmanager
    def block(self, iteration: Iteration, row: Form, count: Rows) -> Iterator[None]:
        """Within the context, a block of rows is written within its bounds, or as a whole if necessary."""
        writer = self.writer
        span, self.whole = self._span(iteration, row, count)
        start, length = self.whole
        infinite = self._any_infinite(iteration, span, start, length)
        # The loop runs once: within the bounds, or as a whole where values are not finite. It runs again, as a whole,
        # if a row within bounds is in doubt.
        whole, again = writer.fresh(), writer.fresh()
        writer.add(f"{writer.fresh()} = scf.while ({whole} = {infinite}) : (i1) -> i1 {{")
        with writer.scope():

            def choose(full: Size | str, part: str) -> str:
                full = full if isinstance(full, str) else writer.size(full)
                return writer.let(f"arith.select {whole}, {full}, {part} : index")

            first, last = choose(0, span.first), choose(self.size, span.last)
            if self.has_length:
                first, last = span.first, choose(length, span.last) if self.by_row else span.last
                if self.begins:
                    first = choose(start, first)
                # In a row without a maximum, one weight that is NaN is enough to show it.
                first, last = self._at_least_one(first, last)
            begin, end = choose(0, span.begin), choose(self.size, span.end)
            self.evaluator.spans[self.rows.column] = Span(begin, end, first, last)
            yield
            del self.evaluator.spans[self.rows.column]
            true = writer.constant("true", "i1")
            bounded = writer.let(f"arith.xori {whole}, {true.name} : i1")
            wrong = writer.let(f"arith.andi {bounded}, {self.doubt.name} : i1")
            writer.add(f"scf.condition({wrong}) {true.name} : i1")
        writer.add("} do {")
        writer.add(f"^bb0({again}: i1):")
        writer.add(f"  scf.yield {again} : i1")
        writer.add("}")

    def is_empty(self) -> str:
        """Returns whether the rows of the present block have no columns."""
        start, length = self.whole
        return self.writer.let(f"arith.cmpi sge, {start}, {length} : index")

    def _at_least_one(self, first: str, last: str) -> tuple[str, str]:
        """Returns the bounds of the sums of products in a row whose weights are NaN where it has no maximum. A row
        without columns has no weight."""
        writer = self.writer
        if self.rows.hidden:
            return first, last
        if self.rows.kept.start is None and not self.begins:
            least = writer.let(f"arith.maxsi {last}, {writer.size(1)} : index")
            return first, writer.let(f"arith.minsi {least}, {writer.size(self.size)} : index")

        def let(operation: str, left: str, right: str) -> str:
            return writer.let(f"arith.{operation} {left}, {right} : index")

        size, one = writer.size(self.size), writer.size(1)
        first = let("minsi", first, let("maxsi", let("subi", size, one), writer.size(0)))
        return first, let("minsi", let("maxsi", last, let("addi", first, one)), size)

    def doubts(self, ops: Sequence[Op]) -> list[Value]:
        """Returns the loop-carried value of a loop over the rows of these ops: whether a row so far has a maximum that
        is too low."""
        return [self.writer.constant("false", "i1")] if self.rows.greatest in ops else []

    def look_at(self, iteration: Iteration, doubts: Sequence[Value]) -> list[Value]:
        """Returns the carried value after the row at a position, which has been written."""
        if not doubts:
            return []
        greatest = self.evaluator.value(self.rows.greatest, iteration)
        type = greatest.type
        apart = self.writer.apply("arith.subf", "", [greatest, self.writer.number(self._low(), type)], type)
        far = self.writer.number(FAR[type], type)
        low = self.writer.let(f"arith.cmpf ule, {apart.name}, {far.name} : {type}")
        return [Value(self.writer.let(f"arith.ori {doubts[0].name}, {low} : i1"), "i1")]

    def _low(self) -> float:
        """Returns the greatest score that a mask selects."""
        low, lows = self.rows.kept.low, self.rows.kept.lows
        return max(lows) if lows and self.rows.ended else low


def bound_rows(
    evaluator: Evaluator, outer: Sequence[int], steps: Sequence[int], *, single: bool = False
) -> BoundedRows | None:
    """Returns the bounds of blocks of rows, where the rows are the last of the `outer` classes; None without bounds, or
    where they give no benefit. A block is one row if `single`."""
    stage = evaluator.stage
    rows = find_masked_rows(stage, None if single else outer[-1])
    if rows is None or bounds(stage.sizes[rows.column])[1] <= SHORTEST:
        return None
    row = outer[-1]
    if rows.kept.length is not None:
        sums = tuple((op, drop_selection(op, value)) for op, value in rows.sums)
        if rows.started:
            sums = tuple((op, drop_selection(op, value)) for op, value in sums)
        ended = rows.ended and not any(_reads_row(stage, op, value, row) for op, value in (*sums, *rows.factors))
        return BoundedRows(evaluator, replace(rows, sums=sums, ended=ended), outer[:-1], row, steps)
    if not any(c == row for bound in (*rows.kept.lower, *rows.kept.upper) for c, _ in bound.terms):
        return None
    if any(_reads_row(stage, op, value, row) for op, value in rows.sums):
        return None
    return BoundedRows(evaluator, rows, outer[:-1], row, steps)


def _reads_row(stage: Stage, op: Op, value: Node, row: int) -> bool:
    return any(stage.of(op, loop) == row for loop in op.loops_read(value))


def heavy_first(writer: Writer, number: Form, count: Size) -> Form:
    """Permutes blocks with work that rises or falls with their index: the last, the first, the last but one, the
    second. Any two neighbours are about the same work, so ranges of blocks are balanced."""
    block, one = writer.index(number), writer.size(1)

    def let(operation: str, left: str, right: str) -> str:
        return writer.let(f"arith.{operation} {left}, {right} : index")

    half = let("shrui", block, one)
    odd = writer.let(f"arith.trunci {writer.let(f'arith.index_cast {block} : index to i64')} : i64 to i1")
    last = let("subi", let("subi", writer.size(count), one), half)
    return variable(writer.let(f"arith.select {odd}, {half}, {last} : index"))
