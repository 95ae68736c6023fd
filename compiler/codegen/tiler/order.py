"""In which order the tiles of an op are computed: its units, so that what several of them read is still in the cache.

A unit is a panel of lanes for a block of rows, at one place of the outer classes. Which sums there are does not depend
on their order, nor do the bits of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from ....dialect.dims import Size, bounds, minimum, product
from .ahead import SHARING, Panels, Turns
from .evaluate import Place
from .forms import Form, constant, variable
from .nest import blocks
from .roles import Roles
from .schedule import Stage, lane_loop
from .structure import Access, Op
from .text import Writer, element_bytes

CACHED = 1 << 20
"""Bytes that are taken to stay in a core's cache."""
PART = 2
"""Of what does not, so large a part of it is taken as a group: beside it, panels and results pass through."""


@dataclass(frozen=True, slots=True)
class Group:
    """So many `blocks` of rows are computed for all panels of lanes before the next ones are; as many as `all` of them
    are one group."""

    blocks: int
    all: int


@dataclass(frozen=True, slots=True)
class Order:
    """The classes of the units, the last of which runs fastest, and how many there are of each. With a `group`, these
    are lanes and rows."""

    roles: Roles
    classes: tuple[int, ...]
    counts: tuple[Size, ...]
    group: Group | None = None

    def place(self, writer: Writer, numbers: Sequence[Form]) -> tuple[Place, Panels]:
        """Where the unit of these numbers begins, and how panels are gone through around it."""
        roles = self.roles
        at = dict(zip(self.classes, numbers, strict=True))
        first = constant(0)
        if self.group is not None:
            assert roles.row is not None
            first, at[roles.lane], at[roles.row] = self._in_groups(writer, at[roles.lane], at[roles.row], self.group)
        steps = {roles.lane: roles.step, roles.row: roles.block}
        return {c: number.times(steps.get(c, 1)) for c, number in at.items()}, Panels(roles.step, self._turns(first))

    def _turns(self, first: Form) -> tuple[Turns, ...]:
        """What takes the same panel of lanes again, unit by unit, from the `first` block of rows on."""
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
        """The first block of the group, the panel and the block that come in place of those that would without groups.
        The last group has the blocks that are left."""

        def let(operation: str, left: str, right: str) -> str:
            return writer.let(f"arith.{operation} {left}, {right} : index")

        *_, panels, rows = (writer.size(count) for count in self.counts)
        few = writer.let(f"arith.cmpi ule, {rows}, {writer.size(group.all)} : index")
        size = writer.let(f"arith.select {few}, {rows}, {writer.size(group.blocks)} : index")
        number = let("addi", let("muli", writer.index(panel), rows), writer.index(block))
        whole = let("muli", panels, size)
        first = let("muli", let("divui", number, whole), size)
        within = let("remui", number, whole)
        count = let("minui", let("subi", rows, first), size)
        turn = variable(let("remui", within, count))
        return variable(first), variable(let("divui", within, count)), variable(first) + turn


def choose_order(stage: Stage, op: Op, roles: Roles) -> Order:
    """Slice by slice, and so that what is read along the lanes is read again soon, or if all of it does not stay in the
    cache anyway, only once. Where what is read along the rows does not stay either, they are taken in groups that
    do."""
    loop = lane_loop(op)
    vectors = [a for a in op.reads if loop in a.loops()]
    used = {stage.of(op, i) for a in vectors for i in a.loops()}
    rows = [] if roles.row is None else [roles.row]
    across = [c for c in roles.outer if c not in used]
    along, others = (_bytes(a for a in op.reads if (loop in a.loops()) == side) for side in (True, False))
    panels = bounds(_count(stage, roles, roles.lane))[1]
    times = bounds(product(stage.sizes[c] for c in across))[1]
    order = [*roles.outer, roles.lane, *rows]
    if along > CACHED and along * times > others * panels:
        order = [*(c for c in roles.outer if c in used), roles.lane, *across, *rows]
    order = [*stage.around, *(c for c in order if c not in stage.around)]
    counts = tuple(_count(stage, roles, c) for c in order)
    adjacent = rows and order[-2] == roles.lane
    return Order(roles, tuple(order), counts, _group(stage, op, roles) if adjacent else None)


def _count(stage: Stage, roles: Roles, c: int) -> Size:
    steps = {roles.lane: roles.step, roles.row: roles.block}
    return blocks(stage.sizes[c], steps[c]) if c in steps else stage.sizes[c]


def _group(stage: Stage, op: Op, roles: Roles) -> Group | None:
    """Where not all blocks of rows may stay in the cache while several panels are gone through. Panels that do not stay
    themselves would be read more often for that."""
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
    group = Group(CACHED // PART // block, CACHED // block)
    of_no_use = blocks_of_rows <= group.all or touched(along=True) > CACHED
    return None if panels == 1 or of_no_use or group.blocks < SHARING else group


def _bytes(accesses: Iterable[Access]) -> int:
    """At most so much is read."""
    return sum(element_bytes(a.tensor.element) * bounds(product(a.tensor.shape))[1] for a in accesses)
