"""Where every intermediate tensor of a function lives: symbolic offsets into one workspace, and its exact size.

Tensors whose lives do not overlap share memory where the sizes are known to allow it whatever the dims; nothing is
assumed of sizes that cannot be compared. A tensor lies in the place of one that dies as it is written, where the step
allows it. The plan decides nothing about what is computed, or when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..dialect.dims import Size, add, bounds, divisible
from .compare_sizes import Point, Points
from .liveness import ALIGNMENT, Life, Step, aligned, find_lives, join_in_place

_CHUNK = 256
"""So many offsets are tried at once."""
_TRIES = 12
"""So often an order is changed that wastes memory."""

_Bytes = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets in bytes by the names of tensors, and how large the workspace must be."""

    offsets: Mapping[str, Size]
    total: Size


@dataclass(frozen=True, slots=True)
class _Placed:
    """Memory from `offset` to `end`, both multiples of the alignment."""

    life: Life
    offset: Point
    end: Point


def plan_memory(steps: Sequence[Step], sizes: Mapping[str, Size]) -> Plan:
    """Places the tensors named in `sizes` (bytes); what steps name besides lives elsewhere.

    Assumes that steps run in order, and that the first step that names a tensor writes it. Of the orders in which
    tensors can be placed the one is taken that needs least for some values of the dims; where that is more than must
    be, what came to lie on top is placed first, and all again.
    """
    lives = join_in_place(steps, find_lives(steps, sizes))
    points = Points([life.size for life in lives])
    live = _live_bytes(lives, len(steps), points)
    bound, largest = live.max(axis=0), live[:, int(live.max(axis=0).argmax())].tolist()
    best = _Placement(len(steps), points)
    least = float("inf")
    for order in _ORDERS:
        ordered = sorted(lives, key=lambda life: (*order(life, largest), life.first, life.names))
        for _ in range(_TRIES):
            placement = _place(ordered, len(steps), points)
            if placement.excess(bound) < least:
                best, least = placement, placement.excess(bound)
            if least <= 1 or not lives:
                break
            top = placement.highest().life
            ordered = [top, *(life for life in ordered if life is not top)]
        if least <= 1:
            break
    return Plan({name: p.offset.size for p in best.all for name in p.life.names}, best.total.size)


def _live_bytes(lives: Sequence[Life], steps: int, points: Points) -> _Bytes:
    """What must be there at each step, for each of the samples."""
    live = np.zeros((steps + 1, len(points.samples)))
    for life in lives:
        live[life.first : life.last + 1] += points.of(aligned(life.size)).values
    return live


def _place(lives: Sequence[Life], steps: int, points: Points) -> _Placement:
    """All of them, one after another, each as low as it can be."""
    placement = _Placement(steps, points)
    for life in lives:
        total = placement.total
        offset = _find_place(placement.beside(life), life, total, points)
        end = points.of(add(offset.size, aligned(life.size)))
        placement.add(_Placed(life, offset, end))
        if not points.never_less(total, points.of(add(offset.size, life.size))):
            placement.total = end
    return placement


class _Placement:
    """Everything that has its place, by the steps in which it lives."""

    def __init__(self, steps: int, points: Points) -> None:
        self.total = points.of(0)
        self.all: list[_Placed] = []
        self._at: list[list[int]] = [[] for _ in range(steps)]

    def add(self, placed: _Placed) -> None:
        for step in range(placed.life.first, placed.life.last + 1):
            self._at[step].append(len(self.all))
        self.all.append(placed)

    def beside(self, life: Life) -> list[_Placed]:
        """What lives at the same time, in the order in which it was placed."""
        found = {number for step in range(life.first, life.last + 1) for number in self._at[step]}
        return [self.all[number] for number in sorted(found)]

    def highest(self) -> _Placed:
        """What ends last, in the sum over the samples."""
        return max(self.all, key=lambda placed: sum(placed.end.values))

    def excess(self, bound: _Bytes) -> float:
        """How many times as large the workspace is as it must be, where that is worst among the samples."""
        return float(np.max(np.array(self.total.values) / np.maximum(bound, 1)))


# In which order tensors are placed. What is placed later fills what the others leave.


def _by_size(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """The largest first. Sizes that have to be rounded up come after the others, since little can be told of offsets
    behind them."""
    low, high = bounds(life.size)
    return not divisible(life.size, ALIGNMENT), -high, -low


def _by_crowd(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """Those first that live when most does."""
    return -max(live[life.first : life.last + 1]), *_by_size(life, live)


def _by_area(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """Those first that take most memory for the longest time."""
    rounded, high, low = _by_size(life, live)
    length = life.last - life.first + 1
    return rounded, high * length, low * length


_ORDERS: tuple[Callable[[Life, Sequence[float]], tuple[float, ...]], ...] = (_by_size, _by_crowd, _by_area)


def _candidates(others: Sequence[_Placed], size: Point, points: Points) -> Iterator[tuple[Point, list[bool]]]:
    """The points where something of that size overlaps nothing for any of the samples; and which of the others then
    lie above it."""
    starts = list(dict.fromkeys((points.of(0), *(p.end for p in others))))
    offsets = np.array([p.offset.values for p in others]).reshape(-1, len(size.values))
    ends = np.array([p.end.values for p in others]).reshape(-1, len(size.values))
    for first in range(0, len(starts), _CHUNK):
        chunk = starts[first : first + _CHUNK]
        start = np.array([point.values for point in chunk])[:, None, :]
        above = (offsets >= start + np.array(size.values)).all(axis=2)
        fits = (above | (start >= ends).all(axis=2)).all(axis=1)
        for row in np.flatnonzero(fits).tolist():
            yield chunk[row], above[row].tolist()


def _find_place(others: Sequence[_Placed], life: Life, total: Point, points: Points) -> Point:
    """The least offset at which the life is known to overlap none of the others, and to stay below the total or to
    raise it to its own end; else the total."""
    never_less = points.never_less
    best: Point | None = None
    for offset, above in _candidates(others, points.of(life.size), points):
        if best is not None and never_less(offset, best):
            continue
        # Offsets are multiples of the alignment: what ends below one does so when rounded up, too.
        end = points.of(add(offset.size, life.size))
        if not all(
            never_less(p.offset, end) if is_above else never_less(offset, p.end)
            for p, is_above in zip(others, above, strict=True)
        ):
            continue
        if never_less(total, end) or never_less(end, total):
            best = offset
    return total if best is None else best
