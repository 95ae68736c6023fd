"""Requests as rows of common calls: pages, waiting for room, and the same tokens as for one user."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.serve.batches import Batches
from nacre.compiler.tools.serve.engine import Event, Finished, Job, Sampled
from nacre.compiler.tools.serve.pages import Pages
from nacre.dialect.diagnostics import DiagnosticError
from talker import CONTEXT, LONGEST, PAGE, TOKENS

GREEDY = Sampling(temperature=0, top_k=0, top_p=1, min_p=0)


def test_pages_are_shared_and_forgotten() -> None:
    pages = Pages(6, 3)
    text = list(range(8))
    first, known = pages.take(text, 10) or ([], -1)
    assert (len(first), known, pages.free) == (4, 0, 2)
    for number in range(2):
        pages.fill(first, text, number)
    assert pages.take(text, 16) is None and pages.free == 2
    # Both full pages are found, and one more is needed.
    second, known = pages.take(text, 9) or ([], -1)
    assert (second[:2], known, pages.free) == (first[:2], 6, 1)
    # The last token is always computed.
    third, known = pages.take(text[:6], 6) or ([], -1)
    assert (third[0], known, pages.free) == (first[0], 3, 0)
    for taken in (first, second, third):
        pages.release(taken)
    assert pages.free == 6
    again, known = pages.take([*text[:3], 9, 9, 9, 9], 18) or ([], -1)
    assert (again[0], known, pages.free) == (first[0], 3, 0)
    pages.release(again)
    # The room of the second page was taken, so its content is gone.
    last, known = pages.take(text, 8) or ([], -1)
    assert known == 3
    pages.release(last)


def test_equal_contents_behind_others_differ() -> None:
    pages = Pages(4, 2)
    one, _ = pages.take([1, 2, 3, 4], 4) or ([], 0)
    pages.fill(one, [1, 2, 3, 4], 0)
    pages.fill(one, [1, 2, 3, 4], 1)
    assert (pages.take([3, 4, 5], 3) or ([], -1))[1] == 0


def test_random_texts_never_share_a_page_that_another_fills() -> None:
    rng = np.random.default_rng(0)
    pages, running = Pages(12, 2), list[tuple[list[int], list[int], int]]()
    content: dict[int, list[int]] = {}
    for _ in range(2000):
        if running and rng.random() < 0.5:
            pages.release(running.pop(rng.integers(len(running)))[0])
            continue
        ids = rng.integers(0, 2, rng.integers(1, 9)).tolist()
        taken = pages.take(ids, len(ids))
        if taken is None:
            continue
        own, known = taken
        assert known < len(ids) and len(own) == pages.needed(len(ids)) and len(set(own)) == len(own)
        for number, page in enumerate(own):
            part = ids[2 * number : 2 * number + 2]
            if 2 * number < known:
                assert content[page] == ids[: 2 * number + 2]
            else:
                assert all(page not in others for others, _, _ in running)
                content[page] = ids[: 2 * number + 2]
                if len(part) == 2:
                    pages.fill(own, ids, number)
        running.append((own, ids, known))
    assert sum(pages._users) == sum(len(own) for own, _, _ in running)


class Watched:
    """An engine whose calls are recorded: the number of rows of each."""

    def __init__(self, talker: Path, **given: Any) -> None:
        options = {"slots": 8, "capacity": CONTEXT, "pool": 8 * CONTEXT, "queue": 64, "end": frozenset[int]()} | given
        self.engine = Batches(nacre.load(talker), **options)
        self.calls: list[tuple[str, int]] = []
        for name in ("_prefill", "_decode"):
            setattr(self.engine, name, self._watch(name, getattr(self.engine, name)))

    def _watch(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(rows: Any, counts: Any) -> Any:
            self.calls.append((name, len(rows)))
            return call(rows, counts)

        return watched

    def run(self, *requests: tuple[list[int], int], sampling: Sampling = GREEDY) -> list[list[Event]]:
        """Submits all requests, and returns their events."""
        events: list[list[Event]] = [[] for _ in requests]
        done = [threading.Event() for _ in requests]

        def emit(number: int) -> Callable[[Event], None]:
            def add(event: Event) -> None:
                events[number].append(event)
                if not isinstance(event, Sampled):
                    done[number].set()

            return add

        for number, (ids, count) in enumerate(requests):
            self.engine.submit(Job(ids, count, sampling, emit(number)))
        assert all(event.wait(60) for event in done)
        return events


def alone(talker: Path, ids: list[int], count: int, sampling: Sampling = GREEDY) -> list[Sampled]:
    tokens = Generator(nacre.load(talker), CONTEXT).generate(ids, count, sampling, frozenset())
    return [Sampled(token) for token in tokens]


def _requests(count: int) -> list[tuple[list[int], int]]:
    rng = np.random.default_rng(3)
    sizes = zip(rng.integers(1, 30, count).tolist(), rng.integers(1, 18, count).tolist(), strict=True)
    return [([1, *rng.integers(261, len(TOKENS), size).tolist()], drawn) for size, drawn in sizes]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_requests_join_and_leave(talker: Path, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_k=0, top_p=1, min_p=0, seed=7)
    watched = Watched(talker)
    requests = _requests(20)
    found = watched.run(*requests, sampling=sampling)
    watched.engine.stop()
    for (ids, count), events in zip(requests, found, strict=True):
        expected = alone(talker, ids, count, sampling)
        assert events == [*expected, Finished("length")]
    together = [rows for name, rows in watched.calls if name == "_decode"]
    assert max(together) > 4 and len(set(together)) > 3
    # A row is computed only while its request runs.
    assert sum(together) == sum(count - 1 for _, count in requests)
    assert watched.engine.pages.free == watched.engine.pages.count


def test_a_pool_that_holds_one_request_at_a_time(talker: Path) -> None:
    watched = Watched(talker, pool=CONTEXT, slots=4)
    requests = [([1, *range(261 + n, 285 + n)], 20) for n in range(3)]
    found = watched.run(*requests)
    watched.engine.stop()
    assert {rows for _, rows in watched.calls} == {1}
    for (ids, count), events in zip(requests, found, strict=True):
        assert events == [*alone(talker, ids, count), Finished("length")]


def test_a_pool_bounds_the_tokens_of_a_request(talker: Path) -> None:
    watched = Watched(talker, pool=2 * PAGE + 1)
    assert watched.engine.capacity == 3 * PAGE
    (events,) = watched.run(([1, 270, 271], 40))
    watched.engine.stop()
    assert events == [*alone(talker, [1, 270, 271], 3 * PAGE - 3), Finished("length")]


def test_the_model_bounds_the_capacity(talker: Path) -> None:
    with pytest.raises(DiagnosticError, match="a capacity of 641 tokens is not between 1 and 640"):
        Watched(talker, capacity=LONGEST + 1)


def test_equal_beginnings_are_computed_once(talker: Path) -> None:
    watched = Watched(talker)
    ids = [1, *range(262, 282)]
    watched.run((ids, 2))
    before = watched.engine.counters.reused_tokens
    found = watched.run(([*ids, 265], 4), (ids[:13], 4), ([*ids, 263, 264], 4))
    watched.engine.stop()
    assert watched.engine.counters.reused_tokens - before == 20 + 10 + 20
    assert found[1] == [*alone(talker, ids[:13], 4), Finished("length")]
    assert found[2] == [*alone(talker, [*ids, 263, 264], 4), Finished("length")]


def test_a_request_that_is_cancelled_gives_its_pages_back(talker: Path) -> None:
    watched = Watched(talker, pool=CONTEXT)
    events: list[Event] = []
    jobs = [Job([1, 262], 40, GREEDY, events.append) for _ in range(3)]

    def cancel(event: Event) -> None:
        for job in jobs[:2]:
            job.cancelled = True

    jobs[0].emit = cancel
    for job in jobs:
        watched.engine.submit(job)
    deadline = time.monotonic() + 120
    while len(events) < 41 and time.monotonic() < deadline:
        time.sleep(0.01)
    watched.engine.stop()
    assert events == [*alone(talker, [1, 262], 40), Finished("length")]
    assert watched.engine.counters.cancelled == 2
    assert watched.engine.pages.free == watched.engine.pages.count
