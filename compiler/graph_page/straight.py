"""Columns of a layered layout whose order is known: boxes as straight above each other as the order lets them.

Rows are gone through downwards, upwards and downwards again. In each, every point wishes to stand at the weighted
median of what it is linked to in the row before; where wishes are nearer than 1 to each other, or cross, the points
share the distance, those with strong links the least of it (isotonic regression by pooling neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_STEP = 0.25
"""Columns are multiples of this, so that there are few of them."""


@dataclass(frozen=True, slots=True)
class Link:
    """From a point to one in the next row, and how much it wants to be straight."""

    above: int
    below: int
    weight: float


Wish = tuple[float, float]
"""A position, and the weight of the link that asks for it."""


def straighten(columns: Sequence[float], rows: Sequence[Sequence[int]], links: Sequence[Link]) -> list[float]:
    """The column of every point. `rows` list the points from left to right; in a row they come out at least 1 apart."""
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
    """The weighted median; in the middle between two where neither outweighs the other."""
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
    """The positions in order, at least 1 apart, that are nearest to the wishes in the sum of weighted squares."""
    pools: list[tuple[float, float, int]] = []  # the mean of wishes less their number in the row, weight, how many
    for number, (wish, weight) in enumerate(zip(wishes, weights, strict=True)):
        pool = (wish - number, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, mass, size = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, size + pool[2])
        pools.append(pool)
    starts = [round(mean / _STEP) * _STEP for mean, _, size in pools for _ in range(size)]
    return [start + number for number, start in enumerate(starts)]
