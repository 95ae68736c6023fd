"""Rows of bfloats that are made f32 for several vectors of a weight at a time, where no instruction multiplies them.

A word of two bfloats that is taken apart wherever it is read costs a row a third of what it is multiplied with. So a
stretch of the sum is widened for all rows of a tile before it is gone through; a short one, which stays in the nearest
cache until it is read. What is computed is the same, in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .dots import Halves, has_instruction
from .evaluate import Evaluator, Place
from .forms import LANES, variable
from .structure import Op, Panel

MOST_GROUPS = 128
"""Groups of steps in a stretch."""
SPACING = 16
"""Elements between rows, which else meet in the same few sets of the cache."""


def find_rows(op: Op, loop: int, row: int | None, features: Collection[str], lanes: int) -> int | None:
    """The number of what an op reads of rows, a group of bfloats with every step of a loop, if it is to be widened."""
    if row is None or op.body.kind != "dot" or op.body.type != "f32" or has_instruction(op.body, features, lanes):
        return None
    for number, access in enumerate(op.reads):
        group = access.group
        if group is not None and group.loop == loop and group.stride == 1 and row in access.loops():
            return None if any(isinstance(p, Panel) for p in access.index) else number
    return None


def choose_stretch(groups: int, size: int, lanes: int) -> int:
    """Groups of a stretch, whole vectors of elements: as many as leave the fewest behind; 0 if there are too few."""
    choices = range(lanes // size, min(groups, MOST_GROUPS) + 1, lanes // size)
    return max(choices, key=lambda stretch: (groups // stretch * stretch, stretch), default=0)


def widen_rows(evaluator: Evaluator, op: Op, number: int, row: int, places: Sequence[Place], groups: int) -> None:
    """Puts so many groups of each row, the places of which are given, into memory of the stack, and lets the op read
    them there. `row` is the class of the rows."""
    writer, access = evaluator.writer, op.reads[number]
    assert access.group is not None, op.location
    size, moving = access.group.size, evaluator.stage.of(op, access.group.loop)
    length = groups * size + SPACING
    buffer = evaluator.stack("widened", op, (MOST_GROUPS * size + SPACING) * len(places))
    with writer.loop(writer.size(0), writer.size(groups * size), writer.lanes) as index:
        for count, place in enumerate(places):
            source, first = evaluator.home(access, op, place)
            value = writer.load(source, first + variable(index) + LANES)
            wide = writer.apply("arith.extf", "", [value], "f32")
            writer.store(buffer, variable(index).plus(count * length) + LANES, wide)
    origin = places[0][row].times(-length) + places[0][moving].times(-size)

    def halves(at: Place) -> Halves:
        first = origin + at[row].times(length) + at[moving].times(size)
        return Halves(writer.load(buffer, first), writer.load(buffer, first.plus(1)))

    evaluator.widened[id(op), number] = halves
