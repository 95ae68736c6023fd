"""Register tiles of two heights that differ by one row, where tiles of one height would leave a few rows.

A tile of few rows takes as long as one of more rows, since its sums wait for one another. For 49 rows, which images of
7 by 7 have, with at most 6 rows by 2 vectors:

    one height     6 6 6 6 6 6 6 6 1     8 * 12 + 8 = 104 operations a step, where 8 sums are under way at least
    two heights    6 6 6 6 5 5 5 5 5     4 * 12 + 5 * 10 = 98

A work item has all rows and one panel, which the tiles read where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from ....dialect.dims import bounds
from ...targets.vector_unit import VectorUnit
from ..structured.positions import Panel
from .copied import FEWEST_ITEMS
from .evaluate import Evaluator, Iteration, Span
from .forms import LANES, Form, constant, variable
from .nest import blocks
from .order import Order
from .roles import UNDER_WAY, Roles
from .row_loops import Rows
from .stretches import StretchedTiles, find_shared
from .structure import Buffer, Op
from .text import Value
from .tiles import tile_work_items

LEAST_GAIN = 32
"""The reciprocal of the least part of the time that tiles of two heights save."""


def plan_levels(evaluator: Evaluator, op: Op, roles: Roles, unit: VectorUnit) -> tuple[Roles, int] | None:
    """Returns the roles of tiles of two heights, and the packed read that the rows share; None where one height takes
    about as long, or there would be too few work items."""
    stage, number = evaluator.stage, find_shared(evaluator.stage, op, roles)
    if not unit.level_tiles or number is None or roles.row is None or roles.step != roles.width:
        return None
    size, vectors = stage.sizes[roles.row], roles.width // evaluator.writer.lanes
    if not isinstance(size, int) or not isinstance(op.loops[op.summed[0]], int):
        return None
    types = {op.body.type, *(read.tensor.element for read in op.reads)}
    if types != {"f32"} or op.scaled is not None or evaluator.spans:
        return None
    counts = [*(stage.sizes[c] for c in roles.outer), blocks(stage.sizes[roles.lane], roles.step)]
    is_packed = any(isinstance(position, Panel) for position in op.reads[number].index)
    if not is_packed or prod(bounds(count)[0] for count in counts) < FEWEST_ITEMS:
        return None
    before = cost([roles.rows] * (size // roles.rows) + [size % roles.rows], vectors)
    saved = before - cost(level_heights(size, roles.rows), vectors)
    return (replace(roles, block=size), number) if saved > before // LEAST_GAIN else None


def cost(heights: Sequence[int], vectors: int) -> int:
    """Returns the multiplications that one step of tiles of these heights takes as long as."""
    return sum(max(rows * vectors, UNDER_WAY) for rows in heights if rows > 0)


def level_heights(size: int, most: int) -> list[int]:
    """Splits `size` rows into as few tiles of at most `most` rows as possible, whose heights differ by at most one."""
    tiles = -(-size // most)
    low, higher = divmod(size, tiles)
    return [low + 1] * higher + [low] * (tiles - higher)


class LevelTiles(StretchedTiles):
    """The writer of all rows of a panel."""

    takes_triangles = False

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles, number: int) -> None:
        (loop,) = op.summed
        steps = op.loops[loop]
        assert isinstance(steps, int), op.location
        super().__init__(evaluator, op, roles, number, max(steps, 1))

    def _stack_panel(self, length: int) -> Buffer:
        view = self.access.tensor.view
        assert view is not None, self.op.location
        return view.buffer

    def _each(self, rows: Rows, height: int, write: Callable[[Form, int], None]) -> None:
        assert isinstance(rows, int), rows
        heights, first = level_heights(rows, height), 0
        for count in sorted(set(heights), reverse=True):
            end = first + count * heights.count(count)
            with self.writer.loop(self.writer.size(first), self.writer.size(end), count) as row:
                write(variable(row), count)
            first = end

    def _step(
        self,
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Writes one more iteration for every cell; each tile prefetches its share of the next panel."""
        at, row, width = iterations[0], self.roles.row, self.roles.width
        assert row is not None and isinstance(self.size, int), self.op.location
        of_row, share = -(-width * self.size // self.roles.block), -(-width * rows // self.roles.block)
        first = {**at, self.roles.lane: at[self.roles.lane].base.plus(width) + LANES, self.sum: constant(0)}
        buffer, form = self.evaluator.home(self.access, self.op, first)
        self.writer.prefetch(buffer, form.base + at[row].times(of_row) + at[self.sum].times(share))
        return super()._step(iterations, masks, totals, rows, within)

    @contextmanager
    def _panel_of(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str
    ) -> Iterator[None]:
        self.evaluator.spans[self.sum] = Span(start, stop, start, stop, self.together)
        yield
        del self.evaluator.spans[self.sum]


def write_levels(evaluator: Evaluator, op: Op, number: int, order: Order, begin: str, end: str) -> None:
    tiles, size = LevelTiles(evaluator, op, order.roles, number), order.roles.block
    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, _):
        tiles.cover_block(iteration, row, column, size, evaluator.finish)
