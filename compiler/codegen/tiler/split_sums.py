"""Register tiles with sums in parts, for weight panels that exceed the cache of the core.

Each part of a panel is read for all work items of the panel before the next part. The outermost loop of the sum steps
through the parts, and partial sums are carried from part to part on the stack. Each sum follows the order of the
reduction loops, so its bits do not depend on the parts.

The reads of a panel with the parts a, b and c, such as the rows of a 3x3 filter, by the work items 0 to 2:

    whole sums    0: a b c    1: a b c    2: a b c      a panel that exceeds the cache is read from memory three times
    in parts      a: 0 1 2    b: 0 1 2    c: 0 1 2      each part stays in the cache
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ....dialect.dims import static_size
from ....dialect.lazy_dataclass import dataclass
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, constant, variable
from .nest import numbers_of
from .order import PART, Order
from .prefetch import SHARING, Panels
from .structure import Op
from .text import STACK_BYTES, element_bytes
from .tiles import Cell, Tiles, cover_rows

SUMS = 4
"""The divisor of the cache size for partial sums. A part and the operands along the rows take the rest."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """The cells of some rows, the vectors of a row next to each other, and the order of panels around them."""

    cells: Sequence[Cell]
    rows: int
    panels: Panels


class SplitTiles(Tiles):
    """The writer of the work items of one panel after another."""

    def __init__(self, evaluator: Evaluator, op: Op, order: Order) -> None:
        super().__init__(evaluator, op, order.roles)
        self.order, self.inner = order, _work_items_of_a_panel(order)
        self.item = order.roles.block * order.roles.step
        self.sums = evaluator.stack("sums", op, self.inner * self.item)

    def write(self, begin: str, end: str, finish: Callable[[Iteration], None]) -> None:
        writer, inner = self.writer, self.writer.size(self.inner)

        def let(operation: str, left: str, right: str) -> str:
            return writer.let(f"arith.{operation} {left}, {right} : index")

        (loops, size), *_ = self.loops
        classes = [self.stage.of(self.op, n) for n in loops]
        past = let("divui", let("addi", end, writer.size(self.inner - 1)), inner)
        with writer.loop(let("divui", begin, inner), past, 1) as panel:
            base = let("muli", panel, inner)
            items = base, let("maxui", begin, base), let("minui", end, let("addi", base, inner))
            self._each(*items, self._start)
            with writer.loop(writer.size(0), writer.size(size), 1) as part:
                at = {**dict.fromkeys(classes[:-1], constant(0)), classes[-1]: variable(part)}
                self._each(*items, lambda tile: self._add(tile, at))
            self._each(*items, lambda tile: self._finish(tile, finish))

    def _each(self, base: str, first: str, last: str, write: Callable[[_Tile], None]) -> None:
        """Writes the tiles of the work items `first` to `last` of the panel that begins with work item `base`."""
        roles, writer, order = self.roles, self.writer, self.order
        assert roles.row is not None
        with writer.loop(first, last, 1) as item:
            at, panels = order.iteration(writer, list(numbers_of(writer, order.counts, item)))
            row, column = at[roles.row], at[roles.lane]
            outside = {c: at[c] for c in roles.outer}
            origin = (variable(item) + variable(base, -1)).times(self.item)

            def write_rows(rows: int) -> None:
                def write_tile(start: Form, masks: Sequence[str | None]) -> None:
                    cells = [
                        (
                            mask,
                            self._cell(outside, row.plus(r), start.plus(v * writer.lanes)),
                            origin + start + column.times(-1) + constant(r * roles.step + v * writer.lanes) + LANES,
                        )
                        for r in range(rows)
                        for v, mask in enumerate(masks)
                    ]
                    write(_Tile(cells, rows, panels))

                self.across(column, write_tile)

            cover_rows(self.evaluator, self.stage.sizes[roles.row], roles.rows, row, write_rows)

    def _start(self, tile: _Tile) -> None:
        """Stores the initial value of each sum."""
        for mask, at, slot in tile.cells:
            with self.writer.masked(mask):
                start = self.writer.broadcast(self.evaluator.starting(self.op, at))
            self.writer.store(self.sums, slot, start)

    def _add(self, tile: _Tile, part: Iteration) -> None:
        """Adds a part of each sum."""
        (around, _), *within = self.loops
        self.panels = replace(tile.panels, around=frozenset(around))
        iterations, masks = [{**at, **part} for _, at, _ in tile.cells], [mask for mask, _, _ in tile.cells]
        totals = [self.writer.load(self.sums, slot) for _, _, slot in tile.cells]
        totals = self._sum(within, iterations, masks, totals, tile.rows)
        self.panels = None
        for (_, _, slot), total in zip(tile.cells, totals, strict=True):
            self.writer.store(self.sums, slot, total)

    def _finish(self, tile: _Tile, finish: Callable[[Iteration], None]) -> None:
        """Defines the results, and writes the values that are computed from them."""
        totals = [self.writer.load(self.sums, slot) for _, _, slot in tile.cells]
        for (mask, at, _), total in zip(tile.cells, totals, strict=True):
            with self.writer.masked(mask):
                self.evaluator.define(self.op, at, total)
                finish(at)


def _work_items_of_a_panel(order: Order) -> int:
    """Returns the number of work items of a panel; 0 where it is known in the call only, or the items are grouped."""
    counts = order.counts[order.classes.index(order.roles.lane) + 1 :]
    static = order.group is None and all(isinstance(count, int) for count in counts)
    return prod(static_size(count) for count in counts) if static else 0


def is_split(evaluator: Evaluator, op: Op, order: Order) -> bool:
    """Returns whether sums in parts save reads of panels from memory."""
    roles, reads = order.roles, op.reads
    tiles = Tiles(evaluator, op, roles)
    static = all(isinstance(size, int) for _, size in tiles.loops)
    plain = op.scaled is None and not evaluator.spans and all(a.group is None and a.width == 1 for a in reads)
    weights = tiles.shared_panels()
    if roles.row is None or roles.windowed or not static or not plain or len(tiles.loops) < 2 or len(weights) != 1:
        return False
    items = _work_items_of_a_panel(order)
    panel = prod(static_size(size) for _, size in tiles.loops) * roles.step
    panel *= element_bytes(reads[weights[0]].tensor.element)
    sums = items * roles.block * roles.step * element_bytes(op.result.element)
    room = min(roles.caches.own // SUMS, STACK_BYTES - evaluator.writer.stack_bytes)
    return items >= SHARING and panel > roles.caches.own // PART and sums <= room


def write_split(evaluator: Evaluator, op: Op, order: Order, begin: str, end: str) -> None:
    SplitTiles(evaluator, op, order).write(begin, end, evaluator.finish)
