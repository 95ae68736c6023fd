"""A value for each of several rows, where the rows read elements at different indices of tables.

The nodes of a body have a narrow part, on short integers that are contiguous along the rows, and a part that loads
elements at indices that differ between rows. The narrow part is vectors with the rows in lanes. The rest is scalars,
row by row, that a vector collects. A row's loads wait for one another, so those of TOGETHER rows take turns:

    index = (x[c0] < b0) ? ((x[c1] < b1) ? 0 : 1) : ...     one vector of 32 rows in i8
    values[first + index]                                   32 scalars: the index of a row, and the load
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...targets.vector_unit import VectorUnit
from .addresses import load_at_address
from .evaluate import Evaluator, Iteration
from .forms import Form
from .schedule import Stage
from .structure import Node, extract_step
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
        self.nodes = tuple(_in_order(root))
        self.varying = self._dependents(
            lambda n: (n.kind == "index" and n.number == loop) or (n.kind == "read" and n.number in reads)
        )
        """The nodes that differ between rows."""
        self.scattered = self._dependents(lambda node: scatters(node, loop))
        """The nodes that depend on elements at indices that differ between rows."""
        self.loads = [node for node in self.nodes if scatters(node, loop)]
        narrow = [NARROW[n.type] for n in self.nodes if n.type in NARROW and id(n) not in self.scattered]
        self.writer.lanes = min(unit.lanes(max(narrow, default=8)), MOST_LANES)

    def _dependents(self, is_source: Callable[[Node], bool]) -> set[int]:
        """Returns the nodes that are sources, or depend on one."""
        found: set[int] = set()
        for node in self.nodes:
            if is_source(node) or any(id(operand) in found for operand in node.operands):
                found.add(id(node))
        return found

    def write(self, iteration: Iteration) -> Value:
        """Returns the vector of values, one for each lane of the iteration."""
        writer = self.writer
        narrow: dict[int, Value] = {}

        def evaluate(node: Node) -> Value:
            if id(node) not in narrow:
                narrow[id(node)] = self.evaluator.node(self.op, node, iteration, evaluate, None)
            return narrow[id(node)]

        with writer.at(self.op.body.location):
            if id(self.root) not in self.varying:
                return writer.broadcast(evaluate(self.root))
            rows = [_Row(self, number, iteration, evaluate) for number in range(writer.lanes)]
            for start in range(0, len(rows), TOGETHER):
                for node in self.loads:
                    for row in rows[start : start + TOGETHER]:
                        row.evaluate(node)
            names = ", ".join(writer.scalar(row.evaluate(self.root)).name for row in rows)
            type = self.root.type
            return Value(writer.let(f"vector.from_elements {names} : {writer.vector_type(type)}"), type, True)


def _in_order(root: Node) -> Iterator[Node]:
    """Yields the nodes of a body, operands first."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for operand in node.operands:
                yield from visit(operand)
            yield node

    return visit(root)


class _Row:
    """The values for one row, as scalars."""

    def __init__(self, values: RowValues, number: int, iteration: Iteration, shared: Callable[[Node], Value]) -> None:
        self.values, self.number, self.shared = values, number, shared
        self.iteration = {**iteration, values.lane: iteration[values.lane].base.plus(number)}
        self.known: dict[int, Value] = {}

    def evaluate(self, node: Node) -> Value:
        """Returns a value; values of the narrow part come from its vectors."""
        if id(node) not in self.values.varying:
            return self.shared(node)
        if id(node) not in self.known:
            is_narrow = node.type in NARROW and id(node) not in self.values.scattered
            if is_narrow:
                self.known[id(node)] = self._extract(self.shared(node))
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

    def _extract(self, value: Value) -> Value:
        writer = self.values.writer
        vector = writer.broadcast(value)
        name = writer.let(f"vector.extract {vector.name}[{self.number}] : {value.type} from {writer.type(vector)}")
        return Value(name, value.type)
