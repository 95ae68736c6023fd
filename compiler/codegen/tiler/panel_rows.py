"""Blocks of rows that share a panel of columns, in calls whose number of rows decides whether the panel is copied.

A copy takes as long as the products of a few rows. So calls of few rows read the panel where it is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ....dialect.dims import bounds
from .evaluate import Evaluator, Iteration
from .forms import Form
from .prefetch import Panels
from .roles import Roles
from .row_loops import Rows, in_tiles
from .structure import Op
from .tiles import RowBlockTiles, Tiles

Block = tuple[Iteration, Form, Form, Rows]
"""A position of the outer classes, the first row and column of a block of a panel, and its rows."""


def cover_copied(tiles: RowBlockTiles, fewest: int, panels: Panels, block: Block) -> None:
    """Writes a block of rows: with copies of its panel, or in place in a call of fewer than `fewest` rows."""
    evaluator, writer, roles = tiles.evaluator, tiles.writer, tiles.roles
    size = 1 if roles.row is None else tiles.stage.sizes[roles.row]
    many = partial(tiles.cover_block, *block, evaluator.finish)
    lower = replace(roles, rows=min(roles.rows, max(fewest - 1, 1)))
    few = partial(write_in_place, evaluator, tiles.op, lower, panels, block)
    least, most = bounds(size)
    if least >= fewest:
        many()
    elif most < fewest:
        few()
    else:
        writer.steps.add(fewest)
        is_few = f"arith.cmpi ult, {writer.size(size)}, {writer.size(fewest)} : index"
        writer.either(writer.let(is_few), few, many)


def write_in_place(evaluator: Evaluator, op: Op, roles: Roles, panels: Panels, block: Block) -> None:
    """Writes a block of rows, which read the panel where it is. They are too few to share prefetches of the next
    one."""
    (iteration, row, column, rows), tiles = block, Tiles(evaluator, op, roles, replace(panels, turns=()))

    def write(first: Form, count: int) -> None:
        tiles.cover(iteration, row + first, column, count, evaluator.finish)

    in_tiles(evaluator.writer, rows, roles.rows, write)
