"""The search for something small that fails: try what is smaller, take what still fails, until nothing smaller does.

What things are and how they fail is known to others. Trying costs much, so long lists are gone through by halving
first, and as many things are tried at a time as whoever tries them likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Way(Generic[T]):
    """How to make smaller things of one. With `nested` they are one in another, each failing if a smaller one does, so
    that halving finds the smallest that fails."""

    name: str
    make: Callable[[T], Iterator[T]]
    nested: bool = False


@dataclass
class Search(Generic[T]):
    """`weigh` says what is to become less. `find` gives the first of several things that fails, or None; it is given
    `at_once` of them at a time. `tell` hears the name of the way and how many things are still to be tried in it."""

    weigh: Callable[[T], Any]
    find: Callable[[Sequence[T]], T | None]
    seconds: float
    at_once: int = 1
    tell: Callable[[T, str, int], None] = lambda thing, way, left: None

    def run(self, start: T, ways: Sequence[Way[T]]) -> T:
        """The smallest thing that was found within the time."""
        best, end = start, time.monotonic() + self.seconds
        progress = True
        while progress and time.monotonic() < end:
            progress = False
            for way in ways:
                while time.monotonic() < end:
                    found = self._smallest(best, way, end)
                    if found is None:
                        break
                    best, progress = found, True
        return best

    def _smallest(self, best: T, way: Way[T], end: float) -> T | None:
        weight = self.weigh(best)
        lighter = sorted((t for t in way.make(best) if self.weigh(t) < weight), key=self.weigh)
        if way.nested:
            return self._halve(best, way, lighter, end)
        for start in range(0, len(lighter), self.at_once):
            self.tell(best, way.name, len(lighter) - start)
            found = self.find(lighter[start : start + self.at_once])
            if found is not None or time.monotonic() > end:
                return found
        return None

    def _halve(self, best: T, way: Way[T], lighter: Sequence[T], end: float) -> T | None:
        found, low, high = None, 0, len(lighter)
        while low < high and time.monotonic() < end:
            self.tell(best, way.name, (high - low).bit_length())
            middle = (low + high) // 2
            failing = self.find([lighter[middle]])
            if failing is None:
                low = middle + 1
            else:
                found, high = failing, middle
        return found
