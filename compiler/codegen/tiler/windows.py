"""Sliding windows (convolutions, pooling): recognition, and the summation order of a tile.

The rows of such a tile share no vector within one step, but a row reads at its next step the vector that its neighbour
reads at this step.

For y[r] = sum of x[r + t] * w[t] over 3 steps t, `order_steps` sorts the products of 3 rows by the element of x that
they read, so that the rows use each element in turn:

    x[0]: row 0, t = 0
    x[1]: row 0, t = 1    row 1, t = 0
    x[2]: row 0, t = 2    row 1, t = 1    row 2, t = 0
    x[3]:                 row 1, t = 2    row 2, t = 1
    x[4]:                                 row 2, t = 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from math import prod

from ....dialect.dims import static_size
from ....dialect.emitter import Index
from .structure import Op

WINDOW = 49
"""The most steps of a reduction that is unrolled where rows share only overlapping reads."""


def is_window(op: Op) -> bool:
    """Returns whether the sum has few steps, and their number is known."""
    sizes = [op.loops[i] for i in op.reduced]
    return all(isinstance(s, int) for s in sizes) and prod(static_size(s) for s in sizes) <= WINDOW


def overlaps(op: Op, loop: int) -> bool:
    """Returns whether neighbours along a loop read the same elements at other steps of the reduction."""
    return any(not op.parallel[n] for sum in _positions(op, loop) for n in sum)


def _positions(op: Op, loop: int) -> Iterator[Mapping[int, int]]:
    """Yields the positions of reads that depend on a loop, by their coefficients."""
    for access in op.reads:
        for position in access.index:
            if isinstance(position, Index) and loop in dict(position.coefficients):
                yield dict(position.coefficients)


Step = Mapping[int, int]
"""A step of a sum: the index of each loop that is summed over."""


def order_steps(op: Op, row: int | None, rows: int) -> list[tuple[Step, int]]:
    """Returns the steps of the sums of some rows, each with its row.

    All rows that share a read use it in turn, so that it need not stay in a register. The steps with the least overlap
    are outermost, so that few of the other shared vectors are live at a time. The order of one row's steps does not
    depend on the number of rows.
    """
    sizes = [range(static_size(op.loops[i])) for i in op.reduced]
    steps = [dict(zip(op.reduced, numbers, strict=True)) for numbers in combinations(*sizes)]
    moving = [] if row is None else [p for p in _positions(op, row) if any(not op.parallel[n] for n in p)]
    along = {n for position in moving for n in position}

    def key(use: tuple[Step, int]) -> tuple[object, ...]:
        step, number = use
        offsets = [sum(c * (number if n == row else step.get(n, 0)) for n, c in p.items()) for p in moving]
        return [i for n, i in step.items() if n not in along], offsets, number

    return sorted(((step, number) for step in steps for number in range(rows)), key=key)
