"""Sums of elements of tables, in the order of the terms: trees whose leaves are found by comparing short integers, or
trees of one leaf, whose value all rows add.

A work item is up to BLOCKS blocks of rows, or more if a term has large tables. Terms are taken in runs whose tables fit
in the first cache; the totals of a run are carried in registers, and rest in the result between the runs. Every row
adds its terms in their order:

    for a run of terms:
      for a block of 32 rows:
        total = result[block]                 vectors
        for a term of the run:
          total = total + values[...]         see `row_values`
        result[block] = total

With 32 registers, two vectors of rows take their terms together: the tables of a term are then read once for both. They
are two blocks where a vector has 32 rows; a last block is taken alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.dims import Size, product
from ...targets.vector_unit import VectorUnit
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, variable
from .nest import blocks, work_items
from .row_values import RowValues, rows_of
from .schedule import Stage
from .structure import extract_step
from .text import Value, element_bytes

BLOCKS, BLOCKS_OF_LARGE_TABLES, LEAST_BLOCKS = 32, 80, 8
"""The blocks of rows of a work item. More of them read large tables less often, as long as the rows stay in the cache
of the core; fewer ones are shared evenly by threads."""
REGISTERS = 16
"""The registers that a vector of rows takes: the comparisons above a node, and the results beside it."""


def is_table_sum(stage: Stage) -> bool:
    """Returns whether the stage is one sum of elements at computed indices, for blocks of rows of a known size."""
    lane = rows_of(stage)
    if lane is None:
        return False
    (op,) = stage.ops
    if len(op.reduced) != 1 or op.start is None or op.combination is None:
        return False
    kind, added = op.combination
    return kind == "arith.addf" and added.kind == "extract" and extract_step(added, lane) in (None, 0)


class TableSumStage:
    """The writer of a stage that is a sum of elements of tables."""

    def __init__(self, evaluator: Evaluator, unit: VectorUnit) -> None:
        self.evaluator, self.writer, self.stage = evaluator, evaluator.writer, evaluator.stage
        (self.op,) = self.stage.ops
        self.block, self.group, self.lane = self.stage.parallel(self.op)
        (self.term,) = self.stage.reduced(self.op)
        assert self.op.combination is not None, self.op.location
        self.kind, added = self.op.combination
        self.added = RowValues(evaluator, added, self.lane, unit)
        (block,) = (i for i in self.op.outer if self.stage.of(self.op, i) == self.block)
        extracts = [(node, node.tensor) for node in self.added.nodes if node.tensor is not None]
        steps = {id(tensor): (tensor, extract_step(node, block)) for node, tensor in extracts}
        tables = sum(_bytes(tensor.element, tensor.shape) for tensor, step in steps.values() if step in (0, None))
        rows = [element_bytes(tensor.element) * step for tensor, step in steps.values() if isinstance(step, int)]
        terms = self.stage.sizes[self.term]
        self.run = max(1, unit.caches.first // 2 * terms // max(tables, 1)) if isinstance(terms, int) else 1
        """The terms of a run: its tables fill half of the first cache."""
        most = BLOCKS_OF_LARGE_TABLES if self.run == 1 else BLOCKS
        self.blocks = max(LEAST_BLOCKS, min(most, unit.caches.own // 4 // max(sum(rows), 1)))
        size = self.stage.sizes[self.lane]
        assert isinstance(size, int), self.op.location
        self.vectors = unit.registers // REGISTERS
        """The vectors of rows that take their terms together."""
        self.together = max(1, self.vectors * self.writer.lanes // size)
        """The blocks of these vectors."""

    def counts(self) -> list[Size]:
        return [blocks(self.stage.sizes[self.block], self.blocks), self.stage.sizes[self.group]]

    def write(self, begin: str, end: str) -> None:
        writer, stage = self.writer, self.stage
        zero, terms = writer.size(0), writer.size(stage.sizes[self.term])
        with work_items(writer, self.counts(), begin, end) as (chunk, group):
            first, last = chunk_of(self.evaluator, chunk, self.blocks, stage.sizes[self.block])
            with writer.loop(first, last, 1) as block:
                for iteration in self._iterations(block, group):
                    self._store(iteration, writer.broadcast(self.evaluator.starting(self.op, iteration)))
            with writer.loop(zero, terms, self.run) as term:
                after = writer.let(f"arith.addi {term}, {writer.size(self.run)} : index")
                end_of_run = writer.let(f"arith.minui {after}, {terms} : index")
                start = first
                for step in sorted({self.together, 1}, reverse=True):
                    end_of_blocks = writer.rounded(start, last, step)
                    with writer.loop(start, end_of_blocks, step) as block:
                        self._add_blocks(block, step, group, term, end_of_run)
                    start = end_of_blocks

    def _add_blocks(self, block: str, count: int, group: Form, term: str, end: str) -> None:
        found = [i for number in range(count) for i in self._iterations(block, group, number)]
        size = max(self.vectors, count)
        for at in range(0, len(found), size):
            self._add_terms(found[at : at + size], term, end)

    def _iterations(self, block: str, group: Form, number: int = 0) -> list[Iteration]:
        at = {self.block: variable(block).plus(number), self.group: group}
        return [{**at, self.lane: lanes} for lanes in lanes_of(self.evaluator, self.lane)]

    def _store(self, iteration: Iteration, value: Value) -> None:
        with self.writer.at(self.op.location):
            self.writer.store(*self.evaluator.home(self.op.written, self.op, iteration), value)

    def _add_terms(self, iterations: Sequence[Iteration], first: str, end: str) -> None:
        writer = self.writer
        totals = [writer.load(*self.evaluator.home(self.op.written, self.op, i)) for i in iterations]
        with writer.carrying(first, end, 1, totals) as loop:
            at = [{**i, self.term: variable(loop.index)} for i in iterations]
            for total, value in zip(loop.values, self.added.write(at), strict=True):
                loop.after.append(writer.apply(self.kind, "", [total, value], total.type))
        for iteration, result in zip(iterations, loop.results, strict=True):
            self._store(iteration, result)


def _bytes(element: str, shape: Sequence[Size]) -> int:
    """Returns the bytes of a tensor of a known shape, else 0."""
    elements = product(shape)
    return element_bytes(element) * elements if isinstance(elements, int) else 0


def chunk_of(evaluator: Evaluator, number: Form, count: int, size: Size) -> tuple[str, str]:
    """Returns the first index of a chunk of a loop, and the index after its last one."""
    writer = evaluator.writer
    first = writer.index(number.times(count))
    past = writer.let(f"arith.addi {first}, {writer.size(count)} : index")
    return first, writer.let(f"arith.minui {past}, {writer.size(size)} : index")


def lanes_of(evaluator: Evaluator, lane: int) -> list[Form]:
    """Returns the forms of the vectors of a class of known size."""
    rows = evaluator.stage.sizes[lane]
    assert isinstance(rows, int), rows
    return [LANES.plus(start) for start in range(0, rows, evaluator.writer.lanes)]
