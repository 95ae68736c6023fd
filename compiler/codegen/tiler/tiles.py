"""Register tiles: a reduction as loops around a block of accumulators that stay in vector registers.

The lane class runs along contiguous memory of the operands. The row class is one that some vector operand does not use,
so that all rows share its loads. The other parallel classes become outer loops. Sizes may be known at run time only:
remainder rows run through a tile of exactly that many rows, remainder lanes through a mask.

The tile of result[i, j] = sum of x[i, k] * w[k, j], for `rows` rows and `width` lanes:

    for k:                                                the accumulators total[r, v] stay in registers
        load the vectors w[k, column + v * lanes ...]     shared by all rows
        for each row r: total[r, v] += broadcast(x[row + r, k]) * (vector v of w)
    store total[r, v] to result[row + r, column + v * lanes ...]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....dialect.dims import Size, add, bounds, multiply, static_size
from ....dialect.emitter import Index
from ..structured.positions import Panel
from .evaluate import Evaluator, Iteration, Span
from .forms import LANES, Form, constant, variable
from .nest import work_items
from .nonzeros import Nonzeros, find_sparse_sum, prefetch_rows
from .order import Order
from .prefetch import Panels, prefetch_panels, steps_of_a_fetch
from .roles import Roles
from .row_loops import Rows
from .structure import Access, Op, Page
from .text import Value, Writer
from .widening import choose_stretch, find_rows, widen_rows
from .windows import order_steps

Cell = tuple[str | None, Iteration, Form]
"""A vector of results: its mask, its position, and the location of its sum."""
NO_SHIFT = constant(0)
FEWEST_STEPS = 4
"""The least number of steps that get a loop of their own, so that one prefetch serves them."""


class Tiles:
    """The writer of one op's tiles."""

    def __init__(
        self,
        evaluator: Evaluator,
        op: Op,
        roles: Roles,
        panels: Panels | None = None,
        nonzeros: Nonzeros | None = None,
    ) -> None:
        self.evaluator, self.op, self.roles, self.panels, self.nonzeros = evaluator, op, roles, panels, nonzeros
        self.writer, self.stage = evaluator.writer, evaluator.stage
        self.loops = self._merged()

    # Reduction loops

    def _merged(self) -> list[tuple[tuple[int, ...], Size]]:
        """Returns the loops of the sum; neighbouring loops that move through memory as one are merged."""
        op = self.op
        groups: list[tuple[tuple[int, ...], Size]] = [((i,), op.loops[i]) for i in op.reduced]
        # An op that reads a loop's index needs the loop unmerged.
        if self.roles.windowed or any(n.kind in ("index", "extract") for n in op.body.walk()):
            return groups
        # From the innermost pair outwards, so that a merged loop may be merged again with the loop around it.
        position = len(groups) - 2
        while position >= 0:
            (first, outer), (second, inner) = groups[position], groups[position + 1]
            if all(self._as_one(a, first[-1], second[-1], inner) for a in op.reads):
                groups[position : position + 2] = [((*first, *second), multiply(outer, inner))]
            position -= 1
        return groups

    def _as_one(self, access: Access, first: int, second: int, inner: Size) -> bool:
        if self.stage.holds(access.tensor) or any(
            self.stage.of(self.op, n) in self.evaluator.spans for n in (first, second)
        ):
            return False
        # One step of the outer loop moves as far as all steps of the inner one: i * inner + j counts through memory.
        here, there = access.step(first), access.step(second)
        return here is not None and there is not None and here == multiply(there, inner)

    # Tiles

    def cover(
        self, iteration: Iteration, row: Form, column: Form, rows: int, finish: Callable[[Iteration], None]
    ) -> None:
        """Writes all lanes from `column` on that belong to one panel, for `rows` rows from `row` on."""
        self.across(column, lambda start, masks: self._tile(iteration, row, start, rows, masks, finish))

    def across(self, column: Form, write: Callable[[Form, Sequence[str | None]], None]) -> None:
        """Writes all lanes from `column` on that belong to one panel, a tile at a time; `write` receives the tile's
        first lane and a mask for each of its vectors."""
        roles, writer = self.roles, self.writer
        size, step, lanes = self.stage.sizes[roles.lane], roles.step, writer.lanes
        if isinstance(size, int):
            whole, rest = divmod(size, step)
            if rest == 0 or whole == 0:
                self._panel(column, min(size, step), write)
                return
            # The last panel has a known width too, so both cases are written without masks that depend on the call.
            is_whole = writer.let(f"arith.cmpi ult, {writer.index(column)}, {writer.size(whole * step)} : index")
            writer.either(is_whole, lambda: self._panel(column, step, write), lambda: self._panel(column, rest, write))
            return
        end = writer.size(size)
        past = writer.let(f"arith.addi {writer.index(column)}, {writer.size(step)} : index")
        is_whole = writer.let(f"arith.cmpi ule, {past}, {end} : index")

        def masked() -> None:
            # The width is known in the call only: one vector at a time, the last one under a mask.
            with writer.loop(writer.index(column), end, lanes) as start:
                if writer.is_multiple(column, lanes):
                    writer.multiples[start] = lanes
                left = writer.let(f"arith.subi {end}, {start} : index")
                write(variable(start), [writer.first_lanes(variable(left))])

        writer.either(is_whole, lambda: self._panel(column, step, write), masked)

    def _panel(self, column: Form, width: int, write: Callable[[Form, Sequence[str | None]], None]) -> None:
        """Writes `width` lanes, in tiles side by side."""
        lanes = self.writer.lanes
        for start in range(0, width, self.roles.width):
            left = min(self.roles.width, width - start)
            masks: list[str | None] = [None] * (left // lanes)
            if left % lanes:
                masks.append(self.writer.first_lanes(constant(left % lanes)))
            with self.writer.scope():
                write(column.plus(start), masks)

    def _tile(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: int,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        # Row by row: `_step` and `_sum_window` rely on this order to find the cells of a row.
        cells = [(r, v) for r in range(rows) for v in range(len(masks))]
        iterations = [self._cell(iteration, row.plus(r), column.plus(v * self.writer.lanes)) for r, v in cells]
        starts: list[Value] = []
        for (_, v), at in zip(cells, iterations, strict=True):
            with self.writer.masked(masks[v]):
                starts.append(self.writer.broadcast(self.evaluator.starting(self.op, at)))
        totals = self._sum(list(self.loops), iterations, [masks[v] for _, v in cells], starts, rows)
        for (_, v), at, total in zip(cells, iterations, totals, strict=True):
            with self.writer.masked(masks[v]):
                self.evaluator.define(self.op, at, total)
                finish(at)

    def cells(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        masks: Sequence[str | None],
        first: Form,
        count: int,
        shift: Form = NO_SHIFT,
    ) -> Iterator[Cell]:
        """Yields the cells of `count` rows from `row + first + shift` on; their sums are stored from row `first` of a
        block on."""
        begin = row + first + shift
        for r in range(count):
            for v, mask in enumerate(masks):
                lane = v * self.writer.lanes
                slot = first.plus(r).times(self.roles.width).plus(lane) + LANES
                yield mask, self._cell(iteration, begin.plus(r), column.plus(lane)), slot

    def _cell(self, iteration: Iteration, row: Form, column: Form) -> Iteration:
        at = {**iteration, self.roles.lane: column + LANES}
        return at if self.roles.row is None else {**at, self.roles.row: row}

    def _sum(
        self,
        loops: list[tuple[tuple[int, ...], Size]],
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: list[Value],
        rows: int,
        within: bool = False,
    ) -> list[Value]:
        """Sums the products; `within` the loops that leave the common factor of all products invariant, the factor is
        omitted."""
        if self.roles.windowed and len(loops) == len(self.loops) and self.op.scaled is None:
            return self._sum_window(iterations, masks, totals, rows)
        if not within and self._stands_still(loops):
            return self._sum_scaled(loops, iterations, masks, totals, rows)
        if not loops:
            return self._step(iterations, masks, totals, rows, within)
        # A merged loop counts in its last class; the other classes stand at 0.
        (numbers, size), *inner = loops
        classes = [self.stage.of(self.op, n) for n in numbers]
        fixed = dict.fromkeys(classes[:-1], constant(0))

        def at(form: Form) -> list[Iteration]:
            return [{**p, **fixed, classes[-1]: form} for p in iterations]

        if size == 1 or (self.roles.windowed and isinstance(size, int)):
            for number in range(static_size(size)):
                totals = self._sum(inner, at(constant(number)), masks, totals, rows, within)
            return totals
        writer = self.writer
        if self.nonzeros is not None and not inner:
            return self._sum_nonzeros(self.nonzeros, iterations[0], at, masks, totals, rows, within)
        width = self._page_width(numbers[-1])
        if width is not None:
            return self._sum_pages(
                width, classes[-1], lambda form, n: self._sum(inner, at(form), masks, n, rows), totals
            )
        if classes[-1] in self.evaluator.spans:
            # A mask leaves only these steps with weights other than 0: see `bounded`.
            span = self.evaluator.span(classes[-1])
            with writer.carrying(span.first, span.last, span.together, totals) as loop:
                self._fetch_ahead(at(variable(loop.index)), loop.index, span)
                totals = loop.values
                for step in range(span.together):
                    here = at(variable(loop.index).plus(step))
                    totals = self._sum(inner, here, masks, totals, rows, within)
                loop.after = totals
            return loop.results
        # An incomplete last group is a separate step.
        whole = size if self._is_whole(numbers[-1]) else add(size, -1)
        begin = 0
        if not inner and isinstance(whole, int):
            begin, totals = self._sum_widened(numbers[-1], whole, at, masks, totals, rows)
        together = self._steps_of_a_fetch(whole, within) if begin == 0 and not inner and isinstance(whole, int) else 1
        if together > 1 and isinstance(whole, int):
            totals = self._sum_fetched(whole, together, at, masks, totals, rows, within)
        elif begin != whole:
            with writer.carrying(writer.size(begin), writer.size(whole), 1, totals) as loop:
                loop.after = self._sum(inner, at(variable(loop.index)), masks, loop.values, rows, within)
            totals = loop.results
        return totals if whole == size else self._sum(inner, at(constant(whole)), masks, totals, rows, within)

    def _fetch_ahead(self, iterations: Sequence[Iteration], step: str, span: Span) -> None:
        """Prefetches memory that a later tile reads. It is called in each iteration of a loop over the steps of a sum
        in `span`: many prefetches at once would wait for each other."""

    def _steps_of_a_fetch(self, steps: int, within: bool) -> int:
        """Returns the number of steps that one prefetch serves, out of those of the innermost loop; 1 if a loop around
        as few steps would cost more than the prefetches."""
        reads = self._fetched_panels(within)
        if self.panels is None or len(reads) != 1:
            return 1
        access = self.op.reads[reads[0]]
        words = sum(each.tensor is access.tensor for each in self.op.reads)
        together = steps_of_a_fetch(self.panels, access, self.writer.lanes, steps, words)
        return together if together >= FEWEST_STEPS else 1

    def _fetched_panels(self, within: bool) -> list[int]:
        """Returns the panels that the innermost loop prefetches; `within` is as for `_sum`."""
        standing = self._standing() if within and self.panels is not None and not self.panels.may_share else ()
        return [number for number in self.shared_panels() if number not in standing and self._is_first(number)]

    def _is_first(self, number: int) -> bool:
        """Returns whether no earlier read is of the same tensor: one prefetch serves words side by side."""
        return all(each.tensor is not self.op.reads[number].tensor for each in self.op.reads[:number])

    def shared_panels(self) -> list[int]:
        """Returns the reads of panels that all rows share."""
        loop = self._row_loop()
        return [
            number
            for number, access in enumerate(self.op.reads)
            if loop not in access.loops() and any(isinstance(p, Panel) for p in access.index)
        ]

    def _sum_fetched(
        self,
        steps: int,
        together: int,
        at: Callable[[Form], list[Iteration]],
        masks: Sequence[str | None],
        totals: list[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Sums over the innermost loop, with one prefetch for some steps `together`."""
        writer, panels = self.writer, self.panels
        assert panels is not None
        (number,) = self._fetched_panels(within)
        with writer.carrying(writer.size(0), writer.size(steps), together, totals) as outer:
            first = variable(outer.index)
            iterations = at(first)
            prefetch_panels(self.evaluator, self.op, number, iterations[: len(iterations) // rows], panels)
            self.panels = None
            with writer.carrying(writer.size(0), writer.size(together), 1, outer.values) as loop:
                loop.after = self._step(at(first + variable(loop.index)), masks, loop.values, rows, within)
            self.panels = panels
            outer.after = loop.results
        return outer.results

    def _sum_nonzeros(
        self,
        nonzeros: Nonzeros,
        outside: Iteration,
        at: Callable[[Form], list[Iteration]],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Sums over the listed steps of the innermost loop."""
        outer = outside[self.stage.of(self.op, self.op.reduced[0])] if len(self.op.reduced) > 1 else constant(0)
        first, last = nonzeros.span(self.writer, outer)
        with self.writer.carrying(first, last, 1, totals) as loop:
            number = variable(loop.index)
            iterations = at(nonzeros.step(self.writer, number, outer))
            prefetch_rows(self.evaluator, self.op, nonzeros, number, iterations[0])
            loop.after = self._step(iterations, masks, loop.values, rows, within)
        return loop.results

    def _page_width(self, loop: int) -> int | None:
        """Returns the width of the pages that a step of the sum is read from."""
        pages = (p for access in self.op.reads for p in access.index if isinstance(p, Page))
        return next((p.width for p in pages if p.index == Index(((loop, 1),))), None)

    def _sum_pages(
        self, width: int, c: int, add: Callable[[Form, list[Value]], list[Value]], totals: Sequence[Value]
    ) -> list[Value]:
        """Sums over a class page by page, so that a page is looked up once; `add` adds the step at a form."""
        writer, span = self.writer, self.evaluator.span(c)

        def let(operation: str, left: str, right: str | int) -> str:
            right = writer.size(right) if isinstance(right, int) else right
            return writer.let(f"arith.{operation} {left}, {right} : index")

        end = let("divui", let("addi", span.last, width - 1), width)
        with writer.carrying(let("divui", span.first, width), end, 1, totals) as pages:
            begin = let("muli", pages.index, width)
            first = let("subi", let("maxui", span.first, begin), begin)
            last = let("subi", let("minui", span.last, let("addi", begin, width)), begin)
            with writer.carrying(first, last, 1, pages.values) as loop:
                writer.below[loop.index] = width
                loop.after = add(variable(pages.index, width) + variable(loop.index), loop.values)
            pages.after = loop.results
        return pages.results

    def _sum_window(
        self, iterations: Sequence[Iteration], masks: Sequence[str | None], totals: Sequence[Value], rows: int
    ) -> list[Value]:
        """Returns the sums over a whole window."""
        after, width = list(totals), len(iterations) // rows
        for step, row in order_steps(self.op, self._row_loop(), rows):
            for cell in range(row * width, (row + 1) * width):
                at = {**iterations[cell], **{self.stage.of(self.op, n): constant(i) for n, i in step.items()}}
                with self.writer.masked(masks[cell]):
                    after[cell] = self.writer.broadcast(self._accumulate(at, after[cell], within=False))
        return after

    def _row_loop(self) -> int | None:
        row = self.roles.row
        return None if row is None else next(i for i in range(len(self.op.loops)) if self.stage.of(self.op, i) == row)

    def _sum_widened(
        self,
        innermost: int,
        groups: int,
        at: Callable[[Form], list[Iteration]],
        masks: Sequence[str | None],
        totals: list[Value],
        rows: int,
    ) -> tuple[int, list[Value]]:
        """Returns the number of groups of the innermost loop that are summed with rows widened in advance, and the
        sums."""
        writer, row = self.writer, self.roles.row
        number = find_rows(self.op, innermost, self._row_loop(), writer.features, writer.lanes)
        if number is None or row is None:
            return 0, totals
        stretch = choose_stretch(groups, self.op.reads[number].width, writer.lanes)
        if stretch == 0:
            return 0, totals
        begin = groups // stretch * stretch
        with writer.carrying(writer.size(0), writer.size(begin), stretch, totals) as outer:
            first = variable(outer.index)
            iterations = at(first)
            widen_rows(self.evaluator, self.op, number, row, iterations[:: len(iterations) // rows], stretch)
            with writer.carrying(writer.size(0), writer.size(stretch), 1, outer.values) as loop:
                loop.after = self._step(at(first + variable(loop.index)), masks, loop.values, rows, False)
            outer.after = loop.results
        del self.evaluator.widened[id(self.op), number]
        return begin, outer.results

    def _is_whole(self, loop: int) -> bool:
        """Returns whether all groups that the steps of a loop read have the same size."""
        return all(a.group is None or a.group.loop != loop or a.group.rest == 0 for a in self.op.reads)

    def _stands_still(self, loops: Sequence[tuple[tuple[int, ...], Size]]) -> bool:
        scaled = self.op.scaled
        return scaled is not None and bool(loops) and all(n in scaled.inner for numbers, _ in loops for n in numbers)

    def _standing(self) -> set[int]:
        """Returns the reads that only the common factor uses."""
        scaled = self.op.scaled
        assert scaled is not None, self.op.location
        moving = {n.number for f in scaled.products for p in f for n in p.walk() if n.kind == "read"}
        return set(range(len(self.op.reads))) - moving

    def _sum_scaled(
        self,
        loops: list[tuple[tuple[int, ...], Size]],
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
    ) -> list[Value]:
        """Returns the sums after the loops that leave the common factor invariant; the factor multiplies them once."""
        scaled, writer = self.op.scaled, self.writer
        assert scaled is not None, self.op.location
        # sum of (x * w * factor) == (sum of x * w) * factor, within the loops that do not move the factor.
        nothing = writer.broadcast(writer.constant("0.000000e+00", totals[0].type))
        parts = self._sum(loops, iterations, masks, [nothing] * len(totals), rows, True)
        after = []
        for at, mask, part, total in zip(iterations, masks, parts, totals, strict=True):
            with writer.masked(mask):
                after.append(self.evaluator.add_scaled(self.op, scaled, at, part, total))
        return after

    def _step(
        self,
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Writes one more iteration for every cell. Loads shared by all rows come first, so that they are in flight
        while rows are broadcast."""
        loop = self._row_loop()
        # The cells of the first row: other rows read the same vectors.
        shared = list(zip(iterations, masks, strict=True))[: len(iterations) // rows]
        standing = self._standing() if within else ()
        for number, access in enumerate(self.op.reads):
            if loop in access.loops() or number in standing:
                continue
            if rows > 1:
                for at, mask in shared:
                    with self.writer.masked(mask):
                        self.evaluator.read(self.op, number, at)
            is_panel = any(isinstance(p, Panel) for p in access.index)
            if self.panels is not None and is_panel and self._is_first(number):
                prefetch_panels(self.evaluator, self.op, number, [at for at, _ in shared], self.panels)
        after = []
        for at, mask, total in zip(iterations, masks, totals, strict=True):
            with self.writer.masked(mask):
                after.append(self.writer.broadcast(self._accumulate(at, total, within)))
        return after

    def _accumulate(self, iteration: Iteration, total: Value, within: bool) -> Value:
        scaled = self.op.scaled
        if within and scaled is not None:
            return self.evaluator.add_products(self.op, scaled, iteration, total)
        return self.evaluator.accumulate(self.op, iteration, total)


# A stage of one tiled op and the ops computed from its result at the same position


def write_tiles(evaluator: Evaluator, op: Op, order: Order, begin: str, end: str) -> None:
    stage, roles = evaluator.stage, order.roles

    def write(nonzeros: Nonzeros | None) -> None:
        with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, panels):
            # The few weights of a window are in the cache anyway; listed steps have their own prefetches.
            of_all = nonzeros is None and not roles.windowed
            tiles = Tiles(evaluator, op, roles, panels if of_all else None, nonzeros)
            if roles.row is None:
                tiles.cover(iteration, row, column, 1, evaluator.finish)
            else:
                size = stage.sizes[roles.row]
                finish = evaluator.finish
                cover_rows(evaluator, size, roles.rows, row, lambda n: tiles.cover(iteration, row, column, n, finish))

    sparse = find_sparse_sum(evaluator, op, order)
    if sparse is None:
        write(None)
    else:
        evaluator.writer.either(sparse.are_few(), lambda: write(sparse.list_steps()), lambda: write(None))


class RowBlockTiles(Tiles, ABC):
    """A writer of blocks of rows, whose number may be known in the call alone."""

    def cover_block(
        self, iteration: Iteration, row: Form, column: Form, rows: Rows, finish: Callable[[Iteration], None]
    ) -> None:
        """Writes all lanes from `column` on that belong to one panel, for `rows` rows from `row` on."""
        self.across(column, lambda start, masks: self._block(iteration, row, start, rows, masks, finish))

    @abstractmethod
    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        """Writes some vectors of a panel, one for each mask, in all rows of a block."""


@contextmanager
def tile_work_items(
    evaluator: Evaluator, order: Order, begin: str, end: str
) -> Iterator[tuple[Iteration, Form, Form, Panels]]:
    """Writes a loop over work items; yields the position outside of tiles, the first row and lane of each, and the
    order of panels around it."""
    roles = order.roles
    with work_items(evaluator.writer, order.counts, begin, end) as numbers:
        at, panels = order.iteration(evaluator.writer, numbers)
        row = constant(0) if roles.row is None else at[roles.row]
        yield {c: at[c] for c in roles.outer}, row, at[roles.lane], panels


def cover_rows(evaluator: Evaluator, size: Size, rows: int, row: Form, write: Callable[[int], None]) -> None:
    """Writes the block of rows that begins at `row`, with all rows or with the remaining ones."""
    left = rows_from(evaluator.writer, size, rows, row)
    if isinstance(left, int):
        write(left)
        return
    _, high = bounds(size)
    # A tile is written for each number of rows that a block may have: two if the size is known.
    cases = [rows, size % rows] if isinstance(size, int) else range(min(rows, high), 0, -1)
    evaluator.writer.switch(left, cases, write)


def rows_from(writer: Writer, size: Size, rows: int, row: Form) -> int | str:
    """Returns the number of rows in the block that begins at `row`; the number is a value where blocks differ."""
    if isinstance(size, int) and (size <= rows or size % rows == 0):
        return min(size, rows)
    left = writer.let(f"arith.subi {writer.size(size)}, {writer.index(row)} : index")
    return writer.let(f"arith.minui {left}, {writer.size(rows)} : index")
