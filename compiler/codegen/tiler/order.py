"""The order of an op's tiles: its work items are ordered so that shared operands are still in the cache.

A work item is a panel of lanes for a block of rows, at one position of the outer classes. The order changes neither the
set of sums nor the bits of any sum.

The work items of 2 panels (p) and 4 blocks of rows (b), without groups and in groups of 2 blocks:

    p0b0 p0b1 p0b2 p0b3   p1b0 p1b1 p1b2 p1b3      each panel is read once, each block of rows twice, far apart
    p0b0 p0b1 p1b0 p1b1   p0b2 p0b3 p1b2 p1b3      the rows of a group are read again while they are in the cache
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ....dialect.dims import Size, bounds, minimum, product
from ....dialect.lazy_dataclass import dataclass
from .evaluate import Iteration
from .forms import Form, constant, variable
from .nest import blocks
from .prefetch import SHARING, Panels, Turns
from .roles import Roles
from .schedule import Stage, lane_loop
from .structure import Access, Op
from .text import Writer, element_bytes

PART = 2
"""The divisor of the cache size for operands that are read again, such as a group of rows: the others and the results
pass through the rest of the cache."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rows: `blocks` blocks are computed for all panels of lanes before the next group; up to `all` blocks
    form a single group."""

    blocks: int
    all: int


@dataclass(frozen=True, slots=True)
class Order:
    """The classes of the work items and their counts; the last class varies fastest. With a `group`, these are lanes
    and rows."""

    roles: Roles
    classes: tuple[int, ...]
    counts: tuple[Size, ...]
    group: Group | None = None

    def iteration(self, writer: Writer, numbers: Sequence[Form]) -> tuple[Iteration, Panels]:
        """Returns the start of the work item at these indices, and the order of panels around it."""
        roles = self.roles
        at = dict(zip(self.classes, numbers, strict=True))
        first = constant(0)
        if self.group is not None:
            assert roles.row is not None
            first, at[roles.lane], at[roles.row] = self._in_groups(writer, at[roles.lane], at[roles.row], self.group)
        steps = {roles.lane: roles.step, roles.row: roles.block}
        panels = Panels(roles.step, self._turns(first), roles.prefetches)
        return {c: number.times(steps.get(c, 1)) for c, number in at.items()}, panels

    def _turns(self, first: Form) -> tuple[Turns, ...]:
        """Returns the loops that revisit the same panel of lanes, work item by work item, from the `first` block of
        rows on."""
        roles, behind = self.roles, self.classes.index(self.roles.lane) + 1
        turns = []
        for c, count in zip(self.classes[behind:], self.counts[behind:], strict=True):
            if c == roles.row:
                at_once = count if self.group is None else minimum(count, self.group.all)
                turns.append(Turns(c, roles.block, at_once, first))
            else:
                turns.append(Turns(c, 1, count, constant(0)))
        return tuple(turns)

    def _in_groups(self, writer: Writer, panel: Form, block: Form, group: Group) -> tuple[Form, Form, Form]:
        """Returns the first block of the group, and the panel and block that replace those of the ungrouped order. The
        last group has the remaining blocks."""

        def let(operation: str, left: str, right: str) -> str:
            return writer.let(f"arith.{operation} {left}, {right} : index")

        writer.steps.add(group.all * self.roles.block)
        *_, panels, rows = (writer.size(count) for count in self.counts)
        few = writer.let(f"arith.cmpi ule, {rows}, {writer.size(group.all)} : index")
        size = writer.let(f"arith.select {few}, {rows}, {writer.size(group.blocks)} : index")
        # The number of the work item, panel by panel, and its position in groups of `size` blocks for all panels.
        number = let("addi", let("muli", writer.index(panel), rows), writer.index(block))
        whole = let("muli", panels, size)
        first = let("muli", let("divui", number, whole), size)
        within = let("remui", number, whole)
        # Blocks of this group, which has fewer at the end; they run fastest.
        count = let("minui", let("subi", rows, first), size)
        turn = variable(let("remui", within, count))
        return variable(first), variable(let("divui", within, count)), variable(first) + turn


def choose_order(stage: Stage, op: Op, roles: Roles, *, copied: bool = False) -> Order:
    """Chooses the order of the work items, slice by slice. The operands along the lanes are read again soon, or, if
    they do not fit in the cache, only once. Operands along the rows that do not fit either are read in groups that
    do. `copied` tells whether each work item copies its panel."""
    loop = lane_loop(op)
    vectors = [a for a in op.reads if loop in a.loops()]
    used = {stage.of(op, i) for a in vectors for i in a.loops()}
    rows = [] if roles.row is None else [roles.row]
    across = [c for c in roles.outer if c not in used]
    along, others = (_bytes(a for a in op.reads if (loop in a.loops()) == side) for side in (True, False))
    panels = bounds(_count(stage, roles, roles.lane))[1]
    times = bounds(product(stage.sizes[c] for c in across))[1]
    order = [*roles.outer, roles.lane, *rows]
    # With the classes across outermost, vectors that do not stay in the cache are read `times` times. They stay in a
    # part of it: the other operands and the results pass through the rest. With the lanes outside of the classes
    # across, the other operands are read once for each panel.
    if along > roles.caches.own // PART and along * times > others * panels:
        order = [*(c for c in roles.outer if c in used), roles.lane, *across, *rows]
    if copied:
        # Each work item copies its panel, so that only the rows can stay in the cache between work items.
        order = [*roles.outer, *rows, roles.lane]
    order = [*stage.around, *(c for c in order if c not in stage.around)]
    counts = tuple(_count(stage, roles, c) for c in order)
    adjacent = rows and order[-2] == roles.lane and not copied
    return Order(roles, tuple(order), counts, _group(stage, op, roles) if adjacent else None)


def _count(stage: Stage, roles: Roles, c: int) -> Size:
    steps = {roles.lane: roles.step, roles.row: roles.block}
    return blocks(stage.sizes[c], steps[c]) if c in steps else stage.sizes[c]


def _group(stage: Stage, op: Op, roles: Roles) -> Group | None:
    """Returns a group where not all blocks of rows may stay in the cache during several panels. Grouping makes panels
    that do not fit themselves be read more often."""
    assert roles.row is not None
    loop = lane_loop(op)
    extent = {c: bounds(size)[1] for c, size in enumerate(stage.sizes)}
    extent |= dict.fromkeys(roles.outer, 1) | {roles.row: roles.block, roles.lane: roles.step}

    def touched(along: bool) -> int:
        accesses = [a for a in op.reads if (loop in a.loops()) == along]
        sizes = [(element_bytes(a.tensor.element), {stage.of(op, i) for i in a.loops()}) for a in accesses]
        return sum(size * prod(extent[c] for c in classes) for size, classes in sizes)

    blocks_of_rows, panels = (bounds(_count(stage, roles, c))[1] for c in (roles.row, roles.lane))
    block = max(1, touched(along=False))
    cached = roles.caches.own
    group = Group(cached // PART // block, cached // block)
    of_no_use = blocks_of_rows <= group.all or touched(along=True) > cached
    return None if panels == 1 or of_no_use or group.blocks < SHARING else group


def _bytes(accesses: Iterable[Access]) -> int:
    """Returns an upper bound of the bytes that are read."""
    return sum(element_bytes(a.tensor.element) * bounds(product(a.tensor.shape))[1] for a in accesses)
