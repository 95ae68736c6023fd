"""Widening of bf16 rows to f32 for several vectors of a weight, on CPUs without a bf16 multiplication.

Splitting a word of two bf16 values at every read costs about a third as much as the row's multiplications. So a stretch
of the sum is widened for all rows of a tile in advance; a short one, which stays in the nearest cache until it is read.
The results and their order are unchanged.

For the sums of 4 rows with a weight in bf16, where a word holds two steps:

    without         for each word of each row: split into two f32, multiply with the vectors of the weight
    with            for each stretch of at most 128 words: widen 4 rows into f32 on the stack,
                    then for each word: load two f32, multiply
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ..structured.positions import Panel
from .dots import Halves, has_instruction
from .evaluate import Evaluator, Iteration
from .forms import LANES, variable
from .structure import Op

MOST_GROUPS = 128
"""The number of groups of steps in a stretch."""
SPACING = 16
"""The padding, in elements, between rows, which would otherwise map to the same few cache sets."""


def find_rows(op: Op, loop: int, row: int | None, features: AbstractSet[str], lanes: int) -> int | None:
    """Returns the index of an op's read of rows, a group of bf16 values with every step of a loop, if it is to be
    widened."""
    if (
        row is None
        or op.composed
        or op.body.kind != "dot"
        or op.body.type != "f32"
        or has_instruction(op.body, features, lanes)
    ):
        return None
    for number, access in enumerate(op.reads):
        group = access.group
        if group is not None and group.loop == loop and group.stride == 1 and row in access.loops():
            return None if any(isinstance(p, Panel) for p in access.index) else number
    return None


def choose_stretch(groups: int, size: int, lanes: int) -> int:
    """Returns the number of groups in a stretch, in whole vectors of elements: the one that leaves the fewest groups
    behind, or 0 if there are too few."""
    choices = range(lanes // size, min(groups, MOST_GROUPS) + 1, lanes // size)
    return max(choices, key=lambda stretch: (groups // stretch * stretch, stretch), default=0)


def widen_rows(
    evaluator: Evaluator, op: Op, number: int, row: int, iterations: Sequence[Iteration], groups: int
) -> None:
    """Widens `groups` groups of each row, at the given positions, into memory on the stack, and redirects the op's
    reads to it. `row` is the class of the rows."""
    writer, access = evaluator.writer, op.reads[number]
    assert access.group is not None, op.location
    size, moving = access.group.size, evaluator.stage.of(op, access.group.loop)
    length = groups * size + SPACING
    buffer = evaluator.stack("widened", op, (MOST_GROUPS * size + SPACING) * len(iterations))
    with writer.loop(writer.size(0), writer.size(groups * size), writer.lanes) as index:
        for count, iteration in enumerate(iterations):
            source, first = evaluator.home(access, op, iteration)
            value = writer.load(source, first + variable(index) + LANES)
            wide = writer.apply("arith.extf", "", [value], "f32")
            writer.store(buffer, variable(index).plus(count * length) + LANES, wide)
    origin = iterations[0][row].times(-length) + iterations[0][moving].times(-size)

    def halves(at: Iteration) -> Halves:
        first = origin + at[row].times(length) + at[moving].times(size)
        return Halves(writer.load(buffer, first), writer.load(buffer, first.plus(1)))

    evaluator.widened[id(op), number] = halves
