"""Assigns the columns of a layered layout with a given order, such that linked boxes are aligned where possible.

Rows are processed downwards, upwards and downwards again. In each row, the desired column of a point is the weighted
median of the points linked to it in the previous row; where desired columns are less than 1 apart, or cross, the points
share the deviation, those with strong links the least of it (isotonic regression by pooling neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_STEP = 0.25
"""Columns are multiples of this, to limit their number."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a point to one in the next row, with the weight of its straightness."""

    above: int
    below: int
    weight: float


Wish = tuple[float, float]
"""A desired position, and the weight of its link."""


def straighten(columns: Sequence[float], rows: Sequence[Sequence[int]], links: Sequence[Link]) -> list[float]:
    """Returns the column of every point. `rows` list the points from left to right; they come out at least 1 apart."""
    found = list(columns)
    above: list[list[Link]] = [[] for _ in columns]
    below: list[list[Link]] = [[] for _ in columns]
    for link in links:
        above[link.below].append(link)
        below[link.above].append(link)
    strength = [max((link.weight for link in (*up, *down)), default=0.0) for up, down in zip(above, below, strict=True)]
    for downwards in (True, False, True):
        for row in rows if downwards else reversed(rows):
            wishes = []
            for point in row:
                if downwards:
                    asked = [(found[link.above], link.weight) for link in above[point]]
                else:
                    asked = [(found[link.below], link.weight) for link in below[point]]
                wishes.append(_median(asked) if asked else found[point])
            weights = [strength[point] + 0.1 for point in row]
            for point, column in zip(row, _apart(wishes, weights), strict=True):
                found[point] = column
    return found


def _median(wishes: list[Wish]) -> float:
    """Returns the weighted median; the midpoint of two positions of equal weight."""
    wishes.sort()
    half, passed = sum(weight for _, weight in wishes) / 2, 0.0
    for number, (position, weight) in enumerate(wishes):
        passed += weight
        if passed > half:
            return position
        if passed == half:
            return (position + wishes[number + 1][0]) / 2
    raise AssertionError(wishes)


def _apart(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Returns positions in order, at least 1 apart, with the least weighted squared distance from the desired
    positions."""
    pools: list[tuple[float, float, int]] = []  # the mean of wishes minus their index in the row, weight, count
    for number, (wish, weight) in enumerate(zip(wishes, weights, strict=True)):
        pool = (wish - number, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, mass, size = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, size + pool[2])
        pools.append(pool)
    starts = [round(mean / _STEP) * _STEP for mean, _, size in pools for _ in range(size)]
    return [start + number for number, start in enumerate(starts)]
