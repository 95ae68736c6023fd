"""A value for each of several rows, where the rows read elements at different indices of tables.

The nodes of a body have a narrow part, on short integers that are contiguous along the rows, and a part that loads
elements at indices that differ between rows. The narrow part is vectors with the rows in lanes. The rest is scalars,
row by row, that a vector collects. A row's loads wait for one another, so those of TOGETHER rows take turns:

    index = (x[c0] < b0) ? ((x[c1] < b1) ? 0 : 1) : ...     one vector of 32 rows in i8
    values[first + index]                                   32 scalars: the index of a row, and the load

Where it is faster, a vector is stored on the stack, and its lanes are loaded as scalars: an instruction for each lane
would take the port of shuffles, which collecting the values needs too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...targets.vector_unit import VectorUnit
from ..structured.body_nodes import Node
from .addresses import load_at_address
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form
from .schedule import Stage
from .structure import Buffer, extract_step
from .text import Value

MOST_LANES = 32
TOGETHER = 4
"""The rows whose loads take turns."""
NARROW = {"i1": 8, "i8": 8, "i16": 16}
"""The types of the narrow part, with their bits in vectors."""


def scatters(node: Node, lane: int) -> bool:
    """Returns whether a node loads elements that are not a fixed distance apart from row to row."""
    return node.kind == "extract" and extract_step(node, lane) is None


def rows_of(stage: Stage) -> int | None:
    """Returns the innermost loop of a stage of one op with three parallel loops, if its size is a known multiple of all
    numbers of lanes."""
    if len(stage.ops) != 1 or stage.around or len(stage.ops[0].outer) != 3:
        return None
    (op,) = stage.ops
    lane = op.outer[-1]
    size = op.loops[lane]
    return lane if isinstance(size, int) and size and size % MOST_LANES == 0 and op.written.step(lane) == 1 else None


class RowValues:
    """The writer of the values of a node of the stage's op; `lane` is the class of the rows."""

    def __init__(self, evaluator: Evaluator, root: Node, lane: int, unit: VectorUnit) -> None:
        self.evaluator, self.writer, self.root, self.lane = evaluator, evaluator.writer, root, lane
        (self.op,) = evaluator.stage.ops
        loop = next(i for i in range(len(self.op.loops)) if evaluator.stage.of(self.op, i) == lane)
        reads = {number for number, access in enumerate(self.op.reads) if loop in access.loops()}
        self.nodes = tuple(in_order(root))
        self.varying = dependents(
            self.nodes, lambda n: (n.kind == "index" and n.number == loop) or (n.kind == "read" and n.number in reads)
        )
        """The nodes that differ between rows."""
        self.scattered = dependents(self.nodes, lambda node: scatters(node, loop))
        """The nodes that depend on elements at indices that differ between rows."""
        self.loads = [node for node in self.nodes if scatters(node, loop)]
        narrow = [NARROW[n.type] for n in self.nodes if n.type in NARROW and id(n) not in self.scattered]
        self.writer.lanes = min(unit.lanes(max(narrow, default=8)), MOST_LANES)
        self.by_memory = unit.lanes_by_memory
        if narrow and unit.masks:
            self.writer.without.add(unit.masks)
        self._memory: dict[tuple[int, int], Buffer] = {}

    def memory(self, node: Node, number: int) -> Buffer:
        """Returns memory on the stack for the lanes of a node in one of the iterations that are written together."""
        if (id(node), number) not in self._memory:
            self._memory[id(node), number] = self.writer.on_stack(self.writer.lanes, node.type)
        return self._memory[id(node), number]

    def write(self, iterations: Sequence[Iteration]) -> Iterator[Value]:
        """Yields a vector of values for each iteration, one for each of its lanes. The narrow parts of all iterations
        are written node by node, so that they share the values that are equal in all rows. A vector is used before the
        next one is collected, so that it leaves its registers."""
        parts = [_Narrow(self, iteration, number) for number, iteration in enumerate(iterations)]
        with self.writer.at(self.op.body.location):
            for node in self.nodes:
                if self.is_narrow(node) and id(node) in self.varying:
                    for part in parts:
                        part.evaluate(node)
        for part in parts:
            with self.writer.at(self.op.body.location):
                value = self._collect(part)
            yield value

    def is_narrow(self, node: Node) -> bool:
        return node.type in NARROW and id(node) not in self.scattered

    def _collect(self, part: _Narrow) -> Value:
        writer = self.writer
        if id(self.root) not in self.varying:
            return writer.broadcast(part.evaluate(self.root))
        rows = [_Row(self, number, part) for number in range(writer.lanes)]
        for start in range(0, len(rows), TOGETHER):
            for node in self.loads:
                for row in rows[start : start + TOGETHER]:
                    row.evaluate(node)
        names = ", ".join(writer.scalar(row.evaluate(self.root)).name for row in rows)
        type = self.root.type
        return Value(writer.let(f"vector.from_elements {names} : {writer.vector_type(type)}"), type, True)


def dependents(nodes: Iterable[Node], is_source: Callable[[Node], bool]) -> set[int]:
    """Returns the nodes that are sources, or depend on one; operands come before the nodes that use them."""
    found: set[int] = set()
    for node in nodes:
        if is_source(node) or any(id(operand) in found for operand in node.operands):
            found.add(id(node))
    return found


def in_order(root: Node) -> Iterator[Node]:
    """Yields the nodes of a body, operands first."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for operand in node.operands:
                yield from visit(operand)
            yield node

    return visit(root)


class _Narrow:
    """The narrow part of an iteration, as vectors; `number` counts the iterations that are written together."""

    def __init__(self, values: RowValues, iteration: Iteration, number: int) -> None:
        self.values, self.iteration, self.number = values, iteration, number
        self.known: dict[int, Value] = {}
        self.stored: dict[int, str] = {}

    def evaluate(self, node: Node) -> Value:
        if id(node) not in self.known:
            evaluator, op = self.values.evaluator, self.values.op
            self.known[id(node)] = evaluator.node(op, node, self.iteration, self.evaluate, None)
        return self.known[id(node)]

    def lane(self, node: Node, number: int) -> Value:
        """Returns the value of one row as a scalar."""
        writer = self.values.writer
        vector = writer.broadcast(self.evaluate(node))
        if not self.values.by_memory or vector.type == "i1":
            name = writer.let(f"vector.extract {vector.name}[{number}] : {vector.type} from {writer.type(vector)}")
            return Value(name, vector.type)
        if id(node) not in self.stored:
            memory = self.values.memory(node, self.number)
            writer.store(memory, LANES, vector)
            self.stored[id(node)] = writer.hidden(memory)
        type = vector.type
        at = writer.let(f"llvm.getelementptr {self.stored[id(node)]}[{number}] : (!llvm.ptr) -> !llvm.ptr, {type}")
        return Value(writer.let(f"llvm.load {at} : !llvm.ptr -> {type}"), type)


class _Row:
    """The values for one row, as scalars."""

    def __init__(self, values: RowValues, number: int, narrow: _Narrow) -> None:
        self.values, self.number, self.narrow = values, number, narrow
        self.iteration = {**narrow.iteration, values.lane: narrow.iteration[values.lane].base.plus(number)}
        self.known: dict[int, Value] = {}

    def evaluate(self, node: Node) -> Value:
        """Returns a value; values of the narrow part come from its vectors."""
        if id(node) not in self.values.varying:
            return self.narrow.evaluate(node)
        if id(node) not in self.known:
            if self.values.is_narrow(node):
                self.known[id(node)] = self.narrow.lane(node, self.number)
            else:
                loaded = self._load(node) if node in self.values.loads else None
                made = self.values.evaluator.node
                self.known[id(node)] = loaded or made(self.values.op, node, self.iteration, self.evaluate, None)
        return self.known[id(node)]

    def _load(self, node: Node) -> Value | None:
        values = self.values

        def is_shared(part: Node) -> bool:
            return part.kind == "index" or id(part) not in values.varying

        def form_of(part: Node) -> Form | None:
            return values.evaluator.as_form(part, self.evaluate(part))

        return load_at_address(values.writer, node, is_shared, form_of, self.evaluate)
