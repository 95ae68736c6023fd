"""Points of two captures side by side: how far they are apart, whether rounding explains it, and where they part first.

No graph is at hand, so what rounding explains is estimated: an operation rounds by a few units of its dtype's epsilon,
relative to the largest number of its result, and errors of many operations add up as a random walk does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from ...dialect.types import Array, dtype_of
from ..checking.compare import Errors, absolute_errors, measure_errors, ulp_distances
from ..checking.tolerance import BLOCKS_ERROR
from .capture import Capture, Point

ROUNDING = 8
"""By how many units of epsilon an operation may be off; a sum of a thousand terms in another order reaches about 4."""
BINS = (0, 1, 4, 16, 256, 65536)
"""The distances in units in the last place that the histogram counts up to; one more counts what is beyond."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`relative` replaces the estimate: the error that is allowed, as a share of the largest number of a tensor."""

    relative: float | None = None

    def allowed(self, a: Point, b: Point) -> float:
        """The absolute error that two tensors may have."""
        dtype = dtype_of(a.array)
        if not dtype.is_float:
            return 0.0
        share = self.relative
        if share is None:
            share = ROUNDING * dtype.epsilon * sqrt(1 + max(a.operations, b.operations))
            if a.in_blocks or b.in_blocks:
                share += BLOCKS_ERROR
        return share * max(_largest(a.array), _largest(b.array))


def _largest(array: Array) -> float:
    numbers = np.abs(array.astype(np.float64))
    return float(np.max(numbers, initial=0.0, where=np.isfinite(numbers)))


@dataclass(frozen=True, slots=True)
class PointDifference:
    """One point in both. `mismatch` says how the tensors are of different types; then there are no errors.

    `histogram` counts elements by their distance in units in the last place, see `BINS`; it is empty unless they are
    floats.
    """

    a: Point
    b: Point
    allowed: float = 0.0
    errors: Errors | None = None
    histogram: tuple[int, ...] = ()
    mismatch: str = ""

    @property
    def differs(self) -> bool:
        return self.errors is None or self.errors.different > 0

    @property
    def diverges(self) -> bool:
        """Is it beyond what is allowed?"""
        return self.errors is None or self.errors.largest > self.allowed


@dataclass(frozen=True, slots=True)
class Comparison:
    """The points that both have, in the order of computing, and those that only one has."""

    points: tuple[PointDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def divergence(self) -> PointDifference | None:
        """The first point that is beyond what is allowed."""
        return next((p for p in self.points if p.diverges), None)

    @property
    def first(self) -> PointDifference | None:
        """The first point that is not the same in both."""
        return next((p for p in self.points if p.differs), None)


def compare_captures(a: Capture, b: Capture, tolerance: Tolerance) -> Comparison:
    first, second = a.points, b.points
    order = [name for name in (first if a.ordered else second) if name in first and name in second]
    points = tuple(compare_points(first[name], second[name], tolerance) for name in order)
    only_a, only_b = (tuple(n for n in x if n not in y) for x, y in ((first, second), (second, first)))
    return Comparison(points, only_a, only_b)


def compare_points(a: Point, b: Point, tolerance: Tolerance) -> PointDifference:
    types = [f"{dtype_of(p.array)}{list(p.array.shape)}" for p in (a, b)]
    if types[0] != types[1]:
        return PointDifference(a, b, mismatch=f"{types[0]} and {types[1]}")
    errors = measure_errors(b.array, a.array)
    return PointDifference(a, b, tolerance.allowed(a, b), errors, _histogram(b.array, a.array))


def _histogram(actual: Array, expected: Array) -> tuple[int, ...]:
    if not dtype_of(actual).is_float:
        return ()
    apart = np.where(absolute_errors(actual, expected) == 0, 0.0, ulp_distances(actual, expected))
    within = [int(np.count_nonzero(apart <= most)) for most in BINS]
    return (*(upper - lower for lower, upper in zip((0, *within), within, strict=False)), apart.size - within[-1])
