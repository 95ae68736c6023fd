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

from ....dialect.dims import Size
from ...targets.vector_unit import VectorUnit
from .evaluate import Evaluator, Place
from .forms import LANES, Form, variable
from .nest import blocks, units
from .schedule import Stage
from .structure import Node, extract_step
from .text import Value, element_bytes

BLOCKS = 8
"""The blocks of rows of a work item."""
MOST_LANES = 32
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
        self.scattered = self._find_scattered()
        narrow = [NARROW[n.type] for n in self.addend.walk() if n.type in NARROW and id(n) not in self.scattered]
        self.writer.lanes = min(unit.lanes(max(narrow, default=8)), MOST_LANES)
        self.run = self._count_terms(unit.caches.first // 2)

    def _loop(self, c: int) -> int:
        return next(i for i in range(len(self.op.loops)) if self.stage.of(self.op, i) == c)

    def _find_scattered(self) -> set[int]:
        """Returns the nodes that depend on elements at places that differ between rows."""
        lane, found, seen = self._loop(self.lane), set[int](), set[int]()

        def visit(node: Node) -> None:
            if id(node) in seen:
                return
            seen.add(id(node))
            for operand in node.operands:
                visit(operand)
            if _scatters(node, lane) or any(id(o) in found for o in node.operands):
                found.add(id(node))

        visit(self.addend)
        return found

    def _varies(self, node: Node) -> bool:
        lane = self._loop(self.lane)
        return any(n.kind == "index" and n.number == lane for n in node.walk())

    def _count_terms(self, bytes: int) -> int:
        """Returns the terms of a run: the tables of a run are about as large as `bytes`."""
        block, terms = self._loop(self.block), self.stage.sizes[self.term]
        tables = {
            id(n.tensor): n.tensor
            for n in self.addend.walk()
            if n.tensor is not None and not any(m.kind == "index" and m.number == block for m in n.walk())
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
        shared: dict[int, Value] = {}
        varying: dict[int, bool] = {}

        def varies(node: Node) -> bool:
            if id(node) not in varying:
                varying[id(node)] = self._varies(node)
            return varying[id(node)]

        def evaluate(node: Node) -> Value:
            if id(node) not in shared:
                shared[id(node)] = self.evaluator.node(self.op, node, place, evaluate, None)
            return shared[id(node)]

        def row(number: int) -> Value:
            own: dict[int, Value] = {}
            at = {**place, self.lane: place[self.lane].base.plus(number)}

            def scalar(node: Node) -> Value:
                if not varies(node):
                    return evaluate(node)
                if id(node) not in own:
                    if node.type in NARROW and id(node) not in self.scattered and node.kind != "index":
                        own[id(node)] = self._extract(evaluate(node), number)
                    else:
                        own[id(node)] = self.evaluator.node(self.op, node, at, scalar, None)
                return own[id(node)]

            return writer.scalar(scalar(self.addend))

        with writer.at(self.op.body.location):
            values = [row(number) for number in range(writer.lanes)]
            element = self.op.result.element
            names = ", ".join(value.name for value in values)
            return Value(writer.let(f"vector.from_elements {names} : {writer.vector_type(element)}"), element, True)

    def _extract(self, vector: Value, lane: int) -> Value:
        writer = self.writer
        vector = writer.broadcast(vector)
        name = writer.let(f"vector.extract {vector.name}[{lane}] : {vector.type} from {writer.type(vector)}")
        return Value(name, vector.type)
