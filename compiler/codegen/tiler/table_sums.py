"""Sums of elements of tables, in the order of the terms: trees whose leaves are found by comparing short integers.

The body of a term has a narrow part, on short integers that are contiguous along the rows, and a part that loads
elements at places that differ between rows. The narrow part is vectors with the rows in lanes; the rest is written row
by row, as scalars that a vector collects:

    place = (x[c0] < b0) ? ((x[c1] < b1) ? 0 : 1) : ...     one vector of 32 rows in i8
    total = total + values[first + place]                   32 places, 32 loads, one addition of vectors

A work item is BLOCKS blocks of rows. Terms are taken in runs whose tables fit in the first cache; the totals of a run
are carried in registers, and rest in the result between the runs. Every row adds its terms in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....dialect.dims import Size
from ...targets.vector_unit import VectorUnit
from .evaluate import Evaluator, Place
from .forms import LANES, Form, variable
from .nest import blocks, units
from .schedule import Stage
from .structure import Node, extract_step
from .text import Value, element_bytes

BLOCKS = 32
"""The blocks of rows of a work item."""
MOST_LANES = 32
TOGETHER = 16
"""The rows whose loads take turns."""
NARROW = {"i1": 8, "i8": 8, "i16": 16}
"""The types of the narrow part, with their bits in vectors."""


def is_table_sum(stage: Stage) -> bool:
    """Returns whether the stage is one sum of elements at computed places, for blocks of rows of a known size."""
    if len(stage.ops) != 1 or stage.around:
        return False
    (op,) = stage.ops
    combination = op.combination
    if len(op.reduced) != 1 or len(op.outer) != 3 or combination is None or combination[0] != "arith.addf":
        return False
    lane = op.outer[-1]
    rows, start = op.loops[lane], op.start
    if op.written.step(lane) != 1 or not isinstance(rows, int) or rows % MOST_LANES or start is None:
        return False
    return start.splat is not None and _scatters(combination[1], lane)


def _scatters(node: Node, lane: int) -> bool:
    return node.kind == "extract" and extract_step(node, lane) is None


class TableSumStage:
    """The writer of a stage that is a sum of elements of tables."""

    def __init__(self, evaluator: Evaluator, unit: VectorUnit) -> None:
        self.evaluator, self.writer, self.stage = evaluator, evaluator.writer, evaluator.stage
        (self.op,) = self.stage.ops
        self.block, self.group, self.lane = self.stage.parallel(self.op)
        (self.term,) = self.stage.reduced(self.op)
        assert self.op.combination is not None, self.op.location
        self.kind, self.addend = self.op.combination
        self.nodes, lane = tuple(self._order_nodes()), self._loop(self.lane)
        self.varying = self._dependents(lambda node: node.kind == "index" and node.number == lane)
        """The nodes that differ between rows."""
        self.scattered = self._dependents(lambda node: _scatters(node, lane))
        """The nodes that depend on elements at places that differ between rows."""
        self.loads = [node for node in self.nodes if _scatters(node, lane)]
        narrow = [NARROW[n.type] for n in self.nodes if n.type in NARROW and id(n) not in self.scattered]
        self.writer.lanes = min(unit.lanes(max(narrow, default=8)), MOST_LANES)
        self.run = self._count_terms(unit.caches.first // 2)

    def _loop(self, c: int) -> int:
        return next(i for i in range(len(self.op.loops)) if self.stage.of(self.op, i) == c)

    def _order_nodes(self) -> Iterator[Node]:
        """Yields the nodes of the addend, operands first."""
        seen: set[int] = set()

        def visit(node: Node) -> Iterator[Node]:
            if id(node) not in seen:
                seen.add(id(node))
                for operand in node.operands:
                    yield from visit(operand)
                yield node

        return visit(self.addend)

    def _dependents(self, is_source: Callable[[Node], bool]) -> set[int]:
        """Returns the nodes that are sources, or depend on one."""
        found: set[int] = set()
        for node in self.nodes:
            if is_source(node) or any(id(operand) in found for operand in node.operands):
                found.add(id(node))
        return found

    def _count_terms(self, bytes: int) -> int:
        """Returns the terms of a run: the tables of a run are about as large as `bytes`."""
        block, terms = self._loop(self.block), self.stage.sizes[self.term]
        tables = {
            id(n.tensor): n.tensor for n in self.nodes if n.tensor is not None and extract_step(n, block) in (0, None)
        }
        total = 0
        for tensor in tables.values():
            elements: Size = element_bytes(tensor.element)
            for size in tensor.shape:
                elements = elements * size
            total += elements if isinstance(elements, int) else 0
        return max(1, bytes * terms // max(total, 1)) if isinstance(terms, int) else 1

    def counts(self) -> list[Size]:
        return [blocks(self.stage.sizes[self.block], BLOCKS), self.stage.sizes[self.group]]

    def write(self, begin: str, end: str) -> None:
        writer, stage = self.writer, self.stage
        zero, terms = writer.size(0), writer.size(stage.sizes[self.term])
        with units(writer, self.counts(), begin, end) as (chunk, group):
            first = writer.index(chunk.times(BLOCKS))
            past = writer.let(f"arith.addi {first}, {writer.size(BLOCKS)} : index")
            last = writer.let(f"arith.minui {past}, {writer.size(stage.sizes[self.block])} : index")
            start = writer.broadcast(self.evaluator.starting(self.op, {}))
            with writer.loop(first, last, 1) as block:
                for lane in self._lanes():
                    self._store({self.block: variable(block), self.group: group, self.lane: lane}, start)
            with writer.loop(zero, terms, self.run) as term:
                after = writer.let(f"arith.addi {term}, {writer.size(self.run)} : index")
                end_of_run = writer.let(f"arith.minui {after}, {terms} : index")
                with writer.loop(first, last, 1) as block:
                    for lane in self._lanes():
                        place = {self.block: variable(block), self.group: group, self.lane: lane}
                        self._add_terms(place, term, end_of_run)

    def _lanes(self) -> list[Form]:
        rows = self.stage.sizes[self.lane]
        assert isinstance(rows, int), rows
        return [LANES.plus(start) for start in range(0, rows, self.writer.lanes)]

    def _store(self, place: Place, value: Value) -> None:
        with self.writer.at(self.op.location):
            self.writer.store(*self.evaluator.home(self.op.written, self.op, place), value)

    def _add_terms(self, place: Place, first: str, end: str) -> None:
        writer = self.writer
        with writer.scope(indent=False):
            total = writer.load(*self.evaluator.home(self.op.written, self.op, place))
            with writer.carrying(first, end, 1, [total]) as loop:
                added = self._addend({**place, self.term: variable(loop.index)})
                loop.after.append(writer.apply(self.kind, "", [loop.values[0], added], total.type))
            self._store(place, loop.results[0])

    def _addend(self, place: Place) -> Value:
        """Returns the vector of one term."""
        writer = self.writer
        narrow: dict[int, Value] = {}

        def evaluate(node: Node) -> Value:
            if id(node) not in narrow:
                narrow[id(node)] = self.evaluator.node(self.op, node, place, evaluate, None)
            return narrow[id(node)]

        with writer.at(self.op.body.location):
            rows = [_Row(self, number, place, evaluate) for number in range(writer.lanes)]
            for start in range(0, len(rows), TOGETHER):
                # The loads of a row wait for one another, and those of other rows fill the time.
                for node in self.loads:
                    for row in rows[start : start + TOGETHER]:
                        row.evaluate(node)
            element = self.op.result.element
            names = ", ".join(writer.scalar(row.evaluate(self.addend)).name for row in rows)
            return Value(writer.let(f"vector.from_elements {names} : {writer.vector_type(element)}"), element, True)


class _Row:
    """The values of a term for one row, as scalars."""

    def __init__(self, sums: TableSumStage, number: int, place: Place, shared: Callable[[Node], Value]) -> None:
        self.sums, self.number, self.shared = sums, number, shared
        self.place = {**place, sums.lane: place[sums.lane].base.plus(number)}
        self.known: dict[int, Value] = {}

    def evaluate(self, node: Node) -> Value:
        """Returns a value; values of the narrow part come from its vectors."""
        if id(node) not in self.sums.varying:
            return self.shared(node)
        if id(node) not in self.known:
            is_narrow = node.type in NARROW and node.kind != "index" and id(node) not in self.sums.scattered
            self.known[id(node)] = (
                self._extract(self.shared(node))
                if is_narrow
                else self.sums.evaluator.node(self.sums.op, node, self.place, self.evaluate, None)
            )
        return self.known[id(node)]

    def _extract(self, value: Value) -> Value:
        writer = self.sums.writer
        vector = writer.broadcast(value)
        name = writer.let(f"vector.extract {vector.name}[{self.number}] : {value.type} from {writer.type(vector)}")
        return Value(name, value.type)
