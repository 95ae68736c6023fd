"""Tiles of a matrix unit: sums of products of words, 16 rows by 16 columns in a register.

Rows of x and a weight in panels are already laid out as the unit reads them. A row of the left tile is 64 bytes of a
row of x; a row of the right tile is a group of steps of 16 columns, as words. The sums are stored on the stack, from
where vectors read them for the rest of the stage.

The loops of a tile of 3 vectors of columns:

    sums[row] = start                                             on the stack, for each row of the work item
    for each 16 rows:
        load 3 tiles of sums
        for each 16 words of the sum:
            load a tile of x, load 3 tiles of the weight, add 3 products
        store 3 tiles of sums
    for each row: the epilogue of sums[row]

The order in which a row is summed does not depend on the other rows: fewer rows than 16 take tiles of fewer rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from ....dialect.dims import Size, bounds, multiply
from ....dialect.lazy_dataclass import dataclass
from ..isa import amx
from ..structured.positions import Panel
from .addresses import pointer_to
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, constant, variable
from .order import Order
from .roles import Roles
from .row_loops import Rows, each_row
from .schedule import Stage
from .structure import Access, Op
from .text import Value, Writer, element_bytes
from .tiles import RowBlockTiles, rows_from, tile_work_items

BLOCK_ROWS = 64
"""The rows of a work item."""
FEWEST_ROWS = 8
"""The least number of rows for which a tile is faster than vectors."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of memory that a tile is: a pointer to its first element, and the bytes between its rows."""

    pointer: str
    distance: Size


@dataclass(frozen=True, slots=True)
class Matrices:
    """The reads of an op that are tiles, the distance of rows of the left one in elements, and the product."""

    roles: Roles
    left: int
    right: int
    distance: Size
    product: amx.TileProduct


def find_matrices(evaluator: Evaluator, op: Op, roles: Roles) -> Matrices | None:
    """Returns the tiles of an op that sums products of words, where its sizes are whole tiles of columns and words."""
    stage, writer, row = evaluator.stage, evaluator.writer, roles.row
    if op.body.kind != "dot" or row is None or roles.windowed or len(op.reduced) != 1 or writer.lanes != amx.WORDS:
        return None
    steps, columns = op.loops[op.reduced[0]], stage.sizes[roles.lane]
    most = bounds(stage.sizes[row])[1]
    if not is_whole(steps, amx.WORDS) or not is_whole(columns, writer.lanes) or most < FEWEST_ROWS:
        return None
    reads = [word.number for word in op.body.operands[1:]]
    widenings = op.body.text.split()
    if not _is_packed(op.reads[reads[1]]):
        reads, widenings = reads[::-1], widenings[::-1]
    left, right = (op.reads[number] for number in reads)
    if not _is_packed(right) or not _is_in_rows(stage, op, left, roles):
        return None
    distance = left.step(loop_of(stage, op, row))
    product = amx.find_product(op.body.type, (widenings[0], widenings[1]), writer.features)
    if distance is None or product is None:
        return None
    block = BLOCK_ROWS if most > BLOCK_ROWS else int(most)
    taken = replace(roles, rows=amx.ROWS, block=block)
    return Matrices(taken, reads[0], reads[1], distance, product)


def is_whole(size: Size, part: int) -> bool:
    return isinstance(size, int) and size > 0 and size % part == 0


def _is_packed(access: Access) -> bool:
    return access.group is not None and any(isinstance(p, Panel) for p in access.index)


def _is_in_rows(stage: Stage, op: Op, access: Access, roles: Roles) -> bool:
    """Returns whether an access reads words that are adjacent in memory, and the same ones for all columns."""
    group = access.group
    if group is None or group.stride != 1 or stage.holds(access.tensor):
        return False
    return roles.lane not in {stage.of(op, loop) for loop in access.loops()}


def loop_of(stage: Stage, op: Op, c: int) -> int:
    return next(i for i in range(len(op.loops)) if stage.of(op, i) == c)


class MatrixTiles(RowBlockTiles):
    """The writer of blocks of rows of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, product: amx.TileProduct) -> None:
        super().__init__(evaluator, op, roles)
        self.product = product
        self.sums = evaluator.stack("sums", op, roles.block * roles.width, product.sums)
        self.registers = Registers(self.writer)

    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        writer, op = self.writer, self.op
        with each_row(writer, rows) as first:
            for _, at, slot in self.cells(iteration, row, column, masks, first, 1):
                writer.store(self.sums, slot, writer.broadcast(self.evaluator.starting(op, at)))
        self.add(iteration, row, column, rows, len(masks))
        with each_row(writer, rows) as first:
            for _, at, slot in self.cells(iteration, row, column, masks, first, 1):
                self.evaluator.define(op, at, writer.load(self.sums, slot))
                finish(at)

    @abstractmethod
    def add(self, iteration: Iteration, row: Form, column: Form, rows: Rows, vectors: int) -> None:
        """Adds all products to the sums of some vectors of columns."""

    def add_words(
        self, first: Form, words: Size, vectors: int, left: Callable[[Form], Part], right: Callable[[Form, int], Part]
    ) -> None:
        """Adds the products of `words` words to a tile of rows, from row `first` of the work item on. `left` and
        `right` give the parts of memory that hold the tiles from a word on; the latter for a vector of columns."""
        writer, registers, lanes = self.writer, self.registers, self.writer.lanes
        distance = self.roles.width * element_bytes(self.sums.element)
        sums = [
            Part(pointer_to(writer, self.sums, first.times(self.roles.width).plus(v * lanes)), distance)
            for v in range(vectors)
        ]
        used = amx.SUMS[:vectors]
        for tile, part in zip(used, sums, strict=True):
            registers.load(tile, part)
        with writer.loop(writer.size(0), writer.size(words), amx.WORDS) as index:
            word = variable(index)
            registers.load(amx.LEFT, left(word))
            for v in range(vectors):
                registers.load(amx.RIGHT[v], right(word, v))
            for v in range(vectors):
                registers.multiply(self.product, amx.SUMS[v], amx.LEFT, amx.RIGHT[v])
        for tile, part in zip(used, sums, strict=True):
            registers.store(tile, part)


class PackedMatrices(MatrixTiles):
    """The writer of an op whose weight is stored as words."""

    def __init__(self, evaluator: Evaluator, op: Op, matrices: Matrices) -> None:
        super().__init__(evaluator, op, matrices.roles, matrices.product)
        self.matrices = matrices
        self.step = self.stage.of(op, op.reduced[0])

    def add(self, iteration: Iteration, row: Form, column: Form, rows: Rows, vectors: int) -> None:
        op, lanes = self.op, self.writer.lanes
        left, right = (op.reads[number] for number in (self.matrices.left, self.matrices.right))

        def add_tile(first: Form) -> None:
            def at(word: Form, v: int) -> Iteration:
                return {**self._cell(iteration, row + first, column.plus(v * lanes)), self.step: word}

            def part_of_row(word: Form) -> Part:
                return self._part(left, at(word, 0), self.matrices.distance)

            def part_of_weight(word: Form, v: int) -> Part:
                here, next = (self.evaluator.home(right, op, at(constant(n), v))[1].base for n in (0, 1))
                return self._part(right, at(word, v), (next + here.times(-1)).constant)

            self.add_words(first, op.loops[op.reduced[0]], vectors, part_of_row, part_of_weight)

        self.registers.in_tiles(rows, add_tile)

    def _part(self, access: Access, iteration: Iteration, distance: Size) -> Part:
        buffer, form = self.evaluator.home(access, self.op, iteration)
        bytes = element_bytes(access.tensor.element)
        return Part(pointer_to(self.writer, buffer, form.base), multiply(distance, bytes))


class Registers:
    """The tile registers of a function."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.configuration = writer.on_stack(amx.WORDS, "i32")

    def in_tiles(self, rows: Rows, write: Callable[[Form], None]) -> None:
        """Writes tiles of 16 rows, and a tile of the remaining rows; `write` receives the first row of a tile."""
        writer, height = self.writer, amx.ROWS
        if isinstance(rows, int):
            whole, left = writer.size(rows - rows % height), writer.size(rows % height)
        else:
            left = writer.let(f"arith.remui {rows}, {writer.size(height)} : index")
            whole = writer.let(f"arith.subi {rows}, {left} : index")
        if not isinstance(rows, int) or rows >= height:
            self._configure(writer.size(height))
            with writer.loop(writer.size(0), whole, height) as first:
                write(variable(first))
        if isinstance(rows, int):
            if rows % height:
                with writer.scope(indent=False):
                    self._configure(left)
                    write(constant(rows - rows % height))
            return
        with writer.when(writer.let(f"arith.cmpi ne, {left}, {writer.size(0)} : index")):
            self._configure(left)
            write(variable(whole))

    def _configure(self, rows: str) -> None:
        writer = self.writer
        words = ", ".join(map(str, amx.CONFIGURATION))
        writer.store(
            self.configuration, LANES, Value(writer.splat(f"[{words}]", writer.vector_type("i32")), "i32", True)
        )
        count = writer.let(f"arith.index_cast {rows} : index to i32")
        every = writer.constant(str(amx.EVERY_TILE), "i32").name
        word = writer.let(f"arith.muli {count}, {every} : i32")
        writer.store(self.configuration, constant(amx.ROWS_WORD), Value(word, "i32"))
        writer.add(amx.configure(pointer_to(writer, self.configuration, constant(0))))

    def release(self) -> None:
        self.writer.add(amx.release())

    def load(self, tile: int, part: Part) -> None:
        self.writer.add(amx.load(self._tile(tile), part.pointer, self._bytes(part.distance)))

    def store(self, tile: int, part: Part) -> None:
        self.writer.add(amx.store(self._tile(tile), part.pointer, self._bytes(part.distance)))

    def multiply(self, product: amx.TileProduct, sums: int, left: int, right: int) -> None:
        self.writer.add(amx.multiply(product, *map(self._tile, (sums, left, right))))

    def _tile(self, number: int) -> str:
        return self.writer.constant(str(number), "i8").name

    def _bytes(self, distance: Size) -> str:
        writer = self.writer
        return writer.let(f"arith.index_cast {writer.size(distance)} : index to i64")


def write_matrices(evaluator: Evaluator, op: Op, matrices: Matrices, order: Order, begin: str, end: str) -> None:
    write_tiles_of_rows(evaluator, PackedMatrices(evaluator, op, matrices), order, begin, end)


def write_tiles_of_rows(evaluator: Evaluator, tiles: MatrixTiles, order: Order, begin: str, end: str) -> None:
    writer, roles = evaluator.writer, tiles.roles
    assert roles.row is not None, tiles.op.location
    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, _):
        rows = rows_from(writer, evaluator.stage.sizes[roles.row], roles.block, row)
        tiles.cover_block(iteration, row, column, rows, evaluator.finish)
    tiles.registers.release()
