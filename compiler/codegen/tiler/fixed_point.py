"""Register tiles of many rows and a packed weight, with factors rounded to 16-bit integers: each block of steps has a
scale, and an instruction multiplies pairs of integers.

A block has up to 128 steps of the sum. The scale of a row in a block is its greatest magnitude divided by 4095, and so
is that of a column. The sum of 128 products of such integers fits in 32 bits. For two steps of a row and of a vector of
columns, a tile takes an instruction that multiplies and one that adds, where f32 takes two that do both; additions of
integers run on more ports. With AVX-VNNI, LLVM joins the two.

For each work item, about 128 rows and several panels of columns:

    for each block of steps:
        round the rows to words                        once for all panels of the work item
        for each panel:
            round the columns to words                 once for all rows of the work item
            for each tile of rows:
                part = sums of products of words       in registers, 32-bit integers
                sums[row] += part * scale of the row * scale of the columns

A word holds the steps k and k + lanes, so that two vectors of steps of a row become one vector of words without a
permutation of lanes:

    steps of a row      k ... k + 7           k + 8 ... k + 15
    words               (k, k + 8)  (k + 1, k + 9)  ...  (k + 7, k + 15)

The sum of a row depends neither on the other rows nor on the number of rows. A call of few rows multiplies in f32,
without rounding. A factor that is not finite makes the results of its row, or of its column, NaN; a call of few rows
may give infinities. Rows with magnitudes above 6e32 may give infinities where f32 does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from ....dialect.dims import bounds
from ....dialect.emitter import ROUNDED_LEAST, ROUNDED_LIMIT, ROUNDED_ROWS, ROUNDED_STEPS, Index
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import VectorUnit
from ..isa import find
from ..structured.body_nodes import Node
from ..structured.positions import Panel
from .copied import choose_block
from .decoded import DecodedTiles
from .dots import WORD, add_halves
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, constant, variable
from .nest import blocks
from .order import Order
from .packed_stretches import FEWEST_ROWS, PackedStretches, plan_packed
from .panel_rows import Block, cover_copied, write_in_place
from .prefetch import Panels
from .roles import Roles, even_groups
from .row_loops import Rows, each_row, in_tiles
from .stretches import find_shared, is_plain
from .structure import COMPOSED, Access, Op
from .text import STACK_BYTES, Value, element_bytes
from .tiles import Tiles, rows_from, tile_work_items

FLOAT = "f32"
FEWEST_STEPS = 64
"""The fewest steps of a block: the sums of a tile are scaled once for each."""
NEAREST = 1.5 * 2**23
"""A float whose last bit is 1. The lower bits of its sum with a number are those of the nearest integer."""
BLOCK_ROWS = 128
"""The most rows of a work item, but for those that fill its last tile. Rounding a panel takes as long as the products
of a dozen rows. With 256 rows, a product takes 0.96 of the time, but there are half as many work items for threads."""
BLOCK_COLUMNS = 192
"""The most columns of a work item. Rounding a row takes as long as its products with 8 columns."""
FEWEST_ITEMS = 8
"""The fewest groups of columns, as far as there are as many panels: threads divide them."""
EXACT_BYTES = 64 << 10
"""The bytes of the stack that the tiles of few rows may take."""
PARTS = 4
"""The vectors of greatest magnitudes of a row: the latency of a single one is longer than the other instructions."""
READ_TOGETHER = 8
"""The steps of a column that one iteration reads."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The blocks of an op. `products` are the rows' reads and the columns' numbers that one iteration of the innermost
    loop of the sum multiplies, in the order of the steps. A block has `turns` iterations. A work item has up to
    `panels` panels, a tile `height` rows by up to `vectors` vectors."""

    roles: Roles
    products: tuple[tuple[Node, Node], ...]
    turns: int
    panels: int
    height: int
    vectors: int

    @property
    def steps(self) -> int:
        return self.turns * len(self.products)

    @property
    def item(self) -> Roles:
        """The roles with the columns of a work item."""
        return replace(self.roles, step=self.roles.step * self.panels)


def plan_fixed_point(evaluator: Evaluator, op: Op, roles: Roles, unit: VectorUnit) -> FixedPoint | None:
    """Returns the blocks of an op whose factors may be rounded; None for other ops, and where an instruction for pairs
    is missing, or steps are no whole blocks."""
    stage, writer = evaluator.stage, evaluator.writer
    if not op.rounds_factors or not unit.pairs_of_words or roles.row is None or roles.windowed:
        return None
    if evaluator.spans or find("multiply-pairs", writer.lanes, writer.features) is None:
        return None
    size, columns = stage.sizes[roles.row], stage.sizes[roles.lane]
    if stage.around or op.body.type != FLOAT or not isinstance(columns, int) or bounds(size)[1] < ROUNDED_ROWS:
        return None
    products = _find_products(evaluator, op, roles)
    turns = _find_turns(op, len(products), writer.lanes) if products else None
    if turns is None or len(op.summed) > 2:
        return None
    width = even_groups(roles.step // writer.lanes, unit.vectors)
    # Registers hold the sums, vectors of columns, a word of a row, and two products.
    height = max(1, (unit.registers - 3 - width) // width)
    panels = -(-columns // roles.step)
    panels = even_groups(panels, min(max(1, BLOCK_COLUMNS // roles.step), -(-panels // FEWEST_ITEMS)))
    block = choose_block(stage, replace(roles, step=roles.step * panels), BLOCK_ROWS)
    roles = replace(roles, block=-(-block // height) * height, width=roles.step)
    plan = FixedPoint(roles, products, turns, panels, height, width)
    return plan if _bytes_of(plan) <= STACK_BYTES - EXACT_BYTES - writer.stack_bytes else None


def _find_products(evaluator: Evaluator, op: Op, roles: Roles) -> tuple[tuple[Node, Node], ...]:
    """Returns the products of an op, if rows and columns are factors of different reads, and the steps of a row are
    contiguous in memory."""
    number = find_shared(evaluator.stage, op, roles)
    if number is None:
        pairs = [factors if factors[1].kind == COMPOSED else factors[::-1] for factors in op.composed]
    elif any(isinstance(position, Panel) for position in op.reads[number].index):
        pairs = [(op.factor(1 - number), op.factor(number))]
    else:
        return ()
    products = tuple(sorted(pairs, key=lambda pair: _last(op.reads[pair[0].number])))
    rows = [x for x, _ in products]
    if not rows or any(x.kind != "read" or x.type != FLOAT for x in rows):
        return ()
    accesses = [op.reads[x.number] for x in rows]
    first, loop = accesses[0], op.summed[-1]
    if not is_plain(first) or first.group is not None or evaluator.stage.holds(first.tensor):
        return ()
    if first.tensor.element != FLOAT or first.step(loop) != len(products):
        return ()
    if len(products) > 1 and any(access != first.moved(step) for step, access in enumerate(accesses)):
        return ()
    return products


def _last(access: Access) -> int:
    """Returns the distance of an access to memory along its last axis."""
    last = access.index[-1] if access.index else None
    return last.constant if isinstance(last, Index) and isinstance(last.constant, int) else 0


def _find_turns(op: Op, products: int, lanes: int) -> int | None:
    """Returns the iterations of the innermost loop of a sum that form a block, or None if there are no blocks of whole
    vectors of words."""
    size = op.loops[op.summed[-1]]
    if not isinstance(size, int):
        return None
    fits = (n for n in range(min(size, ROUNDED_STEPS // products), 0, -1) if size % n == 0)
    whole = (n for n in fits if n * products % (2 * lanes) == 0 and n * products >= FEWEST_STEPS)
    return next(whole, None)


def _bytes_of(plan: FixedPoint) -> int:
    """Returns the bytes of the stack that tiles take."""
    roles, words = plan.roles, plan.steps // 2
    columns = roles.step * (plan.steps + words + 1)
    return element_bytes(WORD) * (roles.block * (words + 1 + plan.panels * roles.step) + columns)


class FixedPointTiles(Tiles):
    """The writer of work items of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, plan: FixedPoint) -> None:
        super().__init__(evaluator, op, plan.roles)
        self.plan, self.vectors = plan, plan.roles.step // evaluator.writer.lanes
        assert plan.roles.row is not None, op.location
        self.row_class = plan.roles.row
        self.words = plan.steps // 2
        """The words of a row, or of a column, in a block."""
        roles = plan.roles
        self.inner = self.stage.of(op, op.summed[-1])
        self.first = op.reads[plan.products[0][0].number]
        self.rows = evaluator.stack("rows", op, roles.block * self.words, WORD)
        self.row_scales = evaluator.stack("scales of rows", op, roles.block, FLOAT)
        self.numbers = evaluator.stack("numbers", op, plan.steps * roles.step, FLOAT)
        self.columns = evaluator.stack("columns", op, self.words * roles.step, WORD)
        self.column_scales = evaluator.stack("scales of columns", op, roles.step, FLOAT)
        self.sums = evaluator.stack("sums", op, plan.panels * roles.block * roles.step, FLOAT)

    def cover_item(
        self,
        finish: Callable[[Iteration], None],
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        panels: Rows,
    ) -> None:
        """Writes the panels from `column` on, for `rows` rows from `row` on."""
        writer, evaluator, op, step = self.writer, self.evaluator, self.op, self.roles.step

        def start(cell: Iteration, slot: Form) -> None:
            writer.store(self.sums, slot, writer.broadcast(evaluator.starting(op, cell)))

        def end(cell: Iteration, slot: Form) -> None:
            evaluator.define(op, cell, writer.load(self.sums, slot))
            finish(cell)

        def each(write: Callable[[Iteration, Form], None]) -> None:
            with each_row(writer, panels) as panel:

                def vectors(first: Form, masks: Sequence[str | None]) -> None:
                    with each_row(writer, rows) as number:
                        for v, mask in enumerate(masks):
                            cell = self._cell(iteration, row + number, first.plus(v * writer.lanes))
                            with writer.masked(mask):
                                write(cell, self._slot(panel, number, v))

                self.across(column + panel.times(step), vectors)

        each(start)
        with self._each_block() as block:
            at = {**iteration, **block}
            self._round_rows(at, row, rows)
            with each_row(writer, panels) as panel:
                self._round_columns(at, column + panel.times(step))
                in_tiles(writer, rows, self.plan.height, lambda first, count: self._add(panel, first, count))
        each(end)

    def _slot(self, panel: Form, row: Form, vector: int) -> Form:
        """Returns the position of a vector of sums."""
        number = panel.times(self.roles.block) + row
        return number.times(self.roles.step).plus(vector * self.writer.lanes) + LANES

    @contextmanager
    def _each_block(self) -> Iterator[Iteration]:
        """Writes the loops over blocks; yields the position of the first step of each."""
        writer, op = self.writer, self.op
        *around, last = op.summed
        outer = [(self.stage.of(op, loop), op.loops[loop]) for loop in around]
        size, end = writer.size(op.loops[last]), writer.size(outer[0][1]) if outer else 1
        with each_row(writer, end) as number, writer.loop(writer.size(0), size, self.plan.turns) as begin:
            yield {**{c: number for c, _ in outer}, self.inner: variable(begin)}

    # Rounding

    def _round_rows(self, block: Iteration, row: Form, rows: Rows) -> None:
        """Rounds the rows of a work item in a block."""
        writer, lanes = self.writer, self.writer.lanes
        with each_row(writer, rows) as number:
            buffer, first = self.evaluator.home(self.first, self.op, {**block, self.row_class: row + number})
            numbers = [writer.load(buffer, first.plus(n) + LANES) for n in range(0, self.plan.steps, lanes)]
            parts = self._greatest([self._least()] * PARTS, [numbers[part::PARTS] for part in range(PARTS)])
            greatest = reduce(lambda x, y: writer.apply("arith.maxsi", "", [x, y], WORD), parts)
            most = writer.let(f"vector.reduction <maxsi>, {greatest.name} : {writer.type(greatest)} into {WORD}")
            factor, scale = self._scale(Value(most, WORD))
            writer.store(self.row_scales, number, scale)
            for word, (lower, upper) in enumerate(zip(numbers[::2], numbers[1::2], strict=True)):
                slot = number.times(self.words).plus(word * lanes) + LANES
                writer.store(self.rows, slot, self._words(lower, upper, factor))

    def _round_columns(self, block: Iteration, column: Form) -> None:
        """Rounds a panel in a block."""
        writer, op, plan = self.writer, self.op, self.plan
        lanes, step = writer.lanes, self.roles.step
        each = max(1, READ_TOGETHER // len(plan.products))
        while plan.turns % each:
            each //= 2
        lane = [column.plus(v * lanes) + LANES for v in range(self.vectors)]
        with writer.carrying(writer.size(0), writer.size(plan.turns), each, [self._least()] * self.vectors) as loop:
            found: list[list[Value]] = [[] for _ in lane]
            for turn in range(each):
                index = variable(loop.index).plus(turn)
                for number, (_, node) in enumerate(plan.products):
                    for v, form in enumerate(lane):
                        at = {**block, self.inner: block[self.inner] + index, self.roles.lane: form}
                        value = writer.broadcast(self.evaluator.body(op, at, root=node))
                        position = index.times(len(plan.products)).plus(number)
                        writer.store(self.numbers, position.times(step).plus(v * lanes) + LANES, value)
                        found[v].append(value)
            loop.after = self._greatest(loop.values, found)
        factors = []
        for v, greatest in enumerate(loop.results):
            factor, scale = self._scale(greatest)
            writer.store(self.column_scales, constant(v * lanes) + LANES, scale)
            factors.append(factor)
        zero = writer.size(0)
        with writer.loop(zero, writer.size(self.words), lanes) as group, writer.loop(zero, writer.size(lanes), 1) as w:
            lower = variable(group, 2) + variable(w)
            for v, factor in enumerate(factors):
                stored = [form.times(step).plus(v * lanes) + LANES for form in (lower, lower.plus(lanes))]
                low, high = (writer.load(self.numbers, at) for at in stored)
                slot = (variable(group) + variable(w)).times(step).plus(v * lanes) + LANES
                writer.store(self.columns, slot, self._words(low, high, factor))

    def _least(self) -> Value:
        """Returns the bits of the initial value of greatest magnitudes."""
        return self.writer.broadcast(self.writer.constant(str(np.float32(ROUNDED_LEAST).view(np.int32)), WORD))

    def _greatest(self, totals: Sequence[Value], numbers: Sequence[Sequence[Value]]) -> list[Value]:
        """Returns the greatest magnitudes, as bits. Bits of NaN are greater than those of other magnitudes."""
        writer = self.writer
        words = writer.vector_type(WORD)
        mask = writer.splat(str(0x7FFFFFFF), words)
        found = []
        for total, each in zip(totals, numbers, strict=True):
            name = total.name
            for number in each:
                bits = writer.let(f"arith.bitcast {number.name} : {writer.type(number)} to {words}")
                bits = writer.let(f"arith.andi {bits}, {mask} : {words}")
                name = writer.let(f"arith.maxsi {name}, {bits} : {words}")
            found.append(Value(name, WORD, True))
        return found

    def _scale(self, greatest: Value) -> tuple[Value, Value]:
        """Returns the factor that turns numbers up to a magnitude into integers, as a vector, and the scale that
        restores them."""
        writer = self.writer
        limit = writer.constant(f"{ROUNDED_LIMIT}.0", FLOAT)
        magnitude = writer.apply("arith.bitcast", "", [greatest], FLOAT)
        factor = writer.apply("arith.divf", "", [limit, magnitude], FLOAT)
        share = writer.constant(repr(float(np.float32(1 / ROUNDED_LIMIT))), FLOAT)
        return writer.broadcast(factor), writer.apply("arith.mulf", "", [magnitude, share], FLOAT)

    def _words(self, lower: Value, upper: Value, factor: Value) -> Value:
        """Returns words of the integers next to `lower * factor` and `upper * factor`."""
        writer = self.writer
        words, floats = writer.vector_type(WORD), writer.vector_type(FLOAT)
        unit = writer.splat(f"{NEAREST:.1f}", floats)

        def nearest(number: Value) -> str:
            rounded = writer.multiply_add(number.name, factor.name, unit, floats)
            return writer.let(f"arith.bitcast {rounded} : {floats} to {words}")

        low = writer.let(f"arith.andi {nearest(lower)}, {writer.splat('65535', words)} : {words}")
        high = writer.let(f"arith.shli {nearest(upper)}, {writer.splat('16', words)} : {words}")
        return Value(writer.let(f"arith.ori {low}, {high} : {words}"), WORD, True)

    # Products

    def _add(self, panel: Form, first: Form, rows: int) -> None:
        """Adds the products of a block to the sums of a tile of rows, for all columns of a panel."""
        for begin in range(0, self.vectors, self.plan.vectors):
            with self.writer.scope(indent=False):
                self._add_tile(panel, first, rows, range(begin, min(begin + self.plan.vectors, self.vectors)))

    def _add_tile(self, panel: Form, first: Form, rows: int, vectors: Sequence[int]) -> None:
        writer, lanes, step = self.writer, self.writer.lanes, self.roles.step
        numbers = [first.plus(r) for r in range(rows)]
        nothing = [writer.broadcast(writer.constant("0", WORD))] * (rows * len(vectors))
        with writer.carrying(writer.size(0), writer.size(self.words), 1, nothing) as loop:
            word = variable(loop.index)
            columns = [writer.load(self.columns, word.times(step).plus(v * lanes) + LANES) for v in vectors]
            factors = [writer.load(self.rows, number.times(self.words) + word) for number in numbers]
            pairs = [(x, w) for x in factors for w in columns]
            loop.after = [add_halves(writer, total, x, w) for total, (x, w) in zip(loop.values, pairs, strict=True)]
        results = iter(loop.results)
        for number in numbers:
            of_row = writer.broadcast(writer.load(self.row_scales, number))
            for v in vectors:
                scale = writer.load(self.column_scales, constant(v * lanes) + LANES)
                # The product of two small scales would be denormal.
                part = writer.apply("arith.sitofp", "", [next(results)], FLOAT)
                part = writer.apply("arith.mulf", "", [part, of_row], FLOAT)
                slot = self._slot(panel, number, v)
                total = writer.load(self.sums, slot)
                name = writer.multiply_add(part.name, scale.name, total.name, writer.type(total))
                writer.store(self.sums, slot, Value(name, FLOAT, True))


def write_fixed_point(
    evaluator: Evaluator, op: Op, plan: FixedPoint, unit: VectorUnit, order: Order, begin: str, end: str
) -> None:
    stage, roles, writer = evaluator.stage, plan.roles, evaluator.writer
    assert roles.row is not None, op.location
    size, panels = stage.sizes[roles.row], blocks(stage.sizes[roles.lane], roles.step)

    def write(cover: Callable[[Iteration, Form, Form, Rows, Rows], None]) -> None:
        with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, _):
            first = column.divided(roles.step)
            assert first is not None, op.location
            rows, count = rows_from(writer, size, roles.block, row), rows_from(writer, panels, plan.panels, first)
            cover(iteration, row, column, rows, count)

    def many() -> None:
        tiles = FixedPointTiles(evaluator, op, plan)
        write(partial(tiles.cover_item, evaluator.finish))

    if bounds(size)[0] >= ROUNDED_ROWS:
        many()
        return
    # A loop of each kind: constants of one would take registers of the other.
    writer.steps.add(ROUNDED_ROWS)
    is_few = f"arith.cmpi ult, {writer.size(size)}, {writer.size(ROUNDED_ROWS)} : index"
    writer.either(writer.let(is_few), lambda: write(_exact_panels(evaluator, op, plan, unit)), many)


def _exact_panels(
    evaluator: Evaluator, op: Op, plan: FixedPoint, unit: VectorUnit
) -> Callable[[Iteration, Form, Form, Rows, Rows], None]:
    """Returns the writer of a work item of few rows, in f32."""
    fetched = Panels(plan.roles.step, (), plan.roles.prefetches)
    roles = replace(plan.roles, block=ROUNDED_ROWS, width=plan.vectors * evaluator.writer.lanes)
    write = _exact_panel(evaluator, op, roles, unit, fetched)

    def item(iteration: Iteration, row: Form, column: Form, rows: Rows, panels: Rows) -> None:
        with each_row(evaluator.writer, panels) as panel:
            write((iteration, row, column + panel.times(roles.step), rows))

    return item


def _exact_panel(
    evaluator: Evaluator, op: Op, roles: Roles, unit: VectorUnit, fetched: Panels
) -> Callable[[Block], None]:
    if op.composed:
        decoded = DecodedTiles(evaluator, op, roles)
        return lambda block: decoded.cover_block(*block, evaluator.finish)
    copies = plan_packed(evaluator, op, roles, unit)
    if copies is None:
        return lambda block: write_in_place(evaluator, op, roles, fetched, block)
    stretches = PackedStretches(evaluator, op, copies)
    return lambda block: cover_copied(stretches, FEWEST_ROWS, fetched, block)
