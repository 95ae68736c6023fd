"""The memory plan: symbolic offsets of all intermediate tensors of a function in one workspace, and its exact size.

Tensors with disjoint lifetimes share memory where the sizes allow it for all values of the dims. Sizes that cannot be
compared get disjoint memory. A tensor takes the memory of one that dies at the step that writes it, if the step allows
it. The plan does not change the computation or its order.

For tensors a of 256*B bytes, b of 128*B and c of 256*B, each computed from the one before:

    offset     0               256*B   384*B
    step 0     aaaaaaaaaaaaaaaa
    step 1     aaaaaaaaaaaaaaaabbbbbbbb
    step 2     ccccccccccccccccbbbbbbbb        a is dead, and c has its size
    step 3     cccccccccccccccc
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ...dialect.dims import Size, bounds, divisible
from ...dialect.lazy_dataclass import dataclass
from .compare_sizes import Coefficients, Point, Points
from .liveness import ALIGNMENT, Life, Step, aligned, find_lives, join_in_place

_CHUNK = 256
"""The number of offsets that are tried at once."""
_TRIES = 12
"""The number of attempts to improve an order that wastes memory."""
_PATIENCE = 4
"""The attempts without an improvement after which an order is left."""

_Bytes = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


_for_all: Callable[..., _Flags] = np.logical_and.reduce
"""Returns whether all elements along an axis are true, by default the first one. The method `all` of arrays takes twice
as long for small ones."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets in bytes by the names of tensors, and the size of the workspace."""

    offsets: Mapping[str, Size]
    total: Size


@dataclass(frozen=True, slots=True)
class _Placed:
    """Memory from `offset` to `end`, both multiples of the alignment."""

    life: Life
    offset: Point
    end: Point


def plan_memory(steps: Sequence[Step], sizes: Mapping[str, Size]) -> Plan:
    """Assigns offsets to the tensors named in `sizes` (bytes); other tensors of the steps live elsewhere.

    Assumes that steps run in order, and that the first step that names a tensor writes it. The plan uses the placement
    order with the smallest workspace relative to the lower bound, over samples of the dims. If it exceeds the bound,
    the tensor with the highest end is moved to the front of the order, and the placement is repeated.
    """
    lives = join_in_place(steps, find_lives(steps, sizes))
    points = Points([size for life in lives for size in (life.size, aligned(life.size))])
    live = _live_bytes(lives, len(steps), points)
    # The bound of each sample, and the live bytes of the sample with the largest bound.
    bound, largest = live.max(axis=0), live[:, int(live.max(axis=0).argmax())].tolist()
    best = _Placement(0, points)
    least = float("inf")
    for order in _ORDERS:
        ordered = sorted(lives, key=lambda life: (*order(life, largest), life.first, life.names))
        own, since = float("inf"), 0
        for _ in range(_TRIES):
            placement = _place(ordered, points)
            excess = placement.excess(bound)
            if excess < least:
                best, least = placement, excess
            own, since = (excess, 0) if excess < own else (own, since + 1)
            # A workspace equal to the lower bound cannot be improved.
            if least <= 1 or not lives or since == _PATIENCE:
                break
            top = placement.highest().life
            ordered = [top, *(life for life in ordered if life is not top)]
        if least <= 1:
            break
    return Plan({name: p.offset.size for p in best.all for name in p.life.names}, best.total.size)


def _live_bytes(lives: Sequence[Life], steps: int, points: Points) -> _Bytes:
    """Returns the live bytes at each step, for each sample."""
    live = np.zeros((steps + 1, len(points.samples)))
    for life in lives:
        live[life.first : life.last + 1] += points.of(aligned(life.size)).values
    return live


def _place(lives: Sequence[Life], points: Points) -> _Placement:
    """Places all tensors in order, each at the lowest possible offset."""
    placement = _Placement(len(lives), points)
    for life in lives:
        total, size = placement.total, points.of(life.size)
        offset = _find_offset(placement.beside(life), size, total, points)
        end = points.sum(offset, points.of(aligned(life.size)))
        placement.add(_Placed(life, offset, end))
        # `_find_offset` returned an offset whose end is provably below the total, or provably raises it.
        if not points.never_less(total, points.sum(offset, size)):
            placement.total = end
    return placement


@dataclass(frozen=True, slots=True)
class _Beside:
    """Placed tensors, and their offsets and ends for each sample: arrays of [sample, tensor]. The coefficients of both
    are arrays of [coefficient, tensor]."""

    all: list[_Placed]
    offsets: _Bytes
    ends: _Bytes
    offset_coefficients: Coefficients
    end_coefficients: Coefficients


class _Placement:
    """The tensors placed so far, the first and the last step of each, and its offset and its end for each sample."""

    def __init__(self, count: int, points: Points) -> None:
        self.total = points.of(0)
        self.all: list[_Placed] = []
        self._first, self._last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._offsets, self._ends = np.zeros((2, len(points.samples), count))
        self._offset_coefficients, self._end_coefficients = np.zeros((2, points.width, count))

    def add(self, placed: _Placed) -> None:
        number = len(self.all)
        self._first[number], self._last[number] = placed.life.first, placed.life.last
        offset, end = placed.offset, placed.end
        self._offsets[:, number], self._ends[:, number] = offset.values, end.values
        self._offset_coefficients[:, number], self._end_coefficients[:, number] = offset.coefficients, end.coefficients
        self.all.append(placed)

    def beside(self, life: Life) -> _Beside:
        """Returns the placed tensors with an overlapping lifetime, in order of placement."""
        count = len(self.all)
        numbers = ((self._first[:count] <= life.last) & (self._last[:count] >= life.first)).nonzero()[0]
        placed = [self.all[number] for number in numbers.tolist()]
        arrays = self._offsets, self._ends, self._offset_coefficients, self._end_coefficients
        return _Beside(placed, *(array.take(numbers, axis=1) for array in arrays))

    def highest(self) -> _Placed:
        """Returns the placed tensor with the highest end, summed over the samples."""
        return max(self.all, key=lambda placed: sum(placed.end.values))

    def excess(self, bound: _Bytes) -> float:
        """Returns the worst ratio of the workspace to its lower bound among the samples."""
        return float(np.max(np.array(self.total.values) / np.maximum(bound, 1)))


# Orders of placement. A later tensor fills the gaps that earlier ones leave.


def _by_size(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """Orders tensors by size, largest first. Sizes that must be rounded up come last, since little is known of the
    offsets after them."""
    low, high = bounds(life.size)
    return not divisible(life.size, ALIGNMENT), -high, -low


def _by_crowd(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """Orders tensors by the live bytes during their lifetime."""
    return -max(live[life.first : life.last + 1]), *_by_size(life, live)


def _by_area(life: Life, live: Sequence[float]) -> tuple[float, ...]:
    """Orders tensors by size times lifetime."""
    rounded, high, low = _by_size(life, live)
    length = life.last - life.first + 1
    return rounded, high * length, low * length


_ORDERS: tuple[Callable[[Life, Sequence[float]], tuple[float, ...]], ...] = (_by_size, _by_crowd, _by_area)


def _candidates(others: _Beside, size: Point, points: Points) -> Iterator[tuple[Point, _Flags]]:
    """Yields the offsets at which a tensor of that size overlaps no other for any of the samples, and for each of them
    which of the others lie above it."""
    # The lowest free offset is 0 or the end of another tensor; tensors that end at the same size are one candidate.
    numbers = {p.end: number for number, p in enumerate(others.all)}
    zero = points.of(0)
    numbers.pop(zero, None)
    starts = [zero, *numbers]
    least = np.array(size.values)
    lowest = np.concatenate([np.zeros((len(least), 1)), others.ends.take(list(numbers.values()), axis=1)], axis=1)
    # Each other tensor lies above or below a candidate, for every sample: arrays of [sample, candidate, other tensor].
    for first in range(0, len(starts), _CHUNK):
        start = lowest[:, first : first + _CHUNK, None]
        above = _for_all(others.offsets[:, None] >= start + least[:, None, None])
        below = _for_all(others.ends[:, None] <= start)
        for row in _for_all(above | below, axis=1).nonzero()[0].tolist():
            yield starts[first + row], above[row]


def _find_offset(others: _Beside, size: Point, total: Point, points: Points) -> Point:
    """Returns the least offset at which the tensor provably overlaps no other, and provably ends below the total or
    raises the total to its own end; otherwise the total."""
    never_less = points.never_less
    best: Point | None = None
    for offset, above in _candidates(others, size, points):
        if best is not None and never_less(offset, best):
            continue
        # Offsets are multiples of the alignment, so an end below an offset stays below it when rounded up.
        end = points.sum(offset, size)
        if not _fits(others, offset, end, above, points):
            continue
        if never_less(total, end) or never_less(end, total):
            best = offset
    return total if best is None else best


def _fits(others: _Beside, offset: Point, end: Point, above: _Flags, points: Points) -> bool:
    """Returns whether memory from `offset` to `end` provably overlaps no other: those marked in `above` lie above it,
    and the rest below it."""
    after = _for_all(others.offset_coefficients >= end.coefficients[:, None])
    before = _for_all(others.end_coefficients <= offset.coefficients[:, None])
    # Coefficients prove the order of most pairs.
    return all(
        points.never_less(others.all[n].offset, end) if above[n] else points.never_less(offset, others.all[n].end)
        for n in (~np.where(above, after, before)).nonzero()[0].tolist()
    )
