"""Row schedule: the reductions of one row in order, each along vectors of its operand, with the elementwise ops around
them.

A short row of known length stays in registers. A longer row takes one pass per reduction, and expensive values that a
later pass needs are stored on the stack.

The softmax of a long row takes three passes over it:

    greatest = max of x[j]                            pass 1
    e[j] = exp(x[j] - greatest), total = sum of e[j]  pass 2: e is expensive and needed again, so it is stored
    y[j] = e[j] / total                               pass 3

Here e is stored in the memory of y, which overwrites each element after it was read (`kept_in_result`).

The steps of exp wait for one another, and a CPU with a short window of waiting instructions has few vectors under way.
There, the vectors of an iteration take each step together (`VectorUnit.rows_in_step`):

    one by one   x0 - m, clamp, fma, fma, ... x1 - m, clamp, fma, fma, ...
    in step      x0 - m, x1 - m, x2 - m, x3 - m, clamp, clamp, clamp, clamp, fma, ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ....dialect.dims import Size, bounds, static_size
from .evaluate import Evaluator, Iteration, Kept
from .folds import Fold, choose_fold
from .forms import LANES, constant, variable
from .reciprocals import with_reciprocals
from .schedule import ROW_BYTES
from .structure import Op
from .text import Value

IN_REGISTERS = 32
"""The number of vectors in the longest row that stays in registers."""
AT_ONCE = 4
"""The number of vectors per loop iteration."""
DEAR = 8
"""The least cost of a value that is stored rather than recomputed."""
COSTS: Mapping[str, int] = {"arith.divf": 8, "math.sqrt": 8, "arith.addf": 1, "arith.mulf": 1, "arith.subf": 1}
IN_STEP = frozenset({"math.exp", "math.exp2"})
"""The functions whose steps several vectors of a row take together."""
FEWEST_IN_STEP = 8
"""The number of vectors in the longest row that stays in registers where vectors take steps together."""


class RowWriter:
    """The writer of ops for one position of the `outer` classes."""

    def __init__(self, evaluator: Evaluator, outer: Collection[int], *, in_step: bool = False) -> None:
        self.evaluator, self.outer = evaluator, outer
        self.writer, self.stage = evaluator.writer, evaluator.stage
        self.in_step = in_step and any(n.kind in IN_STEP for op in self.stage.ops for n in op.body.walk())
        self.most = FEWEST_IN_STEP if self.in_step else IN_REGISTERS
        self.lanes = evaluator.writer.lanes
        self.pending: dict[int, Kept] = {}
        self.over: dict[int, Kept] = {}
        """The ops with rows that are stored in the memory of a result until the result is written."""

    def write(
        self, ops: Sequence[Op], sinks: Sequence[Op], iteration: Iteration, kept: Mapping[int, Kept] | None = None
    ) -> None:
        """Writes all reductions of a row in order, then the stores of the row."""
        kept = kept or {}
        before = dict(self.evaluator.kept)
        wanted = [op for op in ops if op in sinks or id(op) in kept]
        by_classes: dict[tuple[int, ...], list[Op]] = {}
        for op in wanted:
            by_classes.setdefault(tuple(self._inner(op)), []).append(op)
        spilled = self._dear(ops, by_classes)
        below = self._below(spilled.values(), wanted[0]) if len(wanted) == 1 and wanted[0] in sinks else None
        self.over = {} if below is None else {id(below): self._buffer_below(below, wanted[0], iteration)}
        for op in ops:
            if op.reduced:
                self._reduce(op, iteration, spilled)
        for classes, written in by_classes.items():
            self._store(classes, written, sinks, kept, iteration, spilled)
        self.evaluator.kept = before

    def _dear(self, ops: Sequence[Op], written: Mapping[tuple[int, ...], Sequence[Op]]) -> dict[int, Op]:
        """Returns the ops to keep between passes: expensive ones that more than one pass needs."""
        dear: dict[int, Op] = {}
        stored = {id(op) for group in written.values() for op in group}
        for op in ops:
            inner = self._inner(op)
            if op.reduced or len(inner) != 1 or self._in_registers(inner[0]) or cost(op) < DEAR:
                continue
            # The uses of the value: reads of other ops, and its own store.
            readers = sum(a.tensor.op is op for other in ops for a in other.reads) + (id(op) in stored)
            if readers > 1 and bounds(self.stage.sizes[inner[0]])[1] * 8 <= ROW_BYTES * 4:
                dear[id(op)] = op
        return dear

    def kept_in_result(self) -> Op | None:
        """Returns the op with a row that occupies the memory of the stage's only result until the result is written."""
        sinks = self.stage.sinks
        dear = self._dear(self.stage.ops, {tuple(self._inner(sink)): [sink] for sink in sinks})
        return self._below(dear.values(), sinks[0]) if len(sinks) == 1 else None

    def _below(self, dear: Iterable[Op], sink: Op) -> Op | None:
        """Returns an op whose values may occupy a result's memory until the result overwrites them, element by
        element."""
        for op in dear:
            (c,) = self._inner(op)
            loops = {self.stage.of(sink, i): i for i in sink.outer}
            same = sink.result.element == op.result.element
            if same and set(loops) == set(self.stage.parallel(op)) and sink.written.step(loops[c]) == 1:
                return op
        return None

    def _buffer_below(self, op: Op, sink: Op, iteration: Iteration) -> Kept:
        (c,) = self._inner(op)
        buffer, origin = self.evaluator.home(sink.written, sink, {**iteration, c: constant(0)})
        return Kept(buffer, {c: 1}, origin)

    def _in_registers(self, c: int) -> bool:
        size = self.stage.sizes[c]
        return isinstance(size, int) and c not in self.evaluator.spans and size <= self.most * self.lanes

    def chunks(self, c: int, iteration: Iteration, write: Callable[[Iteration, int], None]) -> None:
        """Calls `write(iteration, number)` for every vector of a class; `number` counts the vectors. Every vector
        begins at a multiple of its length, as spans do."""
        writer, lanes = self.writer, self.writer.lanes
        size = self.stage.sizes[c]
        if self._in_registers(c):
            assert isinstance(size, int)
            for number in range(-(-size // lanes)):
                left = size - number * lanes
                with writer.masked(writer.first_lanes(constant(left)) if left < lanes else None):
                    # A class of size 1 has one index everywhere.
                    write({**iteration, c: LANES.plus(number * lanes) if size > 1 else constant(0)}, number)
            return
        # Several vectors in each iteration, then single vectors, then the rest under a mask.
        span = self.evaluator.span(c)
        start = span.begin
        for step in (AT_ONCE * lanes, lanes):
            end = writer.rounded(start, span.end, step)
            with writer.loop(start, end, step) as index:
                writer.multiples[index] = lanes
                for number in range(step // lanes):
                    write({**iteration, c: variable(index).plus(number * lanes) + LANES}, number)
            start = end
        self._rest(start, span.end, size, lambda: write({**iteration, c: variable(start) + LANES}, 0))

    def _rest(self, start: str, end: str, size: Size, write: Callable[[], None]) -> None:
        """Writes the remaining lanes, if any, under a mask."""
        writer = self.writer
        if isinstance(size, int) and size % writer.lanes == 0:
            return
        left = writer.let(f"arith.subi {end}, {start} : index")
        writer.multiples[start] = writer.lanes
        some = writer.let(f"arith.cmpi ugt, {left}, {writer.size(0)} : index")
        with writer.when(some), writer.masked(writer.first_lanes(variable(left))):
            write()

    def _keeping(self, spilled: Mapping[int, Op]) -> Callable[[Iteration], None]:
        """Stores expensive values at their first computation; later passes read them from the stack."""
        fresh = [op for key, op in spilled.items() if key not in self.evaluator.kept]

        def keep(iteration: Iteration) -> None:
            for op in fresh:
                if self._has_loops(op, iteration) and self.evaluator.is_known(op, iteration):
                    self.pending[id(op)] = self._spill(op)
                    self.evaluator.keep(op, iteration, self.pending[id(op)])

        return keep

    def _has_loops(self, op: Op, iteration: Iteration) -> bool:
        return all(c in iteration or c in self.evaluator.single for c in self.stage.parallel(op))

    def _spill(self, op: Op) -> Kept:
        if id(op) in self.over:
            return self.over[id(op)]
        (c,) = self._inner(op)
        length = -(-bounds(self.stage.sizes[c])[1] // self.lanes) * self.lanes
        return Kept(self.evaluator.stack("row", op, length), {c: 1}, constant(0))

    def _settle(self) -> None:
        self.evaluator.kept |= self.pending
        self.pending = {}

    def reduce(self, op: Op, iteration: Iteration, over: Mapping[Op, Kept] | None = None) -> None:
        """Writes one reduction of a row. The values of the ops in `over` are stored there as they are computed."""
        over = over or {}
        self.over = {id(stored): kept for stored, kept in over.items()}
        self._reduce(op, iteration, {id(stored): stored for stored in over})

    def _reduce(self, op: Op, iteration: Iteration, spilled: Mapping[int, Op]) -> None:
        fold = choose_fold(self.writer, op)
        lane, middle = self._lane(op)
        keep = self._keeping(spilled)
        strands = [fold.first() for _ in range(AT_ONCE)]
        if not middle and self._in_registers(lane):
            # Vectors go to the strands in turn.
            def step(at: Iteration, number: int) -> None:
                strands[number % AT_ONCE] = self._step(fold, at, strands[number % AT_ONCE])
                keep(at)

            self.chunks(lane, iteration, step)
            count = -(-static_size(self.stage.sizes[lane]) // self.writer.lanes)
            # A strand without vectors would add its neutral element.
            strands = strands[: max(1, min(count, AT_ONCE))]
        else:
            in_step = not middle and self._is_in_step(op, lane)
            strands = self._over(middle, lane, fold, iteration, strands, keep, in_step=in_step)
        self._settle()
        self.evaluator.define(op, iteration, fold.finish(strands, self.evaluator.starting(op, iteration)))

    def _step(self, fold: Fold, at: Iteration, strand: Sequence[Value]) -> list[Value]:
        evaluator, op = self.evaluator, fold.op
        return fold.step(
            strand,
            lambda total: evaluator.accumulate(op, at, total),
            lambda: evaluator.body(op, at, root=fold.added),
        )

    def _lane(self, op: Op) -> tuple[int, list[int]]:
        """Returns the reduced class that lanes run over, and the others."""
        loops = [i for i in op.reduced if self.stage.sizes[self.stage.of(op, i)] != 1]
        if not loops:
            loops = list(op.reduced[-1:])
        near = [i for i in loops if any(a.tensor.view is not None and a.step(i) == 1 for a in op.reads)]
        lane = (near or loops)[-1]
        return self.stage.of(op, lane), [self.stage.of(op, i) for i in loops if i != lane]

    def _over(
        self,
        middle: Sequence[int],
        lane: int,
        fold: Fold,
        iteration: Iteration,
        strands: Sequence[Sequence[Value]],
        keep: Callable[[Iteration], None],
        *,
        in_step: bool = False,
    ) -> list[list[Value]]:
        """Writes loops over the other reduced classes, and over the lanes inside them. With `in_step`, which requires
        initial strands, the vectors of an iteration take each step together."""
        writer, width = self.writer, len(strands[0])

        def apart(values: Sequence[Value]) -> list[list[Value]]:
            return [list(values[i : i + width]) for i in range(0, len(values), width)]

        def together(parts: Sequence[Sequence[Value]]) -> list[Value]:
            return [value for part in parts for value in part]

        if middle:
            c, *rest = middle
            end = writer.size(self.stage.sizes[c])
            with writer.carrying(writer.size(0), end, 1, together(strands)) as loop:
                inside = {**iteration, c: variable(loop.index)}
                loop.after = together(self._over(rest, lane, fold, inside, apart(loop.values), keep))
            return apart(loop.results)
        lanes, size = writer.lanes, self.stage.sizes[lane]
        span = self.evaluator.span(lane)
        start, done = span.begin, [list(s) for s in strands]
        for step in (AT_ONCE * lanes, lanes):
            # The second loop, over single vectors, carries the first strand only.
            end, count = writer.rounded(start, span.end, step), step // lanes
            if in_step and count > 1:
                done = self._in_step(start, end, count, lane, fold, iteration, keep)
                start = end
                continue
            with writer.carrying(start, end, step, together(done[:count])) as loop:
                writer.multiples[loop.index] = lanes
                loop.after = []
                for number, strand in enumerate(apart(loop.values)):
                    at = {**iteration, lane: variable(loop.index).plus(number * lanes) + LANES}
                    loop.after += self._step(fold, at, strand)
                    keep(at)
            done[:count] = apart(loop.results)
            start = end
        if isinstance(size, int) and size % lanes == 0:
            return done
        left = writer.let(f"arith.subi {span.end}, {start} : index")
        writer.multiples[start] = lanes
        with writer.masked(writer.first_lanes(variable(left))):
            at = {**iteration, lane: variable(start) + LANES}
            done[0] = self._step(fold, at, done[0])
            keep(at)
        return done

    def _in_step(
        self,
        start: str,
        end: str,
        count: int,
        lane: int,
        fold: Fold,
        iteration: Iteration,
        keep: Callable[[Iteration], None],
    ) -> list[list[Value]]:
        """Writes a loop that computes `count` vectors in step in each iteration; returns their strands."""
        writer, lanes = self.writer, self.writer.lanes
        # Lanes of several registers: LLVM writes each operation for all of them before the next one.
        writer.lanes = count * lanes
        with writer.carrying(start, end, count * lanes, fold.first()) as loop:
            writer.multiples[loop.index] = lanes
            at = {**iteration, lane: variable(loop.index) + LANES}
            loop.after = self._step(fold, at, loop.values)
            keep(at)
        writer.lanes = lanes

        def part(value: Value, first: int) -> Value:
            bounds = f"{{offsets = [{first}], sizes = [{lanes}], strides = [1]}}"
            types = f"vector<{count * lanes}x{value.type}> to {writer.type(value)}"
            return value._replace(name=writer.let(f"vector.extract_strided_slice {value.name} {bounds} : {types}"))

        return [[part(value, number * lanes) for value in loop.results] for number in range(count)]

    def _is_in_step(self, op: Op, lane: int) -> bool:
        """Returns whether a pass computes a function of `IN_STEP`, and nothing but arithmetic on f32 beside it."""
        if not self.in_step:
            return False
        ops, waiting = [], [op]
        while waiting:
            ops.append(waiting.pop())
            made = [access.tensor.op for access in ops[-1].reads]
            waiting += [each for each in made if each is not None and self._is_computed(each)]
        nodes = [node for each in ops for node in each.body.walk()]
        simple = all(n.kind in ("start", "read", "constant") or n.kind.startswith(("arith.", "math.")) for n in nodes)
        types = {n.type for n in nodes} | {access.tensor.element for each in ops for access in each.reads}
        steps = {
            each.reads[number].step(loop)
            for each in ops
            for number in range(len(each.reads))
            for loop in range(len(each.loops))
            if self.stage.of(each, loop) == lane
        }
        return simple and types <= {"f32", "i1"} and steps <= {0, 1} and any(n.kind in IN_STEP for n in nodes)

    def _is_computed(self, op: Op) -> bool:
        """Returns whether a pass computes the elements of an op that it reads."""
        return op in self.stage.ops and not op.reduced and id(op) not in self.evaluator.kept

    def _store(
        self,
        classes: Sequence[int],
        ops: Sequence[Op],
        sinks: Sequence[Op],
        kept: Mapping[int, Kept],
        iteration: Iteration,
        spilled: Mapping[int, Op],
    ) -> None:
        """Stores the results of ops over the inner classes. At most one inner class has more than one index."""
        keep = self._keeping(spilled)

        def store(at: Iteration) -> None:
            for op in ops:
                if id(op) in kept:
                    self.evaluator.keep(op, at, kept[id(op)])
            self.evaluator.write([op for op in ops if op in sinks], [at])
            keep(at)

        large = [c for c in classes if self.stage.sizes[c] != 1]
        iteration = {**iteration, **{c: constant(0) for c in classes if c not in large}}
        if not large:
            store(iteration)
            return
        (lane,) = large  # ops with two classes beside the outer ones are in stages of their own

        def write() -> None:
            with self.writer.scope(indent=False):
                self.chunks(lane, iteration, lambda at, _: store(at))

        with_reciprocals(self.evaluator, ops, iteration, large, write)
        self._settle()

    def _inner(self, op: Op) -> list[int]:
        return [c for c in self.stage.parallel(op) if c not in self.outer]


def cost(op: Op) -> int:
    """Returns the rough cost of an element, in operations of a vector unit."""
    total = 0
    for node in op.body.walk():
        if node.operands:
            total += COSTS.get(node.kind, 12 if node.kind.startswith("math.") else 1)
    return total
