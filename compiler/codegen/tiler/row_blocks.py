"""Stages with reductions along rows. Without contractions they run row by row. Where contractions come before and after
the reductions (attention), each op passes blocks of rows to the next on the stack.

For attention, a work item is a block of 8 to 128 rows (`ROWS`, `MOST_ROWS`) of the queries, or a single one where no
other row has the same keys. Three segments compute it:

    scores[i, j] = sum of q[i, k] * key[j, k]     register tiles; the rows of scores go to the stack
    weights[i]   = softmax of scores[i]           row by row, over the scores on the stack
    y[i, c]      = sum of weights[i, j] * v[j, c]   register tiles, which read the stack and write the result

The scores of all rows are never in memory. The tiles of a block share panels of keys and values: see `stretches.py`.
Where few whole rows fit on the stack, the segments run for each stretch of the keys: see `online_softmax.py`.

The last block is shorter where the rows are not a multiple of a block. Its last tile is moved back, over rows that the
tile before it computes too, with the same bits. For 73 rows, blocks of 64, and tiles of 4:

    rows     0 .. 63: tiles at 0, 4, .. 60      64 .. 72: tiles at 64, 68 and 69
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import lcm

from ....dialect.dims import Size, bounds, product
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import VectorUnit
from .bounded import BoundedRows, bound_rows, heavy_first
from .decoded_schedule import decoded_tiles
from .evaluate import Evaluator, Iteration, Kept
from .forms import Form, constant, variable
from .nest import blocks, work_items
from .online_softmax import STRETCH, OnlineSoftmax
from .prefetch import LINE
from .roles import Roles, assign_roles
from .row_loops import Rows, each_row, in_whole_tiles
from .rows import AT_ONCE, RowWriter
from .schedule import BLOCK_BYTES, ROWS, is_tiled, lane_loop, row_bytes
from .softmaxes import find_softmax
from .stretches import StretchedTiles, find_shared
from .structure import Access, Op, Page, Unsupported
from .text import Value, element_bytes
from .tiles import Tiles

MOST_ROWS = 128
"""The most rows of a block."""
MOST_BOUNDED_ROWS = 64
"""The most rows of a block with an own end of its columns: all of its rows are computed up to that of its last one."""
FEWEST = 16
"""The number of blocks, at least, before blocks become larger: threads share them. Each block copies all keys and
values for its tiles."""
SHARING_ROWS = 16
"""The least number of rows in a block for which a copy of the shared vectors is faster."""
DEPTH = 128
"""The steps of a sum over copied vectors: they stay in the nearest cache."""
SPACING = 16
"""The padding, in elements, between rows with lengths that are powers of two."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A run of a block's ops with the results in memory, those that later segments read, and a result on the stack that
    the only one of them overwrites."""

    ops: list[Op]
    sinks: list[Op]
    read: list[Op]
    over: Op | None


class RowStage:
    """The writer of a stage with reductions along rows. Raises Unsupported."""

    def __init__(self, evaluator: Evaluator, unit: VectorUnit) -> None:
        self.evaluator, self.unit = evaluator, unit
        self.writer, self.stage = evaluator.writer, evaluator.stage
        self.tiles = [op for op in self.stage.ops if is_tiled(op)]
        self.single = False
        """Whether the contractions have one row for each matrix: a block is one position of the outer classes."""
        self.outer = self._order()
        self.row = RowWriter(evaluator, self.outer, in_step=unit.rows_in_step)
        self.bounded: BoundedRows | None = None
        self.rows = 1
        self.online: OnlineSoftmax | None = None
        """The writer of stretches of rows, where whole rows leave too few of them to a block."""
        if self.tiles:
            steps = [self._roles(op).step for op in self.tiles]
            self.bounded = bound_rows(evaluator, self.outer, steps, single=self.single)
            self.rows = 1 if self.single else self._most_rows()
            self.online = self._choose_online()
            self.rows = self.rows if self.online is None else self.online.rows
            if self.online is None and not self._fits_whole():
                raise Unsupported("rows between contractions do not fit on the stack")

    def _roles(self, op: Op) -> Roles:
        """Returns the roles of a contraction in blocks of the stage's rows; tiles divide `ROWS`."""
        among = [] if self.single else [self.outer[-1]]
        roles = assign_roles(self.stage, op, self.unit, self.writer.lanes, among)
        size = self.stage.sizes[self.outer[-1]]
        few = isinstance(size, int) and size <= ROWS
        return replace(roles, rows=roles.rows if few else 1 << (roles.rows.bit_length() - 1), block=self.rows)

    def _order(self) -> list[int]:
        """Returns the outer classes; with contractions, the rows of the first contraction come last."""
        outer = self.stage.outer
        if not self.tiles:
            return outer
        roles = assign_roles(self.stage, self.tiles[0], self.unit, self.writer.lanes, outer)
        if roles.row is None:
            self.single = True
            return outer
        return [*(c for c in outer if c != roles.row), roles.row]

    def _most_rows(self) -> int:
        """Returns the rows of a block: a multiple of `ROWS`."""
        return self._rows_within(BLOCK_BYTES // self._block_bytes())

    def _block_bytes(self) -> int:
        """Returns the bytes of the results that `ROWS` whole rows have on the stack."""
        results = [op for segment in self._plan() for op in segment.read if segment.over is None]
        return max(1, sum(row_bytes(self.stage, op, set(self.outer)) for op in results))

    def _fits_whole(self) -> bool:
        """Returns whether a block of the fewest whole rows fits on the stack."""
        return self._block_bytes() // (ROWS if self.single else 1) <= BLOCK_BYTES

    def _rows_within(self, room: int) -> int:
        """Returns the rows of a block where `room` times `ROWS` rows fit on the stack: a multiple of `ROWS`."""
        size = bounds(self.stage.sizes[self.outer[-1]])[1]
        others = bounds(product(self.stage.sizes[c] for c in self.outer[:-1]))[1]
        limit = MOST_BOUNDED_ROWS if self.bounded is not None and self.bounded.by_row else MOST_ROWS
        most = max(1, min(limit // ROWS, room, int(size * others / (ROWS * FEWEST))))
        if isinstance(size, int):
            # Equal blocks, as far as `ROWS` divides them.
            count = max(1, -(-size // (most * ROWS)))
            most = max(1, -(-size // (count * ROWS)))
        return most * ROWS

    def _choose_online(self) -> OnlineSoftmax | None:
        """Returns the writer of a softmax along stretches of the keys, where blocks have more rows then, where whole
        rows do not fit on the stack, or where the weights are rounded: the product would widen them in each step."""
        softmax = find_softmax(self.stage)
        if self.evaluator.strict or softmax is None or (self.single and self._fits_whole()):
            return None
        if softmax.hides and not (self.bounded is not None and self.bounded.rows.hidden):
            return None
        *scores, rows, _ = self._segments()
        is_known = {op for op in rows if op.reduced} == {softmax.greatest, softmax.total}
        if not is_known or not all(is_tiled(segment[0]) for segment in scores) or not is_tiled(softmax.product):
            return None
        product = self._roles(softmax.product)
        if not self._is_carried(softmax.product, product):
            return None
        turn = lcm(AT_ONCE * self.writer.lanes, *(self._roles(segment[0]).step for segment in scores))
        keys, columns = turn * max(1, STRETCH // turn), bounds(self.stage.sizes[product.lane])[1]
        stored = sum(len(self._read_behind([*scores, rows], number)) for number in range(len(scores)))
        row = element_bytes(softmax.element) * (stored * _apart(keys) + _apart(columns))
        room = BLOCK_BYTES // (ROWS * row)
        most = 1 if self.single else self._rows_within(room)
        if room == 0 or (most <= self.rows and self._fits_whole() and not softmax.rounds):
            return None
        return OnlineSoftmax(self.evaluator, self.row, softmax, keys, most, self.outer[-1])

    def _is_carried(self, op: Op, roles: Roles) -> bool:
        """Returns whether the tiles of a contraction can carry on from earlier sums."""
        if op.scaled is not None and op.scaled.quantized is not None:
            return False
        return self.single or (roles.row is not None and find_shared(self.stage, op, roles) is not None)

    def counts(self) -> list[Size]:
        sizes = [self.stage.sizes[c] for c in self.outer]
        return [*sizes[:-1], blocks(sizes[-1], self.rows)] if self.tiles and not self.single else sizes

    def write(self, begin: str, end: str) -> None:
        if self.bounded is not None:
            self.bounded.prepare()
        with work_items(self.writer, self.counts(), begin, end) as numbers:
            if self.bounded is not None and self.bounded.by_row:
                numbers[-1] = heavy_first(self.writer, numbers[-1], self.counts()[-1])
            iteration = dict(zip(self.outer, numbers, strict=True))
            if not self.tiles:
                self.row.write(self.stage.ops, self.stage.sinks, iteration)
                return
            row = self.outer[-1]
            size = self.stage.sizes[row]
            batch = {c: f for c, f in iteration.items() if c != row}
            if self.single:
                self._block(batch, iteration[row], 1)
                return
            self._block_of(size, iteration[row].times(self.rows), lambda at, n: self._block(batch, at, n))

    def _block_of(self, size: Size, row: Form, write: Callable[[Form, Rows], None]) -> None:
        """Writes a block of rows. The last block may be shorter, with `ROWS` rows at least: it is moved back over rows
        of the previous block if necessary. Fewer rows altogether run one by one."""
        writer, rows = self.writer, self.rows
        low, _ = bounds(size)
        if isinstance(size, int) and (size <= ROWS or size % rows == 0):
            write(row, min(size, rows))
            return
        total = writer.size(size)

        def whole() -> None:
            last = writer.let(f"arith.subi {total}, {writer.size(ROWS)} : index")
            begin = writer.let(f"arith.minsi {writer.index(row)}, {last} : index")
            if rows == ROWS:
                write(variable(begin), ROWS)
                return
            left = writer.let(f"arith.subi {total}, {begin} : index")
            write(variable(begin), writer.let(f"arith.minsi {left}, {writer.size(rows)} : index"))

        if low >= ROWS:
            whole()
            return

        def one_by_one() -> None:
            with writer.loop(writer.size(0), total, 1) as single:
                write(variable(single), 1)

        enough = writer.let(f"arith.cmpi uge, {total}, {writer.size(ROWS)} : index")
        writer.either(enough, whole, one_by_one)

    # Blocks of rows between contractions

    def _segments(self) -> list[list[Op]]:
        """Splits the ops into runs: a contraction with the ops at its position, or ops that are computed row by row."""
        segments: list[list[Op]] = []
        for op in self.stage.ops:
            if is_tiled(op) or not segments:
                segments.append([op])
            elif is_tiled(segments[-1][0]) and not op.reduced and self._has_loops_of(op, segments[-1][0]):
                segments[-1].append(op)
            elif is_tiled(segments[-1][0]):
                segments.append([op])
            else:
                segments[-1].append(op)
        return segments

    def _plan(self) -> list[_Segment]:
        """Returns the segments of a block of whole rows."""
        segments, planned, kept = self._segments(), list[_Segment](), list[Op]()
        for number, ops in enumerate(segments):
            later = [op for other in segments[number + 1 :] for op in other]
            sinks = [op for op in ops if op in self.stage.sinks]
            read = self._read_behind(segments, number)
            is_alone = bool(read) and len({*map(id, read), *map(id, sinks)}) == 1
            planned.append(_Segment(ops, sinks, read, self._overwritten(ops, later, kept) if is_alone else None))
            kept += read
        return planned

    def _has_loops_of(self, op: Op, tile: Op) -> bool:
        return set(self.stage.parallel(op)) == set(self.stage.parallel(tile))

    def _block(self, batch: Iteration, row: Form, count: Rows) -> None:
        if self.bounded is None:
            self._write_block(batch, row, count)
            return
        with self.bounded.block(batch, row, count):
            self._write_block(batch, row, count)

    def _write_block(self, batch: Iteration, row: Form, count: Rows) -> None:
        if self.online is not None:
            self._write_stretches(self.online, batch, row, count)
            return
        self.evaluator.kept = {}
        for segment in self._plan():
            kept = {id(op): self._rows_on_stack(segment.over or op, row, count) for op in segment.read}
            if is_tiled(segment.ops[0]):
                self._tile(segment.ops, segment.sinks, kept, batch, row, count)
            else:
                self._write_rows(segment.ops, segment.sinks, kept, batch, row, count)
            self.evaluator.kept |= kept

    def _write_stretches(self, online: OnlineSoftmax, batch: Iteration, row: Form, count: Rows) -> None:
        """Writes a block whose scores are on the stack a stretch of keys at a time."""
        softmax, evaluator = online.softmax, self.evaluator
        *scores, rows, (product, *_) = self._segments()
        results = self._rows_on_stack(product, row, count)
        with online.stretches(results, batch, row, count):
            evaluator.kept = {}
            for number, segment in enumerate(scores):
                read = self._read_behind([*scores, rows], number)
                kept = {id(op): self._rows_on_stack(op, row, count) for op in read}
                self._tile(segment, (), kept, batch, row, count)
                evaluator.kept |= kept
            over = self._overwritten(rows, [product], [op for segment in scores for op in segment])
            powers = self._rows_on_stack(over or softmax.powers, row, count)
            with each_row(self.writer, count) as index:
                online.take({**batch, self.outer[-1]: row + index}, powers)
            evaluator.kept = {id(softmax.weights): powers}
            self._tile([product], (), {id(product): results}, batch, row, count)
            evaluator.kept = {}
        online.finish(batch, row, count, self.bounded)

    def _write_rows(
        self,
        segment: Sequence[Op],
        sinks: Sequence[Op],
        kept: Mapping[int, Kept],
        batch: Iteration,
        row: Form,
        count: Rows,
    ) -> None:
        doubts = self.bounded.doubts(segment) if self.bounded is not None else []

        def write(at: Form, doubts: Sequence[Value]) -> list[Value]:
            iteration = {**batch, self.outer[-1]: at}
            self.row.write(segment, sinks, iteration, kept)
            return self.bounded.look_at(iteration, doubts) if self.bounded is not None else []

        if count == 1:
            with self.writer.scope():
                doubts = write(row, doubts)
        else:
            end = count if isinstance(count, str) else self.writer.size(count)
            with self.writer.carrying(self.writer.size(0), end, 1, doubts) as loop:
                loop.after = write(row + variable(loop.index), loop.values)
            doubts = loop.results
        if self.bounded is not None and doubts:
            (self.bounded.doubt,) = doubts

    def _overwritten(self, segment: Sequence[Op], later: Sequence[Op], kept: Collection[Op]) -> Op | None:
        """Returns one of the results on the stack that the only result of a row segment may overwrite: nothing after
        the segment reads it, and its rows have the same shape."""
        if is_tiled(segment[0]):
            return None
        result = next(op for op in reversed(segment) if self._is_read(op, later))
        for access in (a for op in segment for a in op.reads):
            source = access.tensor.op
            if source is None or source in segment or source not in kept:
                continue
            same = self.stage.parallel(source) == self.stage.parallel(result)
            if same and source.result.element == result.result.element and not self._is_read(source, later):
                return source
        return None

    def _read_behind(self, segments: Sequence[Sequence[Op]], number: int) -> list[Op]:
        """Returns the ops of a segment whose results later segments read."""
        later = [op for other in segments[number + 1 :] for op in other]
        return [op for op in segments[number] if self._is_read(op, later)]

    def _is_read(self, op: Op, later: Sequence[Op]) -> bool:
        return any(a.tensor.op is op for other in later for a in other.reads)

    def _inner(self, op: Op) -> list[int]:
        return [c for c in self.stage.parallel(op) if c not in self.outer]

    def _rows_on_stack(self, op: Op, row: Form, count: Rows) -> Kept:
        inner = self._inner(op)
        strides: dict[int, Size] = {}
        length, shift = 1, constant(0)
        for c in reversed(inner):
            strides[c] = length
            if self.online is not None and c == self.online.softmax.keys:
                length, shift = length * self.online.keys, self.online.shift.times(length)
            else:
                length *= bounds(self.stage.sizes[c])[1]
        lanes = self.writer.lanes
        length = _apart(-(-length // lanes) * lanes) if inner else 1
        strides[self.outer[-1]] = length
        buffer = self.evaluator.stack("rows", op, length * self.rows)
        return Kept(buffer, strides, row.times(-length) + shift)

    def _tile(
        self,
        segment: Sequence[Op],
        sinks: Sequence[Op],
        kept: Mapping[int, Kept],
        batch: Iteration,
        row: Form,
        count: Rows,
    ) -> None:
        op = segment[0]
        roles = self._roles(op)
        if roles.row is None and not self.single:
            raise Unsupported("a contraction whose rows are not those of the others")

        def finish(iteration: Iteration) -> None:
            for done in segment:
                if id(done) in kept:
                    self.evaluator.keep(done, iteration, kept[id(done)])
            self.evaluator.write(sinks, [iteration])

        span = self.evaluator.span(roles.lane)
        with self.writer.loop(span.begin, span.end, roles.step) as column:
            # Spans of lanes begin at a multiple of the step: see `bounded.py`.
            self.writer.multiples[column] = roles.step
            self._columns(op, roles, finish)(batch, row, variable(column), count)

    def _columns(
        self, op: Op, roles: Roles, finish: Callable[[Iteration], None]
    ) -> Callable[[Iteration, Form, Form, Rows], None]:
        """Returns the writer of some rows of a panel of columns. Tiles below each other share the vectors of the
        columns while they are in the nearest cache."""
        evaluator, writer = self.evaluator, self.writer
        # Of several tiles below each other, all but the first one read the columns from the nearest cache.
        tiles = (StridedTiles if self.rows <= roles.rows else Tiles)(evaluator, op, roles)
        if self.single:
            last = self.outer[-1]
            return lambda iteration, row, column, _: tiles.cover(
                {**iteration, last: row}, constant(0), column, 1, finish
            )

        def write(iteration: Iteration, row: Form, column: Form, rows: Rows) -> None:
            def tile(first: Form, shift: Form, count: int) -> None:
                tiles.cover(iteration, row + first + shift, column, count, finish)

            in_whole_tiles(writer, rows, roles.rows, tile)

        if op.scaled is not None and op.scaled.quantized is not None:
            decoded = decoded_tiles(evaluator, op, roles)

            return lambda iteration, row, column, rows: decoded.cover_block(iteration, row, column, rows, finish)
        shared = find_shared(self.stage, op, roles)
        is_carried = self.online is not None and op is self.online.softmax.product
        if shared is None or (self.rows < SHARING_ROWS and not is_carried):
            return write
        stretched = BlockTiles(evaluator, op, roles, shared, DEPTH)
        return lambda iteration, row, column, rows: stretched.cover_block(iteration, row, column, rows, finish)


class StridedTiles(Tiles):
    """The writer of tiles whose columns no other tile reads. Successive steps of the sum may be far apart in memory, as
    for keys whose positions are contiguous; the hardware does not prefetch such reads. Each step fetches the vectors of
    the next tile into the second cache, which may have more lines under way from memory than the first."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles) -> None:
        super().__init__(evaluator, op, roles)
        several = bounds(self.stage.sizes[roles.lane])[1] > roles.step
        self.strided = [access for access in op.reads if several and self._is_strided(access)]

    def _is_strided(self, access: Access) -> bool:
        lane, row = lane_loop(self.op), self._row_loop()
        if lane is None or access.step(lane) != 1 or row in access.loops() or self.stage.holds(access.tensor):
            return False
        paged = any(isinstance(position, Page) for position in access.index)
        return not paged and all(access.step(loop) != 1 for loop in self.op.reduced)

    def _step(
        self,
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        for access in self.strided if masks[0] is None else ():
            of_line = max(1, LINE // (self.writer.lanes * element_bytes(access.tensor.element)))
            for at in iterations[: len(iterations) // rows : of_line]:
                following = {**at, self.roles.lane: at[self.roles.lane].plus(self.roles.step)}
                buffer, form = self.evaluator.home(access, self.op, following)
                self.writer.prefetch(buffer, form.base, level=2)
        return super()._step(iterations, masks, totals, rows, within)


class BlockTiles(StretchedTiles):
    """The writer of blocks of at least `ROWS` rows, or of a known number of rows."""

    takes_triangles = False

    def _each(self, rows: Rows, height: int, write: Callable[[Form, int], None]) -> None:
        in_whole_tiles(self.writer, rows, self.roles.rows, lambda first, _, count: write(first, count))

    def _shift(self, rows: Rows, first: Form, count: int) -> Form:
        if isinstance(rows, int):
            return constant(0)
        last = self.writer.let(f"arith.subi {rows}, {self.writer.size(count)} : index")
        begin = self.writer.let(f"arith.minui {self.writer.index(first)}, {last} : index")
        return variable(begin) + first.times(-1)


def _apart(elements: int) -> int:
    """Returns a row length that does not map successive rows to the same few cache sets."""
    return elements + SPACING if elements % (4 * SPACING) == 0 else elements
