"""Compares the points of two captures: their errors, whether rounding explains them, and the first divergence.

Each side estimates its own rounding error (`rounding.py`). The error of a reference is unknown, and is assumed to equal
that of the build.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

import numpy as np

from ....dialect.types import Array, dtype_of
from ...comparison.capture import Capture, Point
from ...validate.array_errors import Errors, absolute_errors, measure_errors, ulp_distances
from .stored import Weights

BINS = (0, 1, 4, 16, 256, 65536)
"""The upper bounds of the histogram's bins, in units in the last place; one more bin counts larger distances."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`relative` replaces the estimated rounding error: the allowed error, as a share of the largest number."""

    relative: float | None = None

    def allowed(self, a: Point, b: Point) -> float:
        """Returns the allowed absolute error between two tensors."""
        if not dtype_of(a.array).is_float:
            return 0.0
        share = self.relative
        if share is None:
            share = hypot(a.rounding or b.rounding, b.rounding or a.rounding)
        return share * max(_largest(a.array), _largest(b.array))


def _largest(array: Array) -> float:
    numbers = np.abs(array.astype(np.float64))
    return float(np.max(numbers, initial=0.0, where=np.isfinite(numbers)))


@dataclass(frozen=True, slots=True)
class PointDifference:
    """The difference of one point. `mismatch` describes different types of the tensors, or the failure of a
    side; then there are no errors.

    `histogram` counts elements by their distance in units in the last place, see `BINS`; it is empty for dtypes other
    than floats.
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
        """Whether the error exceeds the allowed one."""
        return self.errors is None or self.errors.largest > self.allowed


@dataclass(frozen=True, slots=True)
class Comparison:
    """The points that both have, parameters first and then in order of computation, and those that only one has;
    `apart` are parameters whose stored forms do not correspond, and `note` lists other omissions."""

    points: tuple[PointDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    apart: tuple[str, ...] = ()
    note: str = ""

    @property
    def divergence(self) -> PointDifference | None:
        """The first point whose error exceeds the allowed one."""
        return next((p for p in self.points if p.diverges), None)

    @property
    def first(self) -> PointDifference | None:
        """The first point that differs between the two."""
        return next((p for p in self.points if p.differs), None)


def compare_captures(a: Capture, b: Capture, tolerance: Tolerance, weights: Weights | None = None) -> Comparison:
    first, second = a.points, b.points
    order = [name for name in (first if a.ordered else second) if name in first and name in second]
    weights = weights or Weights()
    points = (
        *(compare_points(x, y, Tolerance(share)) for x, y, share in weights.pairs),
        *(compare_points(first[name], second[name], tolerance) for name in order),
    )
    only_a, only_b = (tuple(n for n in x if n not in y) for x, y in ((first, second), (second, first)))
    notes = dict.fromkeys(note for note in (a.note, b.note) if note)
    return Comparison(points, only_a, only_b, weights.apart, "\n".join(notes))


def compare_points(a: Point, b: Point, tolerance: Tolerance) -> PointDifference:
    for side, point in (("A", a), ("B", b)):
        if point.failure:
            return PointDifference(a, b, mismatch=f"the call of {side} fails: {point.failure}")
    types = [f"{dtype_of(p.array)}{list(p.array.shape)}" for p in (a, b)]
    if types[0] != types[1]:
        return PointDifference(a, b, mismatch=f"A and B are {types[0]} and {types[1]}")
    errors = measure_errors(b.array, a.array)
    return PointDifference(a, b, tolerance.allowed(a, b), errors, _histogram(b.array, a.array))


def _histogram(actual: Array, expected: Array) -> tuple[int, ...]:
    if not dtype_of(actual).is_float:
        return ()
    apart = np.where(absolute_errors(actual, expected) == 0, 0.0, ulp_distances(actual, expected))
    within = [int(np.count_nonzero(apart <= most)) for most in BINS]
    return (*(upper - lower for lower, upper in zip((0, *within), within, strict=False)), apart.size - within[-1])
