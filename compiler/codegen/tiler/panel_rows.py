"""Blocks of rows that share a panel of columns, in calls whose sizes decide whether the panel is copied.

A copy takes as long as the products of a few rows. So calls of few rows read the panel where it is, and so do calls
whose sums have few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, reduce

from ....dialect.dims import Size, bounds
from .evaluate import Evaluator, Iteration
from .forms import Form
from .prefetch import Panels
from .roles import Roles
from .row_loops import Rows, in_tiles
from .stretches import StretchedTiles
from .structure import Op
from .text import Writer
from .tiles import Tiles

Block = tuple[Iteration, Form, Form, Rows]
"""A position of the outer classes, the first row and column of a block of a panel, and its rows."""


def cover_copied(tiles: StretchedTiles, fewest: int, panels: Panels, block: Block, fewest_steps: int = 0) -> None:
    """Writes a block of rows: with copies of its panel, or in place in a call of fewer than `fewest` rows, or with
    sums of fewer than `fewest_steps`."""
    evaluator, roles = tiles.evaluator, tiles.roles
    many = partial(tiles.cover_block, *block, evaluator.finish)
    size = 1 if roles.row is None else tiles.stage.sizes[roles.row]
    if bounds(tiles.size)[0] >= fewest_steps:
        roles = replace(roles, rows=min(roles.rows, max(fewest - 1, 1)))
    few = partial(write_in_place, evaluator, tiles.op, roles, panels, block)
    if_fewer(evaluator.writer, ((size, fewest), (tiles.size, fewest_steps)), few, many)


def if_fewer(
    writer: Writer, bounded: Iterable[tuple[Size, int]], few: Callable[[], None], many: Callable[[], None]
) -> None:
    """Writes `few` for calls in which one of the sizes is below its bound, and `many` for other calls."""
    conditions = []
    for size, bound in bounded:
        least, most = bounds(size)
        if most < bound:
            few()
            return
        if least < bound:
            writer.steps.add(bound)
            conditions.append(writer.let(f"arith.cmpi ult, {writer.size(size)}, {writer.size(bound)} : index"))
    if not conditions:
        many()
    else:
        writer.either(reduce(lambda a, b: writer.let(f"arith.ori {a}, {b} : i1"), conditions), few, many)


def write_in_place(evaluator: Evaluator, op: Op, roles: Roles, panels: Panels, block: Block) -> None:
    """Writes a block of rows, which read the panel where it is. They are too few to share prefetches of the next
    one."""
    (iteration, row, column, rows), tiles = block, Tiles(evaluator, op, roles, replace(panels, turns=()))

    def write(first: Form, count: int) -> None:
        tiles.cover(iteration, row + first, column, count, evaluator.finish)

    in_tiles(evaluator.writer, rows, roles.rows, write)
