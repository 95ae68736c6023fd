"""Windows that slide over what they read: which reductions are such, and in which order a tile of them is summed.

Rows of such a tile share no vector of one step, but one reads at its next step what its neighbour reads at this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from math import prod

from .structure import Op, Panel

WINDOW = 32
"""Reductions of at most this many steps are written out where nothing but overlapping reads is shared."""


def is_window(op: Op) -> bool:
    """Has the sum few steps, and is their number known?"""
    sizes = [op.loops[i] for i in op.reduced]
    return all(isinstance(s, int) for s in sizes) and prod(int(str(s)) for s in sizes) <= WINDOW


def overlaps(op: Op, loop: int) -> bool:
    """Do neighbours along a loop read the same elements at other steps of the reduction?"""
    return any(not op.parallel[n] for sum in _positions(op, loop) for n in sum)


def _positions(op: Op, loop: int) -> Iterator[Mapping[int, int]]:
    """The positions of what is read that depend on a loop, by their coefficients."""
    for access in op.reads:
        for position in access.index:
            if not isinstance(position, Panel) and loop in dict(position.coefficients):
                yield dict(position.coefficients)


Step = Mapping[int, int]
"""A step of a sum: the number of each loop that is summed over."""


def order_steps(op: Op, row: int | None, rows: int) -> list[tuple[Step, int]]:
    """The steps of the sums of some rows: which step, of which row.

    What several rows read is read by all of them in turn, so that it need not stay in a register; the steps that
    overlap least are outermost, so that what the rows share apart from it is little at a time. The order of the steps
    of one row does not depend on how many there are.
    """
    sizes = [range(int(str(op.loops[i]))) for i in op.reduced]
    steps = [dict(zip(op.reduced, numbers, strict=True)) for numbers in combinations(*sizes)]
    moving = [] if row is None else [p for p in _positions(op, row) if any(not op.parallel[n] for n in p)]
    along = {n for position in moving for n in position}

    def key(use: tuple[Step, int]) -> tuple[object, ...]:
        step, number = use
        places = [sum(c * (number if n == row else step.get(n, 0)) for n, c in p.items()) for p in moving]
        return [i for n, i in step.items() if n not in along], places, number

    return sorted(((step, number) for step in steps for number in range(rows)), key=key)
