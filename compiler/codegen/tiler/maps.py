"""Parallel maps: independent elements, in vectors along the memory of the result.

Where an operand is contiguous along another class, square blocks with as many rows as lanes are transposed in
registers.

For y[i, j] = x[j, i] with 4 lanes, lanes run along j, the memory of y; `across` is i, the memory of x:

    x[j + 0, i .. i+3]   a b c d            a e i m   y[i + 0, j .. j+3]
    x[j + 1, i .. i+3]   e f g h     ->     b f j n   y[i + 1, j .. j+3]
    x[j + 2, i .. i+3]   i j k l            c g k o   y[i + 2, j .. j+3]
    x[j + 3, i .. i+3]   m n o p            d h l p   y[i + 3, j .. j+3]

A work item is CHUNK vectors along the lanes, for one position of the other classes, or for one block of `across`.

Where the memory of the result has a few elements only, vectors run along the class around them and are interleaved; or
copies are made element by element, if the class around them lies further apart. See `few.py`.

Where elements of an operand are read at computed indices that some class does not change, such as the columns of
`y[i, j] = x[i, index[j]]`, ROWS positions of that class are written together: LLVM then computes each index once for
all of them. Copies are made element by element, since loads of elements that lie apart cost less than a gather and the
indices of a vector. They fetch the rows of the next block meanwhile, whose computed order no hardware follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....dialect.dims import Size, static_size
from ..elementary.find import find_elementary
from .evaluate import Evaluator, Iteration
from .few import find_around, is_copy, write_interleaved
from .forms import LANES, Form, constant, variable
from .nest import blocks, work_items
from .prefetch import LINE
from .structure import Access, Buffer, Op
from .text import Value, Writer, element_bytes

CHUNK = 64
"""The number of vectors per work item along the lanes."""
AT_ONCE = 4
ROWS = 4
"""The number of rows that share their computed indices."""
CHAINS = frozenset(
    f"math.{name}" for name in ("log", "log2", "log10", "log1p", "erf", "sinh", "asinh", "acosh", "atanh")
)
"""The functions with a chain of steps that is longer than the window of waiting instructions of any CPU. Several
vectors that take each step together hide its latency."""


class MapStage:
    """The writer of a stage without reductions."""

    def __init__(self, evaluator: Evaluator, *, in_step: int = 1, every_chain: bool = False) -> None:
        self.evaluator = evaluator
        self.writer, self.stage = evaluator.writer, evaluator.stage
        self.last = self.stage.sinks[-1]
        around = self.stage.around
        self.order = [c for c in self.stage.loops(self.last) if self.stage.sizes[c] != 1 and c not in around]
        self.lane = self._choose_lane()
        self.few = find_around(self.stage, self.lane, self.writer.lanes)
        if self.few is not None:
            self.lane = self.few.around
        self.across = None if self.few is not None else self._choose_across()
        self.height = self._choose_height()
        inner = (self.lane, self.across, None if self.few is None else self.few.lane)
        self.outer = [*around, *(c for c in self.order if c not in inner)]
        self.shared = self._choose_shared()
        self.in_step = in_step if in_step > 1 and self._is_chain(every_chain) else 1

    def _accesses(self) -> list[tuple[Op, Access]]:
        own = self.stage.ops
        found = [(op, a) for op in own for a in op.reads if not self.stage.holds(a.tensor)]
        return found + [(op, op.written) for op in self.stage.sinks]

    def _step(self, op: Op, access: Access, c: int) -> Size | None:
        loops = [i for i in range(len(op.loops)) if self.stage.of(op, i) == c]
        return access.step(loops[0]) if loops else 0

    def _choose_lane(self) -> int | None:
        for c in reversed(self.order):
            if self._step(self.last, self.last.written, c) == 1:
                return c
        return self.order[-1] if self.order else None

    def _choose_across(self) -> int | None:
        """Finds an operand that is not contiguous along the lanes, and returns the class along which it is
        contiguous."""
        if self.lane is None:
            return None
        for op, access in self._accesses():
            if self._step(op, access, self.lane) not in (0, 1, None):
                for c in self.order:
                    if c != self.lane and self._step(op, access, c) == 1:
                        return c
        return None

    def _choose_height(self) -> int:
        """Returns the rows of a block of squares. Squares below each other read whole cache lines. Rows whose distance
        is a power of two map to few cache sets, where half a line would not stay until the next block."""
        lanes, size = self.writer.lanes, None if self.across is None else self.stage.sizes[self.across]
        line = LINE // element_bytes(self.last.result.element)
        return max(lanes, line) if isinstance(size, int) and size % line == 0 else lanes

    def _choose_shared(self) -> int | None:
        """Finds a class that changes no index of the lanes, where they read elements at indices from memory."""
        if self.lane is None or self.across is not None or self.few is not None or self._is_narrow():
            return None
        extracts = [(op, node) for op in self.stage.ops for node in op.body.walk() if node.kind == "extract"]
        indices = [(op, index) for op, node in extracts for index in node.operands]
        if not any(self.lane in self._classes(op, op.loops_read(index)) for op, index in indices):
            return None
        found = [self._classes(op, op.loops_of(index)) for op, index in indices]
        changing = set[int]().union(*(classes for classes in found if self.lane in classes), self.stage.around)
        for c in reversed(self.outer):
            size = self.stage.sizes[c]
            if c not in changing and not (isinstance(size, int) and size < ROWS):
                return c
        return None

    def _classes(self, op: Op, loops: Iterable[int]) -> set[int]:
        return {self.stage.of(op, loop) for loop in loops}

    def _is_chain(self, every: bool) -> bool:
        """Returns whether most of the time is the latency of arithmetic on f32, with a function of `CHAINS` in it, or
        with `every` elementary function."""
        nodes = [n for op in self.stage.ops for n in op.body.walk()]
        elements = {op.result.element for op in self.stage.ops} | {a.tensor.element for _, a in self._accesses()}
        steps = {self._step(op, a, self.lane) for op, a in self._accesses()} if self.lane is not None else {None}
        simple = all(n.kind in ("read", "constant") or n.kind.startswith(("arith.", "math.")) for n in nodes)
        features = self.writer.features
        chains = any(n.kind in CHAINS or (every and find_elementary(n.kind, n.type, features)) for n in nodes)
        return chains and simple and steps <= {0, 1} and elements | {n.type for n in nodes} <= {"f32", "i1"}

    def counts(self) -> list[Size]:
        counts = [blocks(self.stage.sizes[c], ROWS if c == self.shared else 1) for c in self.outer]
        if self.across is not None:
            counts.append(blocks(self.stage.sizes[self.across], self.height))
        if self.lane is not None:
            counts.append(blocks(self.stage.sizes[self.lane], CHUNK * self.writer.lanes))
        return counts

    def write(self, begin: str, end: str) -> None:
        writer = self.writer
        with work_items(writer, self.counts(), begin, end) as numbers:
            iteration = dict(zip(self.outer, numbers, strict=False))
            if self.lane is None:
                self._store([iteration])
                return
            chunk = CHUNK * writer.lanes
            first = writer.index(numbers[-1].times(chunk))
            last = self._end(first, self.stage.sizes[self.lane], chunk)
            if self.few is not None:
                write_interleaved(self.evaluator, self.few, iteration, first, last)
            elif self.across is None and self._is_narrow():
                lane, size = self.lane, self.stage.sizes[self.lane]
                self._store([{**iteration, lane: constant(i)} for i in range(static_size(size))])
            elif self.shared is not None:
                self._together(iteration, self.shared, first, last)
            elif self.across is None:
                self._along([iteration], first, last)
            else:
                row = writer.index(numbers[-2].times(self.height))
                self._turned(iteration, row, self._end(row, self.stage.sizes[self.across], self.height), first, last)

    def _is_narrow(self) -> bool:
        """Returns whether the lanes of copies would be a small part of a vector."""
        assert self.lane is not None
        size = self.stage.sizes[self.lane]
        return isinstance(size, int) and 2 * size <= self.writer.lanes and all(map(is_copy, self.stage.ops))

    def _end(self, start: str, size: Size, step: int) -> str:
        writer = self.writer
        past = writer.let(f"arith.addi {start}, {writer.size(step)} : index")
        return writer.let(f"arith.minui {past}, {writer.size(size)} : index")

    def _store(self, iterations: Sequence[Iteration]) -> None:
        self.evaluator.write(self.stage.sinks, iterations)

    def _together(self, iteration: Iteration, c: int, first: str, last: str) -> None:
        """Writes a block of ROWS positions of a class together, or its rest one by one."""
        writer, size = self.writer, self.stage.sizes[c]
        row = writer.index(iteration[c].times(ROWS))
        block = [{**iteration, c: variable(row).plus(i)} for i in range(ROWS)]
        if isinstance(size, int) and size % ROWS == 0:
            self._along(block, first, last)
            return
        end = self._end(row, size, ROWS)
        height = writer.let(f"arith.subi {end}, {row} : index")
        whole = writer.let(f"arith.cmpi eq, {height}, {writer.size(ROWS)} : index")
        with writer.when(whole):
            self._along(block, first, last)
        rest = writer.let(f"arith.select {whole}, {end}, {row} : index")
        with writer.loop(rest, end, 1) as single:
            self._along([{**iteration, c: variable(single)}], first, last)

    def _along(self, rows: Sequence[Iteration], first: str, last: str) -> None:
        """Writes the lanes from `first` to `last` of some rows."""
        assert self.lane is not None
        writer, lanes, lane = self.writer, self.writer.lanes, self.lane
        if len(rows) > 1 and all(map(is_copy, self.stage.ops)):
            with writer.loop(first, last, 1) as index:
                self._prefetch_next(rows[0], index)
                self._store([{**row, lane: variable(index)} for row in rows])
            return
        start = first
        for step in (AT_ONCE * lanes, lanes) if len(rows) == 1 else (lanes,):
            end = writer.rounded(start, last, step)
            with writer.loop(start, end, step) as index:
                # Lanes of several registers: LLVM writes each operation for all of them before the next one.
                writer.lanes = min(step, self.in_step * lanes)
                vectors = range(0, step, writer.lanes)
                columns = [variable(index).plus(offset) + LANES for offset in vectors]
                self._store([{**row, lane: column} for row in rows for column in columns])
                writer.lanes = lanes
            start = end
        size = self.stage.sizes[lane]
        if isinstance(size, int) and size % lanes == 0:
            return
        left = writer.let(f"arith.subi {last}, {start} : index")
        some = writer.let(f"arith.cmpi ugt, {left}, {writer.size(0)} : index")
        with writer.when(some), writer.masked(writer.first_lanes(variable(left))):
            self._store([{**row, lane: variable(start) + LANES} for row in rows])

    def _prefetch_next(self, row: Iteration, index: str) -> None:
        """Prefetches a part of the rows that the next block reads at computed indices. Each position of this block
        fetches the same number of elements, a line at most, so that the whole block fetches all of them."""
        assert self.lane is not None
        size = self.stage.sizes[self.lane]
        for buffer, first, step in self._rows_read(row):
            if not isinstance(size, int) or not isinstance(step, int):
                continue
            part = ROWS * step // max(size, 1)
            if 0 < part * element_bytes(buffer.element) <= LINE:
                self.writer.prefetch(buffer, first.plus(ROWS * step) + variable(index).times(part))

    def _rows_read(self, row: Iteration) -> Iterable[tuple[Buffer, Form, Size]]:
        """Yields the memory, the beginning and the distance of the rows that are read at computed indices."""
        for op in self.stage.ops:
            for node in op.body.walk():
                if node.kind != "extract" or node.tensor is None or node.tensor.view is None:
                    continue
                view, step = node.tensor.view, None
                first = constant(view.offset)
                for position, stride in zip(node.operands, view.strides, strict=True):
                    while position.kind == "arith.index_cast":
                        (position,) = position.operands
                    c = self.stage.of(op, position.number) if position.kind == "index" else None
                    if c is not None and c in row:
                        first = first + row[c].times(stride)
                        step = stride if c == self.shared else step
                if step is not None:
                    yield view.buffer, first, step

    def _turned(self, iteration: Iteration, row: str, row_end: str, first: str, last: str) -> None:
        """Writes a block of rows: whole squares are transposed, the rest is gathered."""
        assert self.lane is not None and self.across is not None
        writer, lanes, lane, across = self.writer, self.writer.lanes, self.lane, self.across
        height = writer.let(f"arith.subi {row_end}, {row} : index")
        whole_rows = writer.let(f"arith.cmpi eq, {height}, {writer.size(self.height)} : index")
        end = writer.let(f"arith.select {whole_rows}, {writer.rounded(first, last, lanes)}, {first} : index")
        with writer.loop(first, end, lanes) as column:
            for below in range(0, self.height, lanes):
                self._square(iteration, variable(row).plus(below), variable(column))
        with writer.loop(row, row_end, 1) as single:
            at = {**iteration, across: variable(single)}
            with writer.loop(end, last, lanes) as column:
                rest = writer.let(f"arith.subi {last}, {column} : index")
                with writer.masked(writer.first_lanes(variable(rest))):
                    self._store([{**at, lane: variable(column) + LANES}])

    def _square(self, iteration: Iteration, row: Form, column: Form) -> None:
        assert self.lane is not None and self.across is not None
        evaluator, lanes = self.evaluator, self.writer.lanes
        for op in self.stage.ops:
            for number, access in enumerate(op.reads):
                if self.stage.holds(access.tensor) or self._step(op, access, self.lane) in (0, 1):
                    continue
                if self._step(op, access, self.across) != 1:
                    continue
                across = [{**iteration, self.lane: column.plus(i), self.across: row + LANES} for i in range(lanes)]
                turned = transpose(self.writer, [evaluator.read(op, number, at) for at in across])
                for i, value in enumerate(turned):
                    at = {**iteration, self.lane: column + LANES, self.across: row.plus(i)}
                    evaluator.define_read(op, number, at, value)
        for i in range(lanes):
            self._store([{**iteration, self.lane: column + LANES, self.across: row.plus(i)}])


def transpose(writer: Writer, rows: list[Value]) -> list[Value]:
    """Transposes as many vectors as they have lanes: in each round, pairs exchange halves of blocks."""
    lanes, values, step = len(rows), list(rows), 1
    while step < lanes:
        for i in range(lanes):
            if i & step:
                continue
            left, right = values[i], values[i | step]
            low = [k if not k & step else lanes + (k ^ step) for k in range(lanes)]
            high = [(k | step) if not k & step else lanes + k for k in range(lanes)]
            values[i], values[i | step] = writer.shuffle(left, right, low), writer.shuffle(left, right, high)
        step *= 2
    return values
