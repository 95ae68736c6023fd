"""A generic search for a minimal failing object: tries smaller objects, keeps those that still fail, and repeats until
none does.

The caller defines the objects and the failure. Attempts are expensive, so nested candidates are bisected, and several
candidates are tried at once if the caller permits. The limit is a number of attempts, so that the result does not
depend on the load of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
    attempts: int
    at_once: int = 1
    report: Callable[[T, str, int], None] = lambda best, way, left: None
    left: int = field(init=False, default=0)

    def run(self, start: T, ways: Sequence[Way[T]]) -> T:
        """Returns the smallest failing object found within `attempts` attempts."""
        best, self.left = start, self.attempts
        progress = True
        while progress and self.left > 0:
            progress = False
            for way in ways:
                while self.left > 0:
                    found = self._smallest(best, way)
                    if found is None:
                        break
                    best, progress = found, True
        return best

    def _try(self, candidates: Sequence[T]) -> T | None:
        tried = candidates[: self.left]
        self.left -= len(tried)
        return self.find(tried) if tried else None

    def _smallest(self, best: T, way: Way[T]) -> T | None:
        weight = self.weigh(best)
        lighter = sorted((t for t in way.make(best) if self.weigh(t) < weight), key=self.weigh)
        if way.nested:
            return self._halve(best, way, lighter)
        for start in range(0, len(lighter), self.at_once):
            self.report(best, way.name, len(lighter) - start)
            found = self._try(lighter[start : start + self.at_once])
            if found is not None or self.left == 0:
                return found
        return None

    def _halve(self, best: T, way: Way[T], lighter: Sequence[T]) -> T | None:
        found, low, high = None, 0, len(lighter)
        while low < high and self.left > 0:
            self.report(best, way.name, (high - low).bit_length())
            middle = (low + high) // 2
            failing = self._try([lighter[middle]])
            if failing is None:
                low = middle + 1
            else:
                found, high = failing, middle
        return found
