"""Scans, such as running sums: each step along one loop depends on the previous one.

The order of the steps is fixed, so a row has the same bits alone and among others.

Along an outer axis, vectors lie along the result's memory, and each vector is carried through all steps:

    total[c : c + 8] = total[c : c + 8] + x[t, c : c + 8]      for t, with c over the work items

Along the contiguous axis, one vector carries as many rows as it has lanes. Squares of steps and rows are transposed in
registers on the way in and out:

    rows 0..7 of x[:, t : t + 8]  ->  transposed: a vector over rows for each step  ->  8 steps  ->  transposed  ->  y

Remaining rows, and rows shorter than a vector, are scalars, a few rows at a time: a sum waits several cycles for the
previous one, and the other rows fill them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.dims import Size, bounds
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, variable
from .maps import transpose
from .nest import blocks, work_items
from .row_loops import in_tiles
from .text import Value

VECTORS = 4
"""The number of vectors per work item along the lanes, which hide the latency of a step."""
ROWS = 4
"""The number of rows that scalar code processes side by side."""


class ScanStage:
    """The writer of a stage that is one scan."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.writer, self.stage = evaluator, evaluator.writer, evaluator.stage
        (self.op,) = self.stage.ops
        assert self.op.carried is not None, self.op.location
        self.carried = self.op.carried
        (self.along,) = self.stage.reduced(self.op)
        free = [c for c in self.stage.parallel(self.op) if self.stage.sizes[c] != 1]
        steps = {self.stage.of(self.op, i): self.op.written.step(i) for i in self.op.outer}
        self.lane = next((c for c in reversed(free) if steps[c] == 1), None)
        """The class of the vectors, if they lie along the memory of the result."""
        self.row = free[-1] if free and self.lane is None else None
        self.outer = [c for c in free if c not in (self.lane, self.row)]

    def counts(self) -> list[Size]:
        counts = [self.stage.sizes[c] for c in self.outer]
        if self.lane is not None:
            counts.append(blocks(self.stage.sizes[self.lane], VECTORS * self.writer.lanes))
        if self.row is not None:
            counts.append(blocks(self.stage.sizes[self.row], self.writer.lanes))
        return counts

    def write(self, begin: str, end: str) -> None:
        with work_items(self.writer, self.counts(), begin, end) as numbers:
            iteration = dict(zip(self.outer, numbers, strict=False))
            if self.lane is not None:
                self._write_columns(iteration, self.lane, numbers[-1])
            elif self.row is not None:
                self._write_rows(iteration, self.row, numbers[-1])
            else:
                self._go_through([iteration], vector=False)

    # The steps

    def _start(self, *, vector: bool) -> Value:
        first = self.writer.constant(self.carried.first, self.carried.element)
        return self.writer.broadcast(first) if vector else first

    def _step(self, iteration: Iteration, total: Value) -> tuple[Value, Value]:
        """Returns the value that a step writes, and the value that it carries on."""
        evaluator = self.evaluator
        return evaluator.body(self.op, iteration, total), evaluator.body(self.op, iteration, total, self.carried.next)

    def _store(self, iteration: Iteration, value: Value) -> None:
        with self.writer.at(self.op.location):
            self.writer.store(*self.evaluator.home(self.op.written, self.op, iteration), value)

    def _steps(self, iterations: Sequence[Iteration], begin: str, end: str, totals: Sequence[Value]) -> list[Value]:
        """Writes the steps of several positions together, and returns their carried values at the end."""
        with self.writer.carrying(begin, end, 1, totals) as loop:
            for iteration, total in zip(iterations, loop.values, strict=True):
                at = {**iteration, self.along: variable(loop.index)}
                value, following = self._step(at, total)
                self._store(at, value)
                loop.after.append(self.writer.broadcast(following) if total.vector else self.writer.scalar(following))
        return loop.results

    def _go_through(self, iterations: Sequence[Iteration], *, vector: bool) -> None:
        """Writes all steps of several positions."""
        zero, size = self.writer.size(0), self.writer.size(self.stage.sizes[self.along])
        self._steps(iterations, zero, size, [self._start(vector=vector)] * len(iterations))

    # Vectors along the memory of the result

    def _write_columns(self, iteration: Iteration, lane: int, item: Form) -> None:
        writer, lanes, size = self.writer, self.writer.lanes, self.stage.sizes[lane]
        wide = VECTORS * lanes
        start = writer.index(item.times(wide))
        past = writer.let(f"arith.addi {start}, {writer.size(wide)} : index")
        last = writer.let(f"arith.minui {past}, {writer.size(size)} : index")
        for step in (wide, lanes):
            end = writer.rounded(start, last, step)
            with writer.loop(start, end, step) as index:
                vectors = range(0, step, lanes)
                self._go_through([{**iteration, lane: variable(index).plus(v) + LANES} for v in vectors], vector=True)
            start = end
        if isinstance(size, int) and size % lanes == 0:
            return
        left = writer.let(f"arith.subi {last}, {start} : index")
        some = writer.let(f"arith.cmpi ugt, {left}, {writer.size(0)} : index")
        with writer.when(some), writer.masked(writer.first_lanes(variable(left))):
            self._go_through([{**iteration, lane: variable(start) + LANES}], vector=True)

    # Rows

    def _write_rows(self, iteration: Iteration, row: int, item: Form) -> None:
        writer, lanes, size = self.writer, self.writer.lanes, self.stage.sizes[row]
        start = writer.index(item.times(lanes))
        past = writer.let(f"arith.addi {start}, {writer.size(lanes)} : index")
        last = writer.let(f"arith.minui {past}, {writer.size(size)} : index")
        height = writer.let(f"arith.subi {last}, {start} : index")

        def write_some(first: Form, count: int) -> None:
            rows = [{**iteration, row: (variable(start) + first).plus(i)} for i in range(count)]
            self._go_through(rows, vector=False)

        def write_scalars() -> None:
            in_tiles(writer, height, ROWS, write_some)

        if not self._are_squares_worth(row):
            write_scalars()
            return
        whole = writer.let(f"arith.cmpi eq, {height}, {writer.size(lanes)} : index")
        writer.either(whole, lambda: self._write_squares(iteration, row, variable(start)), write_scalars)

    def _are_squares_worth(self, row: int) -> bool:
        """Returns whether there are whole squares, and all reads from memory are along rows."""
        op, loops = self.op, {self.stage.of(self.op, i): i for i in range(len(self.op.loops))}
        if bounds(self.stage.sizes[self.along])[1] < self.writer.lanes:
            return False
        if any(node.tensor is not None for root in (op.body, self.carried.next) for node in root.walk()):
            return False
        along = loops[self.along]
        return op.written.step(along) == 1 and all(a.step(along) == 1 or a.step(loops[row]) == 0 for a in op.reads)

    def _write_squares(self, iteration: Iteration, row: int, first: Form) -> None:
        writer, lanes, along = self.writer, self.writer.lanes, self.along
        length, zero = self.stage.sizes[along], writer.size(0)
        size = writer.size(length)
        end = writer.rounded(zero, size, lanes)
        with writer.carrying(zero, end, lanes, [self._start(vector=True)]) as loop:
            column = variable(loop.index)
            self._turn_reads(iteration, row, first, column)
            (total,), results = loop.values, []
            for i in range(lanes):
                value, total = self._step({**iteration, row: first + LANES, along: column.plus(i)}, total)
                results.append(writer.broadcast(value))
            for i, value in enumerate(transpose(writer, results)):
                self._store({**iteration, row: first.plus(i), along: column + LANES}, value)
            loop.after.append(writer.broadcast(total))
        if not isinstance(length, int) or length % lanes:
            self._steps([{**iteration, row: first + LANES}], end, size, loop.results)

    def _turn_reads(self, iteration: Iteration, row: int, first: Form, column: Form) -> None:
        """Loads squares of row-contiguous operands, and transposes them."""
        op, evaluator, lanes = self.op, self.evaluator, self.writer.lanes
        rows = [i for i in range(len(op.loops)) if self.stage.of(op, i) == row]
        for number, access in enumerate(op.reads):
            if all(access.step(loop) == 0 for loop in rows):
                continue
            across = [{**iteration, row: first.plus(i), self.along: column + LANES} for i in range(lanes)]
            turned = transpose(self.writer, [evaluator.read(op, number, at) for at in across])
            for i, value in enumerate(turned):
                evaluator.define_read(op, number, {**iteration, row: first + LANES, self.along: column.plus(i)}, value)
