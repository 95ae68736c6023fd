"""Register tiles with panels on the stack: a work item has many rows, and copies the columns that they share first.

A matrix that no pass has packed, such as a parameter that a training step updates, is in memory in one of two ways: its
columns are adjacent, or, as in `x @ w.T`, the steps of the sum are (see `turned.py`). In both cases a panel of columns
is copied for all steps of the sum where it fits, so that sums stay in registers. Longer sums are divided into
stretches of about the same length.

The work items of 2 blocks of rows (b) and 3 panels (p), where a block of rows stays in the cache for all panels:

    b0p0 b0p1 b0p2   b1p0 b1p1 b1p2
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....dialect.dims import bounds
from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import Panel
from .dots import WORD
from .evaluate import Evaluator
from .order import PART, Order
from .paired import PAIR, PairedTiles, TurnedPairs, takes_pairs
from .panel_rows import cover_copied
from .roles import Roles, even_groups
from .schedule import Stage, turned_read
from .stretches import StretchedTiles, find_shared
from .structure import Op
from .text import STACK_BYTES, element_bytes
from .tiles import rows_from, tile_work_items
from .turned import TurnedTiles

BLOCK_ROWS = 512
"""The most rows that share a panel: its copy then takes a few percent of the time."""
FEWEST_ROWS = 64
"""The fewest rows that make a copy of columns profitable, and the fewest of a block that is lowered."""
FEWEST_PAIRED_ROWS = 4
"""The same for copies as words, which the tiles of other rows would have to widen each. If the rows are known in the
call only, it is compared with the most of them."""
FEWEST_COPIED = 2
"""The fewest rows of a call that copies words. Two or three rows take about as long with the copy as without it; with
one row, the copy would take two fifths more time."""
FEWEST_ITEMS = 16
"""Blocks are lowered where there would be fewer work items, which threads divide among them. For 128 to 2048 rows, 16
items take one thread up to 8 % longer, and 64 items up to 11 %."""
FEWEST_STEPS = 32
"""The fewest steps of a sum that make a copy of columns profitable."""
WHOLE_BYTES = 292 * 1024
"""The most bytes of a panel of whole sums."""
STRETCH_BYTES = 192 * 1024
"""The most bytes of a panel beside which partial sums are kept."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of an op's read `number`: `depth` steps of the sum at a time, as words of two steps if `is_paired`."""

    roles: Roles
    number: int
    depth: int
    is_paired: bool = False
    fewest: int = 0
    """The fewest rows of a call that copies panels: tiles of fewer rows read the columns where they are."""
    fewest_steps: int = 0
    """The fewest steps of a sum in such a call."""


def plan_copies(evaluator: Evaluator, op: Op, roles: Roles) -> Copies | None:
    """Returns the copies of panels for an op's work items; None where its reads need none."""
    stage, number = evaluator.stage, turned_read(op)
    if number is None:
        number = _find_apart(evaluator, op, roles)
    if number is None:
        return None
    roles = replace(roles, block=choose_block(stage, roles))
    is_paired = takes_pairs(evaluator, op, number)
    fewest = FEWEST_COPIED if is_paired else 0 if turned_read(op) is not None else FEWEST_ROWS
    fewest_steps = FEWEST_STEPS if turned_read(op) is None else 0
    element = (element_bytes(WORD) // PAIR if is_paired else element_bytes(op.result.element)) * roles.width
    sums = roles.block * roles.width * element_bytes(op.result.element)
    room = min(STACK_BYTES - evaluator.writer.stack_bytes, roles.caches.own // PART)
    (loop,) = op.summed
    steps, lanes = op.loops[loop], evaluator.writer.lanes
    whole = min(WHOLE_BYTES, room) // element - lanes
    if isinstance(steps, int) and steps <= whole:
        return Copies(roles, number, max(steps, 1), is_paired, fewest, fewest_steps)
    part = min(STRETCH_BYTES, room - sums) // element - lanes
    if part < FEWEST_STEPS:
        return None
    # Whole vectors of steps, since a transposition is by squares of vectors.
    depth = even_groups(steps, part) if isinstance(steps, int) else part
    return Copies(roles, number, min(-(-depth // lanes), part // lanes) * lanes, is_paired, fewest, fewest_steps)


def _find_apart(evaluator: Evaluator, op: Op, roles: Roles) -> int | None:
    """Returns the read of columns that many rows share, and that are apart in memory from step to step."""
    stage = evaluator.stage
    number = find_shared(stage, op, roles)
    if number is None or roles.row is None:
        return None
    access, (loop,) = op.reads[number], op.summed
    if any(isinstance(position, Panel) for position in access.index) or access.step(loop) is None:
        return None
    most_rows, steps = (bounds(size)[1] for size in (stage.sizes[roles.row], op.loops[loop]))
    if takes_pairs(evaluator, op, number):
        return None if most_rows < FEWEST_PAIRED_ROWS or steps < FEWEST_STEPS else number
    near = access.step(loop) == roles.width and stage.sizes[roles.lane] == roles.width
    return None if near or most_rows < FEWEST_ROWS or steps < FEWEST_STEPS else number


def choose_block(stage: Stage, roles: Roles, most: int = BLOCK_ROWS) -> int:
    """Returns the rows of a work item: as many as share a panel, up to `most`, but several items for threads."""
    if roles.row is None:
        return 1
    size = stage.sizes[roles.row]
    rows = bounds(size)[1]
    block = even_groups(max(size, 1), most) if isinstance(size, int) else int(min(max(rows, 1), most))
    fixed = [stage.sizes[c] for c in roles.outer]
    others = -(-bounds(stage.sizes[roles.lane])[0] // roles.step) * prod(bounds(s)[0] for s in fixed)
    while block >= 2 * FEWEST_ROWS and others * -(-rows // block) < FEWEST_ITEMS:
        block = -(-block // 2)
    return -(-block // roles.rows) * roles.rows


def write_copied(evaluator: Evaluator, op: Op, copies: Copies, order: Order, begin: str, end: str) -> None:
    stage, roles, writer = evaluator.stage, order.roles, evaluator.writer
    kinds = (PairedTiles, TurnedPairs) if copies.is_paired else (StretchedTiles, TurnedTiles)
    tiles = kinds[turned_read(op) is not None](evaluator, op, roles, copies.number, copies.depth)

    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, panels):
        rows = 1 if roles.row is None else rows_from(writer, stage.sizes[roles.row], roles.block, row)
        cover_copied(tiles, copies.fewest, panels, (iteration, row, column, rows), copies.fewest_steps)
