"""Register tiles of x.T @ y, where the steps of the sum are apart in memory in both operands: blocks of both are copied
onto the stack, a stretch of the sum at a time, and partial sums are carried from stretch to stretch.

The gradient of a matrix is such a product: x and y have a row for each example, and the sum runs over the rows. Each
step of a sum reads a few numbers of two long rows, which often map to the same few cache sets.

    x in memory: K rows of M elements        rows on the stack: a panel for each vector of a block
    |-----------------------------|          |--|  |--|  x[k, m .. m + lanes]      x[k, m + lanes .. m + 2 * lanes]
    |      ##### (m .. m + block) |    ->    |--|  |--|  x[k + 1, m .. m + lanes]  ...

    y in memory: K rows of N elements        columns on the stack: a panel for each tile of a group of columns
    |-----------------------------|          |--|  |--|  y[k, n .. n + width]      y[k, n + width .. n + 2 * width]
    |      ###### (n .. n + step) |    ->    |--|  |--|  y[k + 1, n .. n + width]  ...

The gradient of a convolution's weight sums over images and positions in them. Its steps are numbered through all of
these loops, and a copy finds the position of each step. Every sum follows the order of the reduction loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ....dialect.dims import Size, bounds, product
from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import Panel
from .evaluate import Evaluator, Iteration, Kept, Span
from .forms import LANES, Form, constant, variable
from .order import Order
from .paired import takes_pairs
from .panel_rows import if_fewer, write_in_place
from .roles import Roles, even_groups
from .row_loops import in_tiles
from .stretches import SharingTiles, find_columns
from .structure import Buffer, Op
from .text import STACK_BYTES, Value, element_bytes
from .tiles import Cell, tile_work_items

BLOCK_ROWS = 192
"""The most rows of a work item."""
FEWEST_ROWS = 64
"""The fewest rows of a work item: fewer do not pay for the copy of the columns."""
GROUP_COLUMNS = 384
"""The most columns of a work item."""
FEWEST_ITEMS = 4
"""Groups of columns have fewer tiles where there would be fewer work items, which threads divide among them. For 384 or
128 rows and columns, 4 items instead of 1 or 2 take one thread 1 % or 21 % longer, and 16 items 38 % or 23 %."""
DEPTH = 128
"""The most steps of a stretch: a panel of columns then stays in the nearest cache for all rows of a block."""
FEWEST_STEPS = 128
"""The fewest steps of a sum: with 64, the copies take longer than they save. Calls with fewer steps read the operands
where they are."""

PARTS = 4
"""The parts of a tile's sums in a stretch. Prefetches precede each part: the instructions for their addresses would
compete with the multiplications in every iteration, and many prefetches at once would wait for each other."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The copies of an op's reads of columns and of rows: `depth` steps of the sum at a time. `placed` tells whether
    partial sums are in the memory of the result, which no other op computes, rather than on the stack."""

    roles: Roles
    columns: int
    rows: int
    depth: int
    placed: bool


def plan_blocks(evaluator: Evaluator, op: Op, roles: Roles) -> Blocks | None:
    """Returns the copies for an op whose rows and columns are known and divide evenly; None for other ops. Products of
    bf16 are summed in pairs where there is an instruction for it: see `paired`."""
    stage, lanes = evaluator.stage, evaluator.writer.lanes
    columns = find_columns(stage, op, roles)
    if columns is None or roles.row is None or takes_pairs(evaluator, op, columns):
        return None
    rows = 1 - columns
    access = op.reads[rows]
    moving = {stage.of(op, i): access.step(i) for i in access.loops()}
    if any(isinstance(p, Panel) for read in op.reads for p in read.index) or stage.holds(access.tensor):
        return None
    if moving.get(roles.row) != 1 or any(moving.get(stage.of(op, i)) in (1, None) for i in op.summed):
        return None
    if access.group is not None or access.tensor.view is None:
        return None
    if access.tensor.element != op.reads[columns].tensor.element:
        return None
    height, width, steps = stage.sizes[roles.row], stage.sizes[roles.lane], _count_steps(op)
    if not (isinstance(height, int) and isinstance(width, int)) or bounds(steps)[1] < FEWEST_STEPS:
        return None
    block = _divisor(height, lanes, BLOCK_ROWS)
    tile = _divisor(width, lanes, roles.width)
    if block < FEWEST_ROWS or tile * 2 < roles.width:
        return None
    group = _divisor(width, tile, GROUP_COLUMNS)
    others = prod(bounds(stage.sizes[c])[0] for c in roles.outer) * (height // block)
    while group > tile and others * (width // group) < FEWEST_ITEMS:
        group = _divisor(width, tile, group - tile)
    depth = even_groups(steps, DEPTH) if isinstance(steps, int) else DEPTH
    placed = len(stage.ops) == 1
    numbers = depth * (block + group) + (0 if placed else block * group) + 3 * lanes
    if numbers * element_bytes(op.result.element) > STACK_BYTES - evaluator.writer.stack_bytes:
        return None
    return Blocks(replace(roles, block=block, width=tile, step=group), columns, rows, depth, placed)


def _count_steps(op: Op) -> Size:
    return product(op.loops[i] for i in op.summed)


def _divisor(size: int, unit: int, most: int) -> int:
    """Returns the greatest multiple of `unit` that divides the size, up to `most`; 0 where there is none."""
    return max((n for n in range(unit, max(unit, most) + 1, unit) if size % n == 0), default=0)


@dataclass(frozen=True, slots=True)
class _Next:
    """The stretch that is copied next: its first step, and the first row and column of its blocks, in an iteration of
    the loops around them."""

    around: Iteration
    step: Form
    row: Form
    column: Form


class BlockedTiles(SharingTiles):
    """The writer of blocks of rows and columns."""

    def __init__(self, evaluator: Evaluator, op: Op, blocks: Blocks) -> None:
        super().__init__(evaluator, op, blocks.roles, blocks.columns)
        self.blocks = blocks
        self.row = op.factor(blocks.rows)
        assert self.roles.row is not None, op.location
        self.rows = self.roles.row
        element, roles, depth = self.node.type, self.roles, blocks.depth
        lanes = self.writer.lanes
        # The panels have a step for each of all the loops of the sum, which count as the last one.
        self.size = _count_steps(op)
        self.loops = [(op.summed[-1:], self.size)]
        self.still = dict.fromkeys((self.stage.of(op, i) for i in op.reduced), constant(0))
        # A tile reads rows of one panel.
        self.height = lanes if lanes % roles.rows == 0 else roles.block
        self.together = self._together(self.size, depth)
        self.part = -(-depth // (PARTS * self.together)) * self.together
        self.panels_of_columns = evaluator.stack("columns", op, depth * roles.step, element)
        self.panel_of_rows = evaluator.stack("rows", op, depth * roles.block, element)
        self.sums = None if blocks.placed else evaluator.stack("sums", op, roles.block * roles.step)

    def write(self, iteration: Iteration, row: Form, column: Form, finish: Callable[[Iteration], None]) -> None:
        """Writes the block of rows and the group of columns that begin at `row` and `column`."""
        writer, evaluator, op, depth = self.writer, self.evaluator, self.op, self.blocks.depth
        iteration = {**iteration, **self.still}

        def start(cells: Sequence[Cell], count: int) -> None:
            for _, at, slot in cells:
                writer.store(*self._sum_at(at, slot), writer.broadcast(evaluator.starting(op, at)))

        def add(cells: Sequence[Cell], count: int) -> None:
            (_, at, slot), *_ = cells
            tile, positions = self._tile_number(slot), [at for _, at, _ in cells]
            evaluator.made[id(op), id(self.row)] = self._rows_at(row, at[self.rows] + row.times(-1), variable(first))
            totals = [writer.load(*self._sum_at(at, slot)) for _, at, slot in cells]
            with writer.carrying(first, stop, self.part, totals) as parts:
                past = writer.let(f"arith.addi {parts.index}, {writer.size(self.part)} : index")
                until = writer.let(f"arith.minui {past}, {stop} : index")
                self._fetch(after, tile, writer.let(f"arith.subi {parts.index}, {first} : index"))
                evaluator.spans[self.sum] = Span(parts.index, until, parts.index, until, self.together)
                parts.after = self._sum(list(self.loops), positions, [None] * len(cells), parts.values, count)
                del evaluator.spans[self.sum]
            totals = parts.results
            del evaluator.made[id(op), id(self.row)]
            for (_, at, slot), total in zip(cells, totals, strict=True):
                writer.store(*self._sum_at(at, slot), total)

        def end(cells: Sequence[Cell], count: int) -> None:
            for _, at, slot in cells:
                evaluator.define(op, at, writer.load(*self._sum_at(at, slot)))
                finish(at)

        self._each(iteration, row, column, 1, start)
        with writer.loop(writer.size(0), writer.size(self.size), depth) as first:
            past = writer.let(f"arith.addi {first}, {writer.size(depth)} : index")
            stop = writer.let(f"arith.minui {past}, {writer.size(self.size)} : index")
            self._copy(iteration, row, column, first, stop)
            after = self._after(iteration, row, column, stop)
            self._each(iteration, row, column, self.roles.rows, add, variable(first))
        if not self.blocks.placed:
            self._each(iteration, row, column, 1, end)

    def _sum_at(self, at: Iteration, slot: Form) -> tuple[Buffer, Form]:
        """Returns the memory of a sum."""
        return self.evaluator.home(self.op.written, self.op, at) if self.sums is None else (self.sums, slot)

    def _each(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        height: int,
        write: Callable[[Sequence[Cell], int], None],
        step: Form | None = None,
    ) -> None:
        """Writes all tiles of a height; from `step` on, sums read the panels."""
        writer, roles, made = self.writer, self.roles, (id(self.op), id(self.node))
        masks: list[str | None] = [None] * (roles.width // writer.lanes)
        with writer.loop(writer.size(0), writer.size(roles.step), roles.width) as start:
            if step is not None:
                self.evaluator.made[made] = self._panel_at(column, variable(start), step)

            def write_rows(first: Form, count: int) -> None:
                cells = [
                    (mask, at, slot + variable(start, roles.block))
                    for mask, at, slot in self.cells(iteration, row, column + variable(start), masks, first, count)
                ]
                write(cells, count)

            in_tiles(writer, roles.block, height, write_rows)
            self.evaluator.made.pop(made, None)

    def _panel_at(self, column: Form, start: Form, step: Form) -> Kept:
        """Returns the panel of the tile that begins with column `start` of the group."""
        width = self.roles.width
        # Tile start / width begins at start / width * (depth * width).
        origin = start.times(self.blocks.depth) + (column + start).times(-1) + step.times(-width)
        return Kept(self.panels_of_columns, {self.roles.lane: 1, self.sum: width}, origin)

    def _rows_at(self, row: Form, start: Form, step: Form) -> Kept:
        """Returns the panel of the tile that begins with row `start` of the block."""
        height, writer = self.height, self.writer
        panel = writer.let(f"arith.divui {writer.index(start)}, {writer.size(height)} : index")
        # Row `start` of panel p, p = start / height, is the element start - p * height of the panel's first step.
        origin = variable(panel, self.blocks.depth * height - height) + row.times(-1) + step.times(-height)
        return Kept(self.panel_of_rows, {self.rows: 1, self.sum: height}, origin)

    def _copy(self, iteration: Iteration, row: Form, column: Form, first: str, stop: str) -> None:
        writer, roles, lanes = self.writer, self.roles, self.writer.lanes
        with writer.loop(first, stop, 1) as step:
            offset = variable(step) + variable(first, -1)
            iteration = {**iteration, **self._position(variable(step))}
            for start in range(0, roles.step, lanes):
                at = {**iteration, roles.lane: column.plus(start) + LANES}
                tile, within = divmod(start, roles.width)
                slot = offset.times(roles.width).plus(tile * self.blocks.depth * roles.width + within) + LANES
                writer.store(self.panels_of_columns, slot, self._load(self.blocks.columns, at))
            for start in range(0, roles.block, lanes):
                at = {**iteration, self.rows: row.plus(start) + LANES}
                panel, within = divmod(start, self.height)
                slot = offset.times(self.height).plus(panel * self.blocks.depth * self.height + within) + LANES
                writer.store(self.panel_of_rows, slot, self._load(self.blocks.rows, at))

    def _position(self, step: Form) -> Iteration:
        """Returns the position of a step in the loops of the sum."""
        writer, op, position = self.writer, self.op, dict(self.still)
        *around, innermost = op.summed
        for loop, within in zip(around, (op.summed[i + 1 :] for i in range(len(around))), strict=True):
            left, inner = writer.index(step), writer.size(product(op.loops[i] for i in within))
            position[self.stage.of(op, loop)] = variable(writer.let(f"arith.divui {left}, {inner} : index"))
            step = variable(writer.let(f"arith.remui {left}, {inner} : index"))
        return {**position, self.stage.of(op, innermost): step}

    # Prefetching

    def _after(self, iteration: Iteration, row: Form, column: Form, stop: str) -> _Next:
        """Returns the stretch that follows the one that ends with step `stop`: after the last one, it is the first
        stretch of the next work item, of the next columns or else of the next rows."""
        writer, roles = self.writer, self.roles

        def select(condition: str, left: Form, right: Form) -> Form:
            left_name, right_name = writer.index(left), writer.index(right)
            return variable(writer.let(f"arith.select {condition}, {left_name}, {right_name} : index"))

        columns, beside = writer.size(self.stage.sizes[roles.lane]), column.plus(roles.step)
        whole = writer.let(f"arith.cmpi uge, {writer.index(beside)}, {columns} : index")
        last = writer.let(f"arith.cmpi uge, {stop}, {writer.size(self.size)} : index")
        start = select(last, constant(0), variable(stop))
        row = select(last, select(whole, row.plus(roles.block), row), row)
        column = select(last, select(whole, constant(0), beside), column)
        return _Next(iteration, start, row, column)

    def _tile_number(self, slot: Form) -> str:
        """Returns the number of the tile with sums from `slot` on."""
        writer, roles = self.writer, self.roles
        return writer.let(f"arith.divui {writer.index(slot.base)}, {writer.size(roles.rows * roles.width)} : index")

    def _fetch(self, after: _Next, tile: str, step: str) -> None:
        """Prefetches the next stretch, in equal shares: a tile takes one before each part of its sums, `step` steps
        into the stretch."""
        writer, roles, lanes, depth = self.writer, self.roles, self.writer.lanes, self.blocks.depth

        def let(operation: str, left: str, right: str | int) -> str:
            right = writer.size(right) if isinstance(right, int) else right
            return writer.let(f"arith.{operation} {left}, {right} : index")

        parts = -(-depth // self.part)
        tiles = -(-roles.block // roles.rows) * (roles.step // roles.width)
        number = let("addi", let("muli", tile, parts), let("divui", step, self.part))
        for read, c, origin, size in (
            (self.blocks.columns, roles.lane, after.column, roles.step),
            (self.blocks.rows, self.rows, after.row, roles.block),
        ):
            # A share is a part of the vectors of one step, or all vectors of some steps.
            vectors, least = size // lanes, -(-depth * (size // lanes) // (tiles * parts))
            share = min((n for n in range(least, vectors + 1) if vectors % n == 0), default=vectors)
            steps, shares = -(-least // share), vectors // share
            first = let("minui", let("muli", let("divui", number, shares), steps), depth - steps)
            within = let("muli", let("remui", number, shares), share * lanes)
            for each in range(steps):
                moved = {**after.around, **self._position(after.step + variable(first).plus(each))}
                for vector in range(share):
                    at = {**moved, c: origin + variable(within).plus(vector * lanes)}
                    writer.prefetch(*self.evaluator.home(self.op.reads[read], self.op, at))

    def _load(self, number: int, at: Iteration) -> Value:
        return self.evaluator.body(self.op, at, root=self.op.factor(number))


def write_blocked(evaluator: Evaluator, op: Op, blocks: Blocks, order: Order, begin: str, end: str) -> None:
    tiles, roles = BlockedTiles(evaluator, op, blocks), blocks.roles

    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, panels):
        many = partial(tiles.write, iteration, row, column, evaluator.finish)
        few = partial(write_in_place, evaluator, op, roles, panels, (iteration, row, column, roles.block))
        if_fewer(evaluator.writer, [(tiles.size, FEWEST_STEPS)], few, many)
