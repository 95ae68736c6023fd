"""The roles of a tiled op's loops: the lane class, the row class, and the tile sizes.

The lane class runs along contiguous memory of the operands. The row class is one that some vector operand does not use,
so that all rows share its loads.

For y[i, j] = sum of x[i, k] * w[k, j], where w is packed in panels of 32 columns, with 8 lanes:

    lane   j         w and y are contiguous along j
    row    i         w does not use i: the rows of a tile share each vector of w
    outer  none      a batch axis would be here
    rows   4         the height of a tile, and of a work item (`block`)
    width  16        the columns of a tile: 2 vectors
    step   32        the columns of a panel: 2 tiles

A tile holds rows * width / lanes = 8 sums in registers. `VectorUnit` limits the rows and vectors of a tile, so that the
sums, a vector of w and an element of x fit in the registers of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import Caches, Prefetches, VectorUnit
from ..structured.positions import Panel
from .dots import has_instruction
from .quantized_sums import DOT
from .schedule import Stage, lane_loop
from .structure import Op
from .windows import is_window, overlaps

UNDER_WAY = 8
"""The number of sums in flight that hides the latency of an addition. Tiles with fewer rows do not split their sums:
the bits of a row would depend on the number of rows."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The class of each role. `step` is the width of a panel of lanes, `width` that of a tile, `rows` its height, and
    `block` the rows of a work item. `tallest` is the most rows that fit in the registers at this width. `caches`,
    `prefetches`, `sum_steps` and `fetches_panels` are those of the vector unit."""

    lane: int
    row: int | None
    outer: tuple[int, ...]
    rows: int
    block: int
    width: int
    step: int
    windowed: bool
    tallest: int
    caches: Caches
    prefetches: Prefetches
    sum_steps: int
    fetches_panels: bool


def assign_roles(stage: Stage, op: Op, unit: VectorUnit, lanes: int, among: Sequence[int] | None = None) -> Roles:
    """Assigns roles to the parallel classes of a tiled op; the row class is chosen from `among`, or from all
    classes."""
    loop = lane_loop(op)
    assert loop is not None, op.location
    lane = stage.of(op, loop)
    dots = [DOT if n.kind == "quantized_sum" else n for n in op.body.walk() if n.kind in ("dot", "quantized_sum")]
    apart = any(not has_instruction(n, unit.features, lanes) for n in dots)
    rows, most_vectors = unit.halves if apart else (unit.rows, unit.vectors)
    vectors = [a for a in op.reads if loop in a.loops()]
    others = [
        i for i in op.outer if i != loop and stage.sizes[stage.of(op, i)] != 1 and stage.of(op, i) not in stage.around
    ]
    free = [i for i in others if any(i not in a.loops() for a in vectors)]
    overlapping = [i for i in others if overlaps(op, i)]
    # Rows that share no vector may still share the overlap of the vectors that move along with them.
    windowed = len(vectors) == len(op.reads) or (not free and is_window(op) and bool(overlapping))
    if windowed:
        free = free or overlapping
    candidates = [stage.of(op, i) for i in free if among is None or stage.of(op, i) in among]
    row = candidates[-1] if candidates else None
    parallel = stage.parallel(op)
    outer = tuple(c for c in parallel if c not in (lane, row))
    unknown = UNDER_WAY if row is None else most_vectors
    count = -(-size // lanes) if isinstance(size := stage.sizes[lane], int) else unknown
    short = windowed and is_window(op)
    if row is None:
        vectors_each = min(max(count, 1), UNDER_WAY)
    elif short:
        vectors_each = even_groups(count, unit.window[1])
    else:
        vectors_each = even_groups(count, most_vectors)
    width = step = vectors_each * lanes
    packed = _panel_width(op, loop)
    if packed is not None:
        step = packed
        width = even_groups(packed // lanes, unit.window[1] if short else most_vectors) * lanes
    rows = 1 if row is None else unit.window[0] if short else rows
    tallest = rows if row is None or short or apart or width // lanes >= unit.vectors else max(rows, unit.tall)
    if row is not None and isinstance(most := stage.sizes[row], int):
        rows = min(rows, max(most, 1)) if not short else even_groups(max(most, 1), unit.window[0])
    of_unit = unit.caches, unit.prefetches, unit.sum_steps, unit.fetches_panels
    return Roles(lane, row, outer, rows, rows, width, step, short, tallest, *of_unit)


def even_rows(stage: Stage, roles: Roles) -> Roles:
    """Returns the roles with tiles of even heights. 28 rows are four tiles of 7 rather than three of 8 and one of 4:
    low tiles load the vectors that their rows share for few products. Rows whose number is known in the call only keep
    their tiles, since each remainder is a tile of its own."""
    if roles.row is None or not isinstance(size := stage.sizes[roles.row], int):
        return roles
    rows = even_groups(max(size, 1), roles.tallest)
    return replace(roles, rows=rows, block=rows)


def even_groups(count: int, most: int) -> int:
    """Splits `count` items into as few groups of at most `most` as possible; returns the size of the groups."""
    groups = max(1, -(-count // most))
    return max(1, -(-count // groups))


def _panel_width(op: Op, loop: int) -> int | None:
    for access in op.reads:
        for position in access.index:
            if isinstance(position, Panel) and loop in dict(position.index.coefficients):
                return position.width
    return None
