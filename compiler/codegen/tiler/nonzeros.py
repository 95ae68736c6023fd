"""Sums of products that leave out the steps at which the factor without lanes is 0, for a kernel that computes one row.

The kernel counts the steps with other factors. If they are few, it lists them, and each panel reads the rows of the
other factor at these steps alone, in their order. A sum then has the bits of the whole sum, except for the sign of a
zero. If they are many, the kernel sums all steps.

For y[j] = sum of x[k] * w[k, j] with x = 0 3 0 0 5 0 and panels p of w, which have 6 steps:

    listed      1 4   7 10                     behind the end, the first steps of the next panel, which adjoins
    panel p     reads w[p, 1], w[p, 4]         each read prefetches rows that stand later in the list

A block-quantized weight has two loops of steps. Steps are then numbered through all blocks, and `ends` holds the end of
the list of each block.
"""

from __future__ import annotations

from collections.abc import Callable

from ....dialect.dims import product, static_size
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import Prefetches
from ..isa import supports
from ..structured.body_nodes import Node
from ..structured.positions import Panel
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, constant, variable
from .order import Order
from .prefetch import LINE
from .structure import Access, Buffer, Op
from .text import Value, Writer, element_bytes

DISTANCES = Prefetches().distances
"""The prefetches of listed rows, which no hardware fetches."""
AHEAD = max(distance for distance, _ in DISTANCES)
MOST_STEPS = 1 << 15
"""The most steps of a sum that are listed, for the memory of the list."""
FEW, FEW_SHORT = (3, 4), (3, 8)
"""The greatest part of the steps that is listed; the second one is for rows shorter than two cache lines, which share
lines with other rows."""


@dataclass(frozen=True, slots=True)
class Nonzeros:
    """A list of steps, where the inner loop has `length` steps. `ends` holds the end of the list of each step of the
    outer loop; without an outer loop, `count` is the only end."""

    steps: Buffer
    ends: Buffer | None
    count: str
    length: int

    def span(self, writer: Writer, outer: Form) -> tuple[str, str]:
        """Returns the range of the list that belongs to a step of the outer loop."""
        if self.ends is None:
            return writer.size(0), self.count
        return _load(writer, self.ends, outer), _load(writer, self.ends, outer.plus(1))

    def step(self, writer: Writer, number: Form, outer: Form) -> Form:
        """Returns the step of the inner loop at a position of the list."""
        return variable(_load(writer, self.steps, number)) + outer.times(-self.length)


class SparseSum:
    """The writer of an op's list of steps. `factors` are those without lanes, one for each product of a step."""

    def __init__(self, evaluator: Evaluator, op: Op, factors: list[Node], width: int) -> None:
        self.evaluator, self.writer, self.op, self.factors, self.width = evaluator, evaluator.writer, op, factors, width
        stage = evaluator.stage
        *self.blocks, self.length = (static_size(op.loops[i]) for i in op.reduced)
        self.total = static_size(product(op.loops[i] for i in op.reduced))
        self.classes = [stage.of(op, i) for i in op.reduced]
        self.at: Iteration = dict.fromkeys(stage.parallel(op), constant(0))
        self.row = max((_row_bytes(access, width) for access in _panels(op)), default=LINE)

    def are_few(self) -> str:
        """Returns whether few steps have factors other than 0."""
        writer = self.writer
        part, whole = FEW if self.row >= 2 * LINE else FEW_SHORT
        vector, none = writer.vector_type("i32"), writer.constant("0", "i32")

        def count(at: Iteration, totals: list[Value]) -> list[Value]:
            def lanes(step: Form, totals: list[Value]) -> list[Value]:
                mask = self._some({**at, self.classes[-1]: step + LANES})
                one = writer.let(f"arith.extui {mask.name} : {writer.vector_type('i1')} to {vector}")
                return [Value(writer.let(f"arith.addi {totals[0].name}, {one} : {vector}"), "i32", True), totals[1]]

            def single(step: Form, totals: list[Value]) -> list[Value]:
                some = self._some({**at, self.classes[-1]: step})
                one = writer.let(f"arith.extui {some.name} : i1 to i32")
                return [totals[0], Value(writer.let(f"arith.addi {totals[1].name}, {one} : i32"), "i32")]

            return self._each_step(totals, lanes, single)

        lanes, rest = self._each_block([writer.broadcast(none), none], lambda at, _, totals: count(at, totals))
        found = writer.let(f"vector.reduction <add>, {lanes.name}, {rest.name} : {vector} into i32")
        most = writer.constant(str(self.total * part // whole), "i32")
        return writer.let(f"arith.cmpi ule, {found}, {most.name} : i32")

    def list_steps(self) -> Nonzeros:
        """Writes the list."""
        writer, padding = self.writer, AHEAD // self.row + 1
        behind = max(padding, writer.lanes)
        steps = self.evaluator.stack("steps", self.op, self.total + behind, "i32")
        ends = self.evaluator.stack("ends", self.op, self.blocks[0] + 1, "i32") if self.blocks else None

        def add_block(at: Iteration, first: Form, counts: list[Value]) -> list[Value]:
            def lanes(step: Form, counts: list[Value]) -> list[Value]:
                mask = self._some({**at, self.classes[-1]: step + LANES})
                numbers = writer.broadcast(Value("", "i32", form=first + step + LANES))
                return [self._add(counts[0], writer.compress(steps, variable(counts[0].name), mask.name, numbers))]

            def single(step: Form, counts: list[Value]) -> list[Value]:
                # The next step overwrites this one if its factors are 0.
                _store(writer, steps, variable(counts[0].name), first + step)
                some = self._some({**at, self.classes[-1]: step})
                return [self._add(counts[0], writer.let(f"arith.extui {some.name} : i1 to i32"))]

            counts = self._each_step(counts, lanes if supports("compress", writer.features) else None, single)
            if ends is not None:
                _store(writer, ends, at[self.classes[0]].plus(1), variable(counts[0].name))
            return counts

        if ends is not None:
            _store(writer, ends, constant(0), constant(0))
        (count,) = self._each_block([Value(writer.size(0), "index")], add_block)
        with writer.loop(writer.size(0), writer.size(padding), 1) as number:
            again = variable(_load(writer, steps, variable(number)))
            _store(writer, steps, variable(count.name) + variable(number), again.plus(self.total))
        return Nonzeros(steps, ends, count.name, self.length)

    def _add(self, count: Value, more: str) -> Value:
        more = self.writer.let(f"arith.index_cast {more} : i32 to index")
        return Value(self.writer.let(f"arith.addi {count.name}, {more} : index"), "index")

    def _some(self, at: Iteration) -> Value:
        """Returns whether a factor is not 0; a NaN is not."""
        writer, found = self.writer, []
        for factor in self.factors:
            value = self.evaluator.body(self.op, at, root=factor)
            zero = writer.constant("0.0", value.type)
            found.append(writer.apply("arith.cmpf", "predicate = 13 : i64", [value, zero], "i1"))
        while len(found) > 1:
            found[:2] = [writer.apply("arith.ori", "", found[:2], "i1")]
        return found[0]

    def _each_block(
        self, carried: list[Value], write: Callable[[Iteration, Form, list[Value]], list[Value]]
    ) -> list[Value]:
        """Writes the loop over blocks; `write` receives the position and the number of the first step."""
        if not self.blocks:
            return write(self.at, constant(0), carried)
        with self.writer.carrying(self.writer.size(0), self.writer.size(self.blocks[0]), 1, carried) as loop:
            block = variable(loop.index)
            loop.after = write({**self.at, self.classes[0]: block}, block.times(self.length), loop.values)
        return loop.results

    def _each_step(
        self,
        carried: list[Value],
        lanes: Callable[[Form, list[Value]], list[Value]] | None,
        single: Callable[[Form, list[Value]], list[Value]],
    ) -> list[Value]:
        """Writes the loops over the steps of a block: whole vectors of steps, if `lanes` writes them, and the rest."""
        writer = self.writer
        whole = 0 if lanes is None else self.length // writer.lanes * writer.lanes
        for begin, end, step, write in ((0, whole, writer.lanes, lanes), (whole, self.length, 1, single)):
            if write is not None and begin != end:
                with writer.carrying(writer.size(begin), writer.size(end), step, carried) as loop:
                    loop.after = write(variable(loop.index), loop.values)
                carried = loop.results
        return carried


def find_sparse_sum(evaluator: Evaluator, op: Op, order: Order) -> SparseSum | None:
    """Returns the writer of the list, if the work items of an op compute one row of a sparse sum."""
    roles, stage = order.roles, evaluator.stage
    sizes = [op.loops[i] for i in op.reduced]
    one_row = all(count == 1 for c, count in zip(order.classes, order.counts, strict=True) if c != roles.lane)
    one_row &= roles.row is None or stage.sizes[roles.row] == 1
    if not op.is_sparse or not one_row or roles.windowed or evaluator.spans or len(sizes) > 2:
        return None
    factors, steps = _factors(evaluator, op, roles.lane), product(sizes)
    if not factors or not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
        return None
    return SparseSum(evaluator, op, factors, roles.step)


def _factors(evaluator: Evaluator, op: Op, lane: int) -> list[Node]:
    """Returns the factors without lanes of a sum of products of floats; none if a product has not one of them."""
    products = [] if op.product is None else [op.product]
    if op.scaled is not None and op.scaled.quantized is None:
        products = list(op.scaled.products)
    found = [[f for f in p if all(evaluator.stage.of(op, i) != lane for i in op.loops_of(f))] for p in products]
    return [each[0] for each in found] if all(len(each) == 1 for each in found) else []


def prefetch_rows(evaluator: Evaluator, op: Op, nonzeros: Nonzeros, number: Form, iteration: Iteration) -> None:
    """Prefetches the rows of panels that later positions of the list name."""
    writer, stage = evaluator.writer, evaluator.stage
    step = op.reduced[-1]
    outer = constant(0) if len(op.reduced) == 1 else iteration[stage.of(op, op.reduced[0])]
    for access in _panels(op):
        if step not in access.loops():
            continue
        width = next(p.width for p in access.index if isinstance(p, Panel))
        bytes, element = _row_bytes(access, width), element_bytes(access.tensor.element)
        for distance, level in DISTANCES:
            later = nonzeros.step(writer, number.plus(max(1, distance // bytes)), outer)
            buffer, form = evaluator.home(access, op, {**iteration, stage.of(op, step): later})
            for start in range(0, bytes, LINE):
                writer.prefetch(buffer, form.base.plus(start // element), level=level)


def _panels(op: Op) -> list[Access]:
    return [a for a in op.reads if any(isinstance(p, Panel) for p in a.index)]


def _row_bytes(access: Access, width: int) -> int:
    return element_bytes(access.tensor.element) * width


def _load(writer: Writer, buffer: Buffer, at: Form) -> str:
    return writer.let(f"arith.index_cast {writer.load(buffer, at).name} : {buffer.element} to index")


def _store(writer: Writer, buffer: Buffer, at: Form, value: Form) -> None:
    writer.store(buffer, at, Value("", buffer.element, form=value))
