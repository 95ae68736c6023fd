"""Register tiles of many rows and a packed weight: a stretch of a panel is copied to the stack, in the dtype of the
sum, and stays in the first cache for all rows of a work item.

A panel of 24 columns, 2048 steps deep, has 192 KiB in f32. Read where it is, it passes through the first cache for each
tile of 4 rows, and a weight in bf16 is widened for each of them. With the stretches a, b and c of a panel:

    in place     rows 0 .. 3: a b c     rows 4 .. 7: a b c     rows 8 .. 11: a b c
    stretches    a: rows 0 .. 3, 4 .. 7, 8 .. 11     b: the same rows     c: the same rows

Partial sums are on the stack from stretch to stretch. Each sum follows the order of the reduction loop, so that its
bits depend neither on the stretches nor on the number of rows. Few rows read the panel where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ....dialect.dims import bounds
from ...targets.vector_unit import VectorUnit
from ..structured.positions import Panel
from .copied import Copies, choose_block
from .evaluate import Evaluator, Iteration, Span
from .forms import Form, variable
from .order import PART as PART_OF_OWN
from .order import Order
from .panel_rows import cover_copied
from .roles import Roles, even_groups
from .row_loops import Rows
from .stretches import LINE, StretchedTiles, find_shared
from .structure import Op
from .text import element_bytes
from .tiles import rows_from, tile_work_items

BLOCK_ROWS = 128
"""The most rows of a work item: a stretch of them stays in the second cache."""
FEWEST_ROWS = 32
"""The fewest rows that make a copy profitable."""
PART = 4
"""A stretch takes all but one of so many parts of the first cache; the rows of a tile pass through the other one."""
STEPS = 4
"""The steps that one iteration of a sum takes, where they divide the stretches."""


def plan_packed(evaluator: Evaluator, op: Op, roles: Roles, unit: VectorUnit) -> Copies | None:
    """Returns the copies of panels of a packed weight; None where tiles read it where it is. Tiles of a known number of
    rows read f32 as fast where it is, as long as a panel stays in the second cache."""
    stage, number = evaluator.stage, find_shared(evaluator.stage, op, roles)
    if not unit.packed_stretches or number is None or roles.row is None or op.scaled is not None or evaluator.spans:
        return None
    access, (loop,) = op.reads[number], op.summed
    node, size, steps = op.factor(number), stage.sizes[roles.row], op.loops[loop]
    if not any(isinstance(position, Panel) for position in access.index) or not isinstance(steps, int):
        return None
    if node.type != op.body.type or bounds(size)[1] < FEWEST_ROWS or roles.step != roles.width:
        return None
    bytes, lanes = element_bytes(node.type) * roles.width, evaluator.writer.lanes
    if isinstance(size, int) and node.kind == "read" and bytes * steps <= roles.caches.own // PART_OF_OWN:
        return None
    block = choose_block(stage, roles, BLOCK_ROWS)
    rows = even_groups(block, roles.tallest)
    most = roles.caches.first * (PART - 1) // PART // bytes
    depth = -(-even_groups(max(steps, 1), most) // lanes) * lanes
    return Copies(replace(roles, block=-(-block // rows) * rows), number, depth)


class PackedStretches(StretchedTiles):
    """The writer of blocks of rows."""

    takes_triangles = False

    def __init__(self, evaluator: Evaluator, op: Op, copies: Copies) -> None:
        super().__init__(evaluator, op, copies.roles, copies.number, copies.depth)
        if isinstance(self.size, int) and self.size % STEPS == 0 and self.depth % STEPS == 0:
            self.together = STEPS
        self.next: Form | None = None
        """The first element of the next stretch of the panel."""

    def _fetch_ahead(self, iterations: Sequence[Iteration], step: str, span: Span) -> None:
        """Leaves the rows of the next tile to the hardware: with rows of 8 KiB, prefetches take a third more time."""

    def _fetch_beside(self, iterations: Sequence[Iteration]) -> None:
        """Leaves the results to the last stretch."""

    @contextmanager
    def _panel_of(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str
    ) -> Iterator[None]:
        with super()._panel_of(iteration, column, masks, start, stop):
            following = {**iteration, self.roles.lane: column, self.sum: variable(start).plus(self.depth)}
            self.next = self.evaluator.home(self.access, self.op, following)[1].base
            yield
            self.next = None

    def _each(self, rows: Rows, height: int, write: Callable[[Form, int], None]) -> None:
        """Writes tiles of a height for all rows. Tiles of a stretch prefetch a share of the next one each: stretches
        and panels follow one another in memory."""
        assert self.access.tensor.view is not None, self.op.location
        buffer, following = self.access.tensor.view.buffer, self.next
        of_line = LINE // element_bytes(buffer.element)
        lines = -(-self.depth * self.roles.width // (of_line * self.roles.block))

        def fetch(first: Form, count: int) -> None:
            if following is not None:
                begin = following + first.times(lines * of_line)
                for line in range(lines * count):
                    self.writer.prefetch(buffer, begin.plus(line * of_line), level=2)
            write(first, count)

        super()._each(rows, height, fetch)


def write_packed(evaluator: Evaluator, op: Op, copies: Copies, order: Order, begin: str, end: str) -> None:
    stage, roles, writer = evaluator.stage, order.roles, evaluator.writer
    assert roles.row is not None, op.location
    tiles = PackedStretches(evaluator, op, copies)
    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, panels):
        rows = rows_from(writer, stage.sizes[roles.row], roles.block, row)
        cover_copied(tiles, FEWEST_ROWS, panels, (iteration, row, column, rows))
