"""Table sums whose indices are computed in vectors of bytes: see `byte_indices.py`. LANES rows take a term together.

All rows of a work item take a term before the next one, so that tables of terms are read once from far caches:

    copy the columns of the rows: LANES rows of a column are adjacent
    start the results
    for a term:
      store the bytes of the words of its tables, and each byte that all rows compare with, four times
      for LANES rows:
        prefetch a part of the tables of the next term
        numbers = ...                                     vectors of bytes; 16 bits for each row go to the stack
        result[rows] = result[rows] + values[first + numbers]

A byte that is stored four times is a word, which an instruction repeats in a vector as it loads it; a single byte would
take the port that comparisons need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from ....dialect.dims import Size
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import VectorUnit
from ..isa import Instruction, find
from ..structured.body_nodes import Node
from .addresses import load_sum
from .byte_indices import LINE, LINE_BITS, ByteIndex, Choice, Table, doubled, find_byte_index, integer_of, plain
from .evaluate import Evaluator, Iteration
from .forms import LANES as LANE
from .forms import Form, constant, variable
from .nest import blocks, work_items
from .row_values import dependents, in_order, rows_of
from .structure import Access, Buffer
from .table_sums import BLOCKS_OF_LARGE_TABLES, chunk_of, lanes_of
from .text import STACK_BYTES, Value, Writer, element_bytes

LANES = 64
"""The rows of a vector of bytes."""
_REPEATED = 0x01010101
_BYTES_OF_WORD = 4
_CACHE_LINE = 64


def plan_byte_sum(evaluator: Evaluator, unit: VectorUnit) -> ByteSum | None:
    """Returns the writer of a table sum in vectors of bytes; None if the CPU has no look-up of bytes, or if the index
    of the sum has another form."""
    instruction = find("look-up-bytes", LANES // _BYTES_OF_WORD, unit.features)
    stage = evaluator.stage
    (op,) = stage.ops
    lane, (block, *_) = rows_of(stage), op.outer
    assert op.combination is not None and lane is not None, op.location
    root, size = op.combination[1], op.loops[lane]
    assert isinstance(size, int), op.location
    if instruction is None or LANES % size:
        return None

    def differing(loop: int) -> set[int]:
        moved = {number for number, access in enumerate(op.reads) if loop in access.loops()}
        own = {"index": {loop}, "read": moved}
        return dependents(in_order(root), lambda node: node.number in own.get(node.kind, ()))

    varying, moving = differing(lane), differing(block)
    index = find_byte_index(op, root, lane, lambda node: id(node) in varying, lambda node: id(node) in moving)
    if index is None:
        return None
    made = ByteSum(evaluator, unit, instruction, root, index, varying | moving)
    return made if made.stack_bytes <= STACK_BYTES - evaluator.writer.stack_bytes else None


@dataclass(slots=True)
class _Layout:
    """The positions of bytes on the stack. `tables`: those of the words of a table, by the word and the first bit of
    the byte; `repeated`: those of a byte that is stored four times, by the node."""

    tables: dict[tuple[int, int], int] = field(default_factory=dict)
    repeated: dict[int, int] = field(default_factory=dict)
    size: int = 0

    def take(self, bytes: int) -> int:
        start, self.size = self.size, self.size + bytes
        return start


class ByteSum:
    """The writer of a stage. `differing` are the nodes that differ between rows or between blocks of them."""

    def __init__(
        self,
        evaluator: Evaluator,
        unit: VectorUnit,
        instruction: Instruction,
        root: Node,
        index: ByteIndex,
        differing: set[int],
    ) -> None:
        self.evaluator, self.writer, self.stage = evaluator, evaluator.writer, evaluator.stage
        self.instruction, self.root, self.index, self.differing = instruction, root, index, differing
        (self.op,) = self.stage.ops
        self.block, self.group, self.lane = self.stage.parallel(self.op)
        (self.term,) = self.stage.reduced(self.op)
        size = self.stage.sizes[self.lane]
        assert isinstance(size, int), self.op.location
        self.size, self.together = size, LANES // size
        """The rows of a block, and the blocks that take a term together."""
        self.blocks = BLOCKS_OF_LARGE_TABLES
        self.value_lanes = min(unit.lanes(8 * element_bytes(root.type)), size)
        self.layout = self._lay_out()
        self.copy_bytes = _parts(self.blocks, self.together) * self.together * index.width
        self.stack_bytes = self.copy_bytes + self.layout.size + 2 * LANES

    def _lay_out(self) -> _Layout:
        layout, nodes = _Layout(), list(in_order(self.root))
        for node in nodes:
            found = self.byte_of(node)
            if found is not None and found not in layout.tables:
                layout.tables[found] = layout.take(self.index.tables[found[0]].lines * LINE)
        for node in nodes:
            if node.kind == "extract" and node.type == "i8" and id(node) not in self.differing:
                layout.repeated[id(node)] = layout.take(_BYTES_OF_WORD)
        return layout

    def byte_of(self, node: Node) -> tuple[int, int] | None:
        """Returns the word of a table and the first bit in it of the byte that a node reads; None if it reads none."""
        choice = self.index.choices.get(id(node))
        if choice is not None:
            return id(choice.word), choice.shift
        is_byte = node.kind == "arith.trunci" and id(node.operands[0]) in self.index.tables
        return (id(node.operands[0]), 0) if is_byte else None

    def counts(self) -> list[Size]:
        return [blocks(self.stage.sizes[self.block], self.blocks), self.stage.sizes[self.group]]

    def write(self, begin: str, end: str) -> None:
        writer, stage = self.writer, self.stage
        zero, one, terms = writer.size(0), writer.size(1), writer.size(stage.sizes[self.term])
        self.copies = writer.on_stack(self.copy_bytes, "i8")
        self.tables = writer.on_stack(self.layout.size, "i8")
        self.numbers = writer.on_stack(LANES, "i16")
        writer.steps.add(self.together)
        with work_items(writer, self.counts(), begin, end) as (chunk, group):
            first, last = chunk_of(self.evaluator, chunk, self.blocks, stage.sizes[self.block])
            length = writer.let(f"arith.subi {last}, {first} : index")
            count = writer.let(f"arith.ceildivui {length}, {writer.size(self.together)} : index")
            self._copy(first, last, count)
            writer.lanes = self.value_lanes
            with writer.loop(first, last, 1) as block:
                for iteration in self._rows({self.block: variable(block), self.group: group}):
                    self._store(iteration, writer.broadcast(self.evaluator.starting(self.op, iteration)))
            final = writer.let(f"arith.subi {terms}, {one} : index")
            with writer.loop(zero, terms, 1) as term:
                at = {self.group: group, self.term: variable(term)}
                self._prepare(at)
                after = writer.let(f"arith.minui {writer.let(f'arith.addi {term}, {one} : index')}, {final} : index")
                following = list(self._memory({**at, self.term: variable(after)}))
                with writer.loop(zero, count, 1) as number:
                    self._prefetch(following, variable(number))
                    self._add(at, first, last, variable(number))

    def _rows(self, at: Iteration) -> list[Iteration]:
        return [{**at, self.lane: lanes} for lanes in lanes_of(self.evaluator, self.lane)]

    def _store(self, iteration: Iteration, value: Value) -> None:
        with self.writer.at(self.op.location):
            self.writer.store(*self.evaluator.home(self.op.written, self.op, iteration), value)

    def scalar(self, node: Node, at: Iteration) -> Value:
        """Returns a value that is equal in all rows of a block."""
        return self.evaluator.body(self.op, at, root=node)

    def position(self, start: Form, parts: Sequence[Node], at: Iteration, strides: Sequence[Size] = ()) -> Form:
        """Returns a form and the sum of indices that are equal in all rows of a block."""
        for number, part in enumerate(parts):
            form = self.evaluator.as_form(part, self.scalar(part, at))
            assert form is not None, part
            start = start + form.times(strides[number] if strides else 1)
        return start

    # The tables of a term

    def _copy(self, first: str, last: str, count: str) -> None:
        """Copies the columns of a work item. Where blocks are missing behind the last one, it stands for them."""
        writer, view, width = self.writer, self.index.rows, self.index.width
        writer.lanes = self.size
        final = writer.let(f"arith.subi {last}, {writer.size(1)} : index")
        with writer.loop(writer.size(0), count, 1) as number:
            begin = variable(first) + variable(number).times(self.together)
            for part in range(self.together):
                block = writer.let(f"arith.minui {writer.index(begin.plus(part))}, {final} : index")
                source = constant(view.offset) + variable(block).times(view.strides[0])
                target = variable(number).times(width * self.together).plus(part * self.size)
                with writer.loop(writer.size(0), writer.size(width // self.size), 1) as column:
                    bytes = writer.load(view.buffer, source + variable(column).times(self.size) + LANE)
                    writer.store(self.copies, target + variable(column).times(LANES) + LANE, bytes)

    def _prepare(self, at: Iteration) -> None:
        """Stores the bytes that all rows of a term read."""
        writer, pointer = self.writer, self.writer.hidden(self.tables)
        for (number, shift), position in self.layout.tables.items():
            table = self.index.tables[number]
            start = self._start(table, at)
            for line in range(0, table.lines * LINE, LINE):
                bytes = self._pack(table.view.buffer, start.plus(line), shift)
                writer.lanes = LINE
                writer.store(self.tables, LANE.plus(position + line), bytes)
        for node in in_order(self.root):
            offset = self.layout.repeated.get(id(node))
            if offset is not None:
                byte = writer.apply("arith.extui", "", [self.scalar(node, at)], "i32")
                word = writer.apply("arith.muli", "", [byte, writer.constant(str(_REPEATED), "i32")], "i32")
                writer.add(f"llvm.store {word.name}, {_address(writer, pointer, offset)} : i32, !llvm.ptr")

    def _pack(self, buffer: Buffer, start: Form, shift: int) -> Value:
        """Returns the byte from the bit `shift` on of each word of a line. A look-up packs the bytes of a register; the
        conversion of words to bytes takes two instructions."""
        writer, words = self.writer, LINE // _BYTES_OF_WORD
        bytes, masks = f"vector<{LINE}xi8>", f"vector<{LINE}xi1>"
        first = writer.splat(str([lane % words * _BYTES_OF_WORD for lane in range(LINE)]), bytes)
        packed = ""
        for part in range(_BYTES_OF_WORD):
            writer.lanes = words
            loaded = writer.load(buffer, start.plus(part * words) + LANE)
            moved = writer.apply("arith.shrui", "", [loaded, writer.constant(str(shift), "i32")], "i32")
            found = writer.let(f"vector.bitcast {moved.name} : {writer.type(moved)} to {bytes}")
            found = writer.use(self.instruction, found, first)
            own = ["true" if lane // words == part else "false" for lane in range(LINE)]
            mask = writer.splat(f"[{', '.join(own)}]", masks)
            packed = writer.let(f"arith.select {mask}, {found}, {packed} : {masks}, {bytes}") if part else found
        return Value(packed, "i8", True)

    def _start(self, table: Table, at: Iteration) -> Form:
        """Returns the position in memory of the first word of a table."""
        start = constant(table.view.offset).plus(table.first)
        return self.position(start, table.others, at, table.view.strides[:-1])

    def _memory(self, at: Iteration) -> Iterator[tuple[Buffer, Form, int]]:
        """Yields the elements of memory that the rows of a term read: the first one and the number of them."""
        values = self.index.values
        yield values.buffer, self.position(constant(values.offset), self.index.shared, at), self.index.most + 1
        for table in self.index.tables.values():
            yield table.view.buffer, self._start(table, at), table.lines * LINE

    def _prefetch(self, memory: Sequence[tuple[Buffer, Form, int]], number: Form) -> None:
        """Prefetches the share of a vector of rows."""
        for buffer, start, count in memory:
            line = _CACHE_LINE // element_bytes(buffer.element)
            share = _parts(_parts(count, line), _parts(self.blocks, self.together)) * line
            for part in range(0, share, line):
                self.writer.prefetch(buffer, start + number.times(share).plus(part))

    # The rows

    def _add(self, at: Iteration, first: str, last: str, number: Form) -> None:
        """Adds a term to the rows of the vector `number` of a work item."""
        writer = self.writer
        begin = variable(writer.index(variable(first) + number.times(self.together)))
        writer.lanes = LANES
        with writer.at(self.op.body.location):
            writer.store(self.numbers, LANE, _Bytes(self, {**at, self.block: begin}, number).index())
        self._add_block({**at, self.block: begin}, 0)
        for part in range(1, self.together):
            block = writer.index(begin.plus(part))
            with writer.when(writer.let(f"arith.cmpi ult, {block}, {last} : index")):
                self._add_block({**at, self.block: variable(block)}, part * self.size)

    def _add_block(self, at: Iteration, row: int) -> None:
        """Adds the values of a block, which begins at a row of the vector."""
        writer, op, view = self.writer, self.op, self.index.values
        assert op.combination is not None, op.location
        writer.lanes = self.value_lanes
        pointer = writer.hidden(self.numbers)
        start = self.position(constant(view.offset), self.index.shared, at)
        for iteration in self._rows(at):
            with writer.at(op.body.location):
                names = []
                for lane in range(row, row + writer.lanes):
                    address = _address(writer, pointer, lane, "i16")
                    number = writer.let(f"llvm.load {address} : !llvm.ptr -> i16")
                    wide = Value(writer.let(f"arith.extui {number} : i16 to i64"), "i64")
                    names.append(load_sum(writer, view.buffer, start, [(wide, 1)]).name)
                type = writer.vector_type(self.root.type)
                value = Value(writer.let(f"vector.from_elements {', '.join(names)} : {type}"), self.root.type, True)
                total = writer.load(*self.evaluator.home(Access(op.result, op.map), op, iteration))
                self._store(iteration, writer.apply(op.combination[0], "", [total, value], value.type))
            row += writer.lanes


def _address(writer: Writer, pointer: str, number: int, element: str = "i8") -> str:
    return writer.let(f"llvm.getelementptr {pointer}[{number}] : (!llvm.ptr) -> !llvm.ptr, {element}")


def _parts(count: int, size: int) -> int:
    """Returns the number of parts of a size that cover a count."""
    return -(-count // size)


class _Bytes:
    """The vectors of LANES rows in an iteration. `number` counts the vectors of a work item."""

    def __init__(self, owner: ByteSum, at: Iteration, number: Form) -> None:
        self.owner, self.writer, self.parts, self.at = owner, owner.writer, owner.index, at
        self.rows = number.times(owner.index.width * owner.together)
        self.done: dict[int, Value] = {}
        # LLVM would move loads from a known pointer out of the loop, and spill them: they exceed the registers.
        self.tables = self.writer.hidden_here(owner.tables)

    def index(self) -> Value:
        """Returns the number of each row, in 16 bits."""
        index = self._apply("arith.extui", [self.low(self.parts.number)], "i16")
        for bit in range(8, self.parts.most.bit_length()):
            more = self._apply("arith.addi", [index, self.writer.constant(str(1 << bit), "i16")], "i16")
            index = self._select(self.bit(self.parts.number, bit), more, index)
        return index

    def low(self, number: Node) -> Value:
        """Returns the low bytes of integers."""
        number = plain(number)
        parts = doubled(number)
        if parts is None:
            (source,) = number.operands
            value = self.vector(source)
            return self._apply("arith.extui", [value], "i8") if source.type == "i1" else value
        half = self.low(parts[0])
        twice = self._apply("arith.addi", [half, half], "i8")
        return self._select(self.bit(parts[1], 0), self._apply("arith.addi", [twice, self._byte(1)], "i8"), twice)

    def bit(self, number: Node, position: int) -> Value:
        """Returns a bit of integers as truth values."""
        number = plain(number)
        parts = doubled(number)
        if parts is not None:
            return self.bit(parts[0], position - 1) if position else self.bit(parts[1], 0)
        (source,) = number.operands
        return self.vector(source) if source.type == "i1" else self._test(self.vector(source), position)

    def vector(self, node: Node) -> Value:
        """Returns bytes or truth values."""
        if id(node) not in self.done:
            self.done[id(node)] = self._evaluate(node)
        return self.done[id(node)]

    def _evaluate(self, node: Node) -> Value:
        if id(node) in self.owner.layout.repeated:
            return self._repeated(self.owner.layout.repeated[id(node)])
        if id(node) not in self.owner.differing:
            return self.writer.broadcast(self.owner.scalar(node, self.at))
        if id(node) in self.parts.columns:
            start = self.owner.position(constant(0), self.parts.columns[id(node)], self.at)
            return self._column(start.times(self.owner.together))
        if id(node) in self.parts.choices:
            return self._choose(self.parts.choices[id(node)])
        if node.kind == "arith.trunci":
            return self._look_up(id(node.operands[0]), 0)
        if node.kind == "arith.select" and node.type == "i8":
            base, value = self._relative(node)
            return self._apply("arith.addi", [value, self._byte(base)], "i8")
        return self._apply(node.kind, [self.vector(operand) for operand in node.operands], node.type, node.text)

    def _relative(self, node: Node) -> tuple[int, Value]:
        """Returns bytes as a constant and the differences from it. A selection between constants is then one addition
        under a mask, and needs no vector of each constant."""
        number = integer_of(node)
        if number is not None:
            return number, self._byte(0)
        if node.kind != "arith.select" or id(node) in self.done:
            return 0, self.vector(node)
        condition, *sides = node.operands
        (left, yes), (right, no) = map(self._relative, sides)
        moved = self._apply("arith.addi", [yes, self._byte(left - right)], "i8")
        return right, self._select(self.vector(condition), moved, no)

    def _repeated(self, position: int) -> Value:
        writer, words = self.writer, f"vector<{LANES // _BYTES_OF_WORD}xi32>"
        word = writer.let(f"llvm.load {_address(writer, self.tables, position)} : !llvm.ptr -> i32")
        name = writer.let(f"vector.broadcast {word} : i32 to {words}")
        return Value(writer.let(f"vector.bitcast {name} : {words} to {writer.vector_type('i8')}"), "i8", True)

    def _column(self, start: Form) -> Value:
        return self.writer.load(self.owner.copies, self.rows + start + LANE)

    def _choose(self, choice: Choice) -> Value:
        """Returns the bytes of the columns that a number names, by a binary tree of selections."""
        numbers = self._look_up(id(choice.word), choice.shift)
        bits = [self._test(numbers, bit) for bit in range(choice.columns.bit_length() - 1)]

        def choose(level: int, column: int) -> Value:
            if not level:
                return self._column(constant(column * LANES))
            no, yes = (choose(level - 1, column + (side << level - 1)) for side in range(2))
            return self._select(bits[level - 1], yes, no)

        return choose(len(bits), 0)

    def _look_up(self, word: int, shift: int) -> Value:
        """Returns a byte of each word of a table, by a look-up for each line."""
        writer, table = self.writer, self.parts.tables[word]
        start, low = self.owner.layout.tables[word, shift], self.low(table.number)
        bits = [self.bit(table.number, LINE_BITS + bit) for bit in range(table.lines.bit_length() - 1)]

        def look_up(level: int, line: int) -> Value:
            if not level:
                address, type = _address(writer, self.tables, start + line * LINE), writer.vector_type("i8")
                entries = writer.let(f"llvm.load {address} {{alignment = 64 : i64}} : !llvm.ptr -> {type}")
                return Value(writer.use(self.owner.instruction, entries, low.name), "i8", True)
            no, yes = (look_up(level - 1, line + (side << level - 1)) for side in range(2))
            return self._select(bits[level - 1], yes, no)

        return look_up(len(bits), 0)

    def _test(self, bytes: Value, bit: int) -> Value:
        masked = self._apply("arith.andi", [bytes, self._byte(1 << bit)], "i8")
        return self._apply("arith.cmpi", [masked, self._byte(0)], "i1", "predicate = 1 : i64")

    def _select(self, mask: Value, yes: Value, no: Value) -> Value:
        return self._apply("arith.select", [mask, yes, no], no.type)

    def _apply(self, kind: str, operands: Sequence[Value], type: str, text: str = "") -> Value:
        return self.writer.apply(kind, text, operands, type)

    def _byte(self, number: int) -> Value:
        signed = (number + 128) % 256 - 128
        return self.writer.broadcast(self.writer.constant(str(signed), "i8"))
