"""Regular expressions as trees, and sets of characters as sorted ranges of code points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
_LAST = 0x10FFFF


class ExpressionError(Exception):
    """An expression that is wrong, that is not supported, or whose automaton would be too large."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Join:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` is None if there is no limit."""

    tree: Tree
    least: int
    most: int | None


class Where(Enum):
    """A position between two characters."""

    START = "start"
    END = "end"
    BOUNDARY = "boundary"
    INSIDE = "inside"


Tree: TypeAlias = Chosen | Join | Choice | Repeat | Where


def ranges_of(given: Iterable[tuple[int, int]]) -> Ranges:
    """Returns sorted ranges with gaps between them."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(given):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """Returns the ranges of all other characters."""
    found, start = [], 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        found.append((start, _LAST))
    return tuple(found)
