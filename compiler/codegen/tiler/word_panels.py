"""Register tiles of products of bytes or of bf16 with a packed weight, on CPUs without an instruction that multiplies
words of them: words of both factors are split into halves first.

    word of bytes     b3 b2 b1 b0      four steps of a sum       word of bf16     w1 w0      two steps
    even half            b2    b0      each in 16 bits           even half           w0      in f32
    odd half             b3    b1                                odd half            w1

The words of a panel are split once for all rows of a work item, a stretch of the sum at a time, and those of the rows
of a tile once for all columns of the panel. For each word, a tile then takes four instructions for bytes, two for bf16,
and loads:

    for each stretch of the sum:
        split the panel, `step` columns                       onto the stack
        for each tile of rows:
            split the rows of the tile                        onto the stack
            for each tile of columns:
                for each word, for each half:
                    sums[row] += products of x[row] * columns in registers
        sums are carried to the next stretch on the stack

A row is one position of all loops that move the result, but not the weight. So the 49 pixels of an image of 7 by 7 are
13 tiles of 4 and of 3 rows, where tiles that end with a line of the image would be 14. Sums of bytes are exact; those
of bf16 follow the order of the reduction loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ....dialect.dims import Size, bounds, product, static_size
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import VectorUnit
from ..isa import find
from ..structured.positions import Panel
from .dots import HALVES, WORD, add_halves, half_word, has_instruction
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, constant, variable
from .level_tiles import level_heights
from .nest import blocks, numbers_of, work_items
from .order import PART
from .prefetch import Panels, prefetch_panels
from .roles import Roles, even_groups
from .row_loops import Rows, each_row, in_tiles
from .structure import Access, Op
from .text import STACK_BYTES, Value, element_bytes
from .tiles import Cell, Tiles, cover_rows, rows_from

FEWEST_ROWS = 5
"""The fewest rows of a call that make splitting a panel on the stack profitable, where tiles of `tiles.py` would leave
a single row."""
FEWEST_KNOWN_ROWS = 12
"""The same for a known number of rows, which those tiles divide evenly."""
BLOCK_ROWS = 96
"""The most rows that share a split panel. Splitting it takes as long as the products of one or two rows."""
FEWEST_BLOCK_ROWS = 32
"""The fewest rows of a block that divides the number of rows."""
MOST_WORDS = 64
"""The most words of a stretch: a panel of 48 columns and the rows of a tile then stay in the first cache."""


Loops = Sequence[tuple[tuple[int, ...], Size]]


@dataclass(frozen=True, slots=True)
class WordPanels:
    """The index of the weight's read, and the classes of the rows, whose positions are counted together; `outer` are
    the other classes. A work item has `block` rows, a tile up to `height` rows by `vectors` vectors."""

    roles: Roles
    weight: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]
    block: int
    height: int
    vectors: int
    counts: tuple[Size, ...]
    panels_first: bool

    def positions(self, numbers: Sequence[Form]) -> tuple[Iteration, Form, Form]:
        """Returns the position outside of a work item, its first row and its first column."""
        *outer, first, second = numbers
        panel, row = (first, second) if self.panels_first else (second, first)
        return dict(zip(self.outer, outer, strict=True)), row.times(self.block), panel.times(self.roles.step)


def plan_word_panels(evaluator: Evaluator, op: Op, roles: Roles, unit: VectorUnit) -> WordPanels | None:
    """Returns the tiles of an op that sums products of words; None for other ops, for few rows, and where an
    instruction multiplies words."""
    stage, writer, weight = evaluator.stage, evaluator.writer, _find_weight(evaluator, op, roles)
    if unit.split_words is None or weight is None or roles.row is None or roles.windowed or evaluator.spans:
        return None
    fixed = {stage.of(op, i) for i in op.reads[weight].loops()}
    rows = tuple(c for c in (*roles.outer, roles.row) if c not in fixed)
    size = product(stage.sizes[c] for c in rows)
    if roles.row not in rows or bounds(size)[1] < (FEWEST_KNOWN_ROWS if isinstance(size, int) else FEWEST_ROWS):
        return None
    # Few rows are a tile of `tiles.py`, which has rows of one class.
    if bounds(size)[0] < FEWEST_ROWS and any(stage.sizes[c] != 1 for c in rows if c != roles.row):
        return None
    block, (height, vectors) = _choose_block(size), unit.split_words
    if op.body.type == "f32":
        height = max(unit.rows, unit.tall)
    taken = MOST_WORDS * len(HALVES) * (roles.step + height) + block * roles.step
    if taken * element_bytes(WORD) > STACK_BYTES - writer.stack_bytes:
        return None
    outer = tuple(c for c in roles.outer if c in fixed)
    panels, times = blocks(stage.sizes[roles.lane], roles.step), blocks(size, block)
    panels_first = _are_panels_first(op, weight, roles, bounds(panels)[1], bounds(times)[1])
    counts = (*(stage.sizes[c] for c in outer), *((panels, times) if panels_first else (times, panels)))
    roles = replace(roles, width=roles.step)
    return WordPanels(roles, weight, rows, outer, block, height, vectors, counts, panels_first)


def _find_weight(evaluator: Evaluator, op: Op, roles: Roles) -> int | None:
    """Returns the read of the packed weight, where an op sums products of its words with words in memory, and no
    instruction multiplies them."""
    stage, writer = evaluator.stage, evaluator.writer
    if op.body.kind != "dot" or op.composed or len(op.reads) != 2 or stage.around:
        return None
    if has_instruction(op.body, writer.features, writer.lanes) or any(n.kind != "read" for n in op.body.operands[1:]):
        return None
    if op.body.type == WORD and find("multiply-pairs", writer.lanes, writer.features) is None:
        return None
    packed = [any(isinstance(position, Panel) for position in access.index) for access in op.reads]
    along = [roles.lane in {stage.of(op, i) for i in access.loops()} for access in op.reads]
    if packed != along or sum(packed) != 1:
        return None
    if any(stage.holds(access.tensor) or access.tensor.view is None for access in op.reads):
        return None
    groups = [access.group for access in op.reads]
    if any(group is None or group.stride != 1 or group.loop != op.reduced[-1] for group in groups):
        return None
    known = all(isinstance(op.loops[i], int) and op.loops[i] != 0 for i in op.reduced)
    return packed.index(True) if known else None


def _are_panels_first(op: Op, weight: int, roles: Roles, panels: float, times: float) -> bool:
    """Returns whether all rows take a panel before the next one, rather than a block of rows all panels: the operand
    that is read again, where it does not stay in the cache, has fewer bytes then."""

    def bytes_again(number: int, turns: float) -> float:
        tensor = op.reads[number].tensor
        bytes = bounds(product(tensor.shape))[1] * element_bytes(tensor.element)
        return 0 if bytes <= roles.caches.own // PART else bytes * (turns - 1)

    return bytes_again(1 - weight, panels) <= bytes_again(weight, times)


def has_rest(access: Access) -> bool:
    """Returns whether the last word of the rows has fewer bytes."""
    return access.group is not None and access.group.rest != 0


def _choose_block(size: Size) -> int:
    """Returns the rows of a work item: an equal part of the rows if there is one."""
    if not isinstance(size, int):
        return min(BLOCK_ROWS, int(min(bounds(size)[1], BLOCK_ROWS)))
    equal = (n for n in range(min(size, BLOCK_ROWS), FEWEST_BLOCK_ROWS - 1, -1) if size % n == 0)
    return next(equal, even_groups(size, BLOCK_ROWS))


def _words(loops: Loops) -> int:
    """Returns the words of nested loops."""
    return prod(static_size(size) for _, size in loops)


class WordPanelTiles(Tiles):
    """The writer of blocks of rows of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, plan: WordPanels) -> None:
        super().__init__(evaluator, op, plan.roles)
        self.plan = plan
        factors = zip(op.body.operands[1:], op.body.text.split(), strict=True)
        words = {node.number: (node, widening) for node, widening in factors}
        (self.weight, self.of_weight), (self.moving, self.of_moving) = words[plan.weight], words[1 - plan.weight]
        first = len(self.loops) - 1
        while first > 0 and _words(self.loops[first - 1 :]) <= MOST_WORDS:
            first -= 1
        self.around, self.within = self.loops[:first], self.loops[first:]
        words_of_stretch, lanes = _words(self.within), self.writer.lanes
        if words_of_stretch > MOST_WORDS:
            words_of_stretch = -(-even_groups(words_of_stretch, MOST_WORDS) // lanes) * lanes
        self.depth = words_of_stretch
        self.at_once = self.depth >= _words(self.loops)
        self.half = op.body.type
        """The type of a half of a word."""
        self.fetched = Panels(self.roles.step, (), self.roles.prefetches)
        self.panel = evaluator.stack("panel", op, self.depth * len(HALVES) * self.roles.step, self.half)
        self.split_rows = evaluator.stack("rows", op, plan.height * len(HALVES) * self.depth, self.half)
        self.sums = evaluator.stack("sums", op, plan.block * self.roles.step)

    def cover_block(
        self, iteration: Iteration, row: Form, column: Form, rows: Rows, finish: Callable[[Iteration], None]
    ) -> None:
        """Writes all lanes of the panel that begins at `column`, for `rows` rows from `row` on."""
        self.across(column, lambda start, masks: self._block(iteration, row, start, rows, masks, finish))

    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        writer, evaluator, op = self.writer, self.evaluator, self.op
        numbers = range(len(masks))

        def cells(first: Form, count: int, vectors: Sequence[int]) -> list[Cell]:
            found: list[Cell] = []
            for r in range(count):
                at = {**iteration, **self._row(row + first.plus(r))}
                for v in vectors:
                    lane = v * writer.lanes
                    slot = first.plus(r).times(self.roles.step).plus(lane) + LANES
                    found.append((masks[v], {**at, self.roles.lane: column.plus(lane) + LANES}, slot))
            return found

        def start(first: Form, count: int, vectors: Sequence[int]) -> list[Value]:
            starts = []
            for mask, at, _ in cells(first, count, vectors):
                with writer.masked(mask):
                    starts.append(writer.broadcast(evaluator.starting(op, at)))
            return starts

        def end(first: Form, count: int, vectors: Sequence[int], totals: Sequence[Value]) -> None:
            for (mask, at, _), total in zip(cells(first, count, vectors), totals, strict=True):
                with writer.masked(mask):
                    evaluator.define(op, at, total)
                    finish(at)

        def slots(first: Form, count: int, vectors: Sequence[int]) -> Iterator[Form]:
            for r in range(count):
                for v in vectors:
                    yield first.plus(r).times(self.roles.step).plus(v * writer.lanes) + LANES

        def stretch(begin: Iteration, words: int) -> None:
            self._split_columns({**iteration, **begin}, column, len(masks), words)

            def tile(first: Form, count: int) -> None:
                self._split_tile({**iteration, **begin}, row + first, count, words)
                for v in range(0, len(masks), self.plan.vectors):
                    vectors = numbers[v : v + self.plan.vectors]
                    with writer.scope(indent=False):
                        if self.at_once:
                            end(first, count, vectors, self._add(start(first, count, vectors), count, vectors, words))
                            continue
                        totals = [writer.load(self.sums, slot) for slot in slots(first, count, vectors)]
                        totals = self._add(totals, count, vectors, words)
                        for slot, total in zip(slots(first, count, vectors), totals, strict=True):
                            writer.store(self.sums, slot, total)

            self._each_tile(rows, tile)

        if not self.at_once:
            with each_row(writer, rows) as first:
                for slot, total in zip(slots(first, 1, numbers), start(first, 1, numbers), strict=True):
                    writer.store(self.sums, slot, total)
        self._each_stretch(stretch)
        if not self.at_once:
            with each_row(writer, rows) as first:
                end(first, 1, numbers, [writer.load(self.sums, slot) for slot in slots(first, 1, numbers)])

    def _row(self, row: Form) -> Iteration:
        """Returns the position of a row in the classes of rows."""
        sizes = [self.stage.sizes[c] for c in self.plan.rows]
        varying = [c for c, size in zip(self.plan.rows, sizes, strict=True) if size != 1]
        if len(varying) <= 1:
            return {c: row if c in varying else constant(0) for c in self.plan.rows}
        return dict(zip(self.plan.rows, numbers_of(self.writer, sizes, self.writer.index(row)), strict=True))

    def _each_tile(self, rows: Rows, write: Callable[[Form, int], None]) -> None:
        if isinstance(rows, str):
            in_tiles(self.writer, rows, self.plan.height, write)
            return
        heights, first = level_heights(rows, self.plan.height), 0
        for count in sorted(set(heights), reverse=True):
            after = first + count * heights.count(count)
            with self.writer.loop(self.writer.size(first), self.writer.size(after), count) as row:
                write(variable(row), count)
            first = after

    def _each_stretch(self, write: Callable[[Iteration, int], None]) -> None:
        """Writes the loops of the sum around its stretches; `write` receives the position and the words of each."""
        writer = self.writer

        def stretches(at: Iteration) -> None:
            *outer, (numbers, size) = self.within
            begin = {**at, **{self.stage.of(self.op, n): constant(0) for loop, _ in self.within for n in loop}}
            if self.depth >= _words(self.within):
                with writer.scope(indent=False):
                    write(begin, self.depth)
                return
            assert not outer, self.op.location
            moving, words = self.stage.of(self.op, numbers[-1]), static_size(size)
            # An incomplete last word has a position of its own.
            whole = (words - has_rest(self.op.reads[self.moving.number])) // self.depth * self.depth
            with writer.loop(writer.size(0), writer.size(whole), self.depth) as step:
                write({**begin, moving: variable(step)}, self.depth)
            if whole < words:
                with writer.scope(indent=False):
                    write({**begin, moving: constant(whole)}, words - whole)

        self._nest(self.around, {}, stretches)

    def _nest(self, loops: Loops, at: Iteration, write: Callable[[Iteration], None]) -> None:
        """Writes nested loops of the sum."""
        if not loops:
            write(at)
            return
        (numbers, size), *inner = loops
        classes = [self.stage.of(self.op, n) for n in numbers]
        at = {**at, **dict.fromkeys(classes, constant(0))}
        if size == 1:
            self._nest(inner, at, write)
            return
        with self.writer.loop(self.writer.size(0), self.writer.size(size), 1) as step:
            self._nest(inner, {**at, classes[-1]: variable(step)}, write)

    # Halves of words

    def _word(self, at: Iteration) -> Form:
        """Returns the number of a word in its stretch, from a position relative to that of the stretch."""
        total = constant(0)
        for numbers, size in self.within:
            total = total.times(size) + at[self.stage.of(self.op, numbers[-1])]
        return total

    def _moved(self, begin: Iteration, at: Iteration) -> Iteration:
        return {**begin, **{c: begin[c] + form for c, form in at.items()}}

    def _split_columns(self, begin: Iteration, column: Form, vectors: int, words: int) -> None:
        """Splits the words of a panel in a stretch."""
        writer = self.writer
        *outer, (numbers, size) = self.within

        def split(at: Iteration) -> None:
            cells = [
                self._cell(self._moved(begin, at), constant(0), column.plus(v * writer.lanes)) for v in range(vectors)
            ]
            prefetch_panels(self.evaluator, self.op, self.plan.weight, cells, self.fetched)
            for v, here in enumerate(cells):
                read = self.evaluator.body(self.op, here, root=self.weight)
                for part, half in enumerate(HALVES):
                    slot = self._column_slot(self._word(at), part, v)
                    writer.store(self.panel, slot, half_word(writer, read, self.of_weight, half))

        self._nest([*outer, (numbers, min(words, static_size(size)))], {}, split)

    def _column_slot(self, word: Form, part: int, vector: int) -> Form:
        step = self.roles.step
        return word.times(len(HALVES) * step).plus(part * step + vector * self.writer.lanes) + LANES

    def _split_tile(self, begin: Iteration, row: Form, count: int, words: int) -> None:
        """Splits the words of the rows of a tile, in vectors as far as whole words fill them."""
        writer, lanes = self.writer, self.writer.lanes
        *outer, (numbers, size) = self.within
        steps, last = min(words, static_size(size)), self.stage.of(self.op, numbers[-1])
        whole = (steps - has_rest(self.op.reads[self.moving.number])) // lanes * lanes
        type = writer.vector_type(self.half)

        def split(at: Iteration) -> None:
            for step in (*range(0, whole, lanes), *range(whole, steps)):
                is_vector = step < whole
                here = {**at, **dict.fromkeys(self._classes(numbers), constant(0)), last: constant(step)}
                moved = self._moved(begin, {**here, last: here[last] + LANES} if is_vector else here)
                read = self.evaluator.body(self.op, moved, root=self.moving)
                for part, half in enumerate(HALVES):
                    value, slot = (
                        half_word(writer, read, self.of_moving, half),
                        self._row_slot(number, part, self._word(here)),
                    )
                    if is_vector:
                        writer.store(self.split_rows, slot + LANES, value)
                    else:
                        first = writer.let(f"vector.extract {value.name}[0] : {self.half} from {type}")
                        writer.store(self.split_rows, slot, Value(first, self.half))

        with each_row(writer, count) as number:
            begin = {**begin, **self._row(row + number)}
            self._nest(outer, {}, split)

    def _classes(self, loops: Sequence[int]) -> list[int]:
        return [self.stage.of(self.op, n) for n in loops]

    def _row_slot(self, number: Form, part: int, word: Form) -> Form:
        return number.times(len(HALVES) * self.depth).plus(part * self.depth) + word

    def _add(self, totals: Sequence[Value], rows: int, vectors: Sequence[int], words: int) -> list[Value]:
        """Returns the sums of a tile after the words of a stretch, one half of all vectors before the other, since
        both would take too many registers."""
        writer = self.writer
        with writer.carrying(writer.size(0), writer.size(words), 1, totals) as loop:
            sums, word = list(loop.values), variable(loop.index)
            for part in range(len(HALVES)):
                columns = [writer.load(self.panel, self._column_slot(word, part, v)) for v in vectors]
                for number in range(rows):
                    x = writer.load(self.split_rows, self._row_slot(constant(number), part, word))
                    for v, of_columns in enumerate(columns):
                        cell = number * len(vectors) + v
                        with writer.at(self.op.body.location):
                            sums[cell] = add_halves(writer, sums[cell], x, of_columns)
            loop.after = sums
        return loop.results


def write_word_panels(evaluator: Evaluator, op: Op, roles: Roles, plan: WordPanels, begin: str, end: str) -> None:
    writer, tiles = evaluator.writer, WordPanelTiles(evaluator, op, plan)
    size = product(evaluator.stage.sizes[c] for c in plan.rows)
    alone = Tiles(evaluator, op, roles, Panels(roles.step, (), roles.prefetches))
    with work_items(writer, plan.counts, begin, end) as numbers:
        iteration, row, column = plan.positions(numbers)

        def write(rows: Rows) -> None:
            tiles.cover_block(iteration, row, column, rows, evaluator.finish)

        def write_few(rows: int) -> None:
            alone.cover(iteration, row, column, rows, evaluator.finish)

        if isinstance(size, int):
            cover_rows(evaluator, size, plan.block, row, write)
        else:
            rows = rows_from(writer, size, plan.block, row)
            assert isinstance(rows, str), rows
            many = partial(write, rows)
            if bounds(size)[0] >= FEWEST_ROWS:
                many()
            else:
                is_few = writer.let(f"arith.cmpi ult, {rows}, {writer.size(FEWEST_ROWS)} : index")
                few = partial(writer.switch, rows, range(FEWEST_ROWS - 1, 0, -1), write_few)
                writer.either(is_few, few, many)
