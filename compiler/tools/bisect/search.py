"""A generic search for a minimal failing object: tries smaller objects, keeps those that still fail, and repeats until
none does.

The caller defines the objects and the failure. Attempts are expensive, so nested candidates are bisected, and several
candidates are tried at once if the caller permits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Way(Generic[T]):
    """A way to derive smaller objects from one. With `nested`, each is part of the next and fails if a smaller one
    does, so that bisection finds the smallest that fails."""

    name: str
    make: Callable[[T], Iterator[T]]
    nested: bool = False


@dataclass
class Search(Generic[T]):
    """`weigh` is the weight to minimize. `find` returns the first failing object of several, or None; it receives
    `at_once` of them at a time. `report` receives the current best, the name of the way, and the remaining attempts."""

    weigh: Callable[[T], Any]
    find: Callable[[Sequence[T]], T | None]
    seconds: float
    at_once: int = 1
    report: Callable[[T, str, int], None] = lambda thing, way, left: None

    def run(self, start: T, ways: Sequence[Way[T]]) -> T:
        """Returns the smallest failing object found within the time limit."""
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
            self.report(best, way.name, len(lighter) - start)
            found = self.find(lighter[start : start + self.at_once])
            if found is not None or time.monotonic() > end:
                return found
        return None

    def _halve(self, best: T, way: Way[T], lighter: Sequence[T], end: float) -> T | None:
        found, low, high = None, 0, len(lighter)
        while low < high and time.monotonic() < end:
            self.report(best, way.name, (high - low).bit_length())
            middle = (low + high) // 2
            failing = self.find([lighter[middle]])
            if failing is None:
                low = middle + 1
            else:
                found, high = failing, middle
        return found
