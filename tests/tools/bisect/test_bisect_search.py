"""The search for a minimal failing object stops after a number of attempts, however long they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from nacre.compiler.tools.bisect.search import Search, Way


def smaller(number: int) -> Iterator[int]:
    yield from range(number)


def search(attempts: int, at_once: int, *, nested: bool) -> tuple[int, list[int]]:
    """Searches for the least number of 13 and above, from 100; returns it and the attempts."""
    tried: list[int] = []

    def find(numbers: Sequence[int]) -> int | None:
        tried.extend(numbers)
        return next((n for n in numbers if n >= 13), None)

    found = Search(lambda n: n, find, attempts, at_once).run(100, [Way("less", smaller, nested)])
    return found, tried


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("attempts", [0, 1, 5, 13, 20])
def test_no_more_than_the_attempts_are_made(attempts: int, at_once: int, nested: bool) -> None:
    found, tried = search(attempts, at_once, nested=nested)
    assert len(tried) <= attempts and found == min([n for n in tried if n >= 13], default=100)


@pytest.mark.parametrize("nested", [False, True])
def test_enough_attempts_find_the_least(nested: bool) -> None:
    assert search(200, 8, nested=nested)[0] == 13
