"""Contenders timed in turn, round after round, so that a change of the machine's speed affects all of them.

In each round every contender has a slot: a pause in which the threads of the previous one fall asleep, a call that
warms up, then as many calls as fill the slot. A round in which the machine was not fit to be measured on is void.

The clock of a contender is the wall clock by default. On a machine with other work, `timed_by` takes a CPU clock, and
`timed_by_threads` the CPU clocks of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from thread_clocks import seconds_by_thread

Array = npt.NDArray[Any]
PAUSE = 0.02
MOST_VOID = 3
"""A measurement is given up after this many void rounds for each that is wanted."""


@dataclass(frozen=True)
class Contender:
    """`call` computes once, `fetch` converts its results to arrays; `clock(n)`, if there is one, times n calls."""

    name: str
    call: Callable[[], Any]
    fetch: Callable[[Any], Sequence[Array]]
    clock: Callable[[int], float] | None = None

    def timed_by(self, clock: Callable[[], float], *, warm: bool = True) -> Contender:
        """Returns the contender with another clock, in seconds. `warm` calls it once before it is timed: a call that
        is long beside the caches' refill needs none."""

        def measured(count: int) -> float:
            if warm:
                self.call()
            start = clock()
            for _ in range(count):
                self.call()
            return clock() - start

        return replace(self, clock=measured)

    def timed_by_threads(self, combine: Callable[[Iterable[float]], float]) -> Contender:
        """Returns the contender with the CPU clocks of the threads of this process: `max` combines them to the time of
        the busiest thread, `sum` to the time of all threads."""

        def measured(count: int) -> float:
            self.call()
            return combine(seconds_by_thread(self.call, count))

        return replace(self, clock=measured)

    def results(self) -> list[Array]:
        return [np.asarray(array) for array in self.fetch(self.call())]

    def seconds(self, count: int) -> float:
        """Returns the seconds of one call: the mean of `count` calls."""
        if self.clock is not None:
            return self.clock(count) / count
        start = time.perf_counter()
        for _ in range(count):
            self.call()
        return (time.perf_counter() - start) / count


@dataclass(frozen=True)
class Plan:
    rounds: int
    slot: float
    """Seconds that a contender's calls take in one round, at least one call: 0 for rounds of one call."""


@dataclass
class Times:
    """Seconds of a call by contender, one number for each round; the peaks of the rounds; how many were void."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    peaks: list[float] = field(default_factory=list)
    void: int = 0

    def least(self) -> dict[str, float]:
        """Returns the shortest time of each contender, for CPU clocks: other work on the machine only adds to it."""
        return {name: min(seconds) for name, seconds in self.seconds.items()}


class NoQuietMomentError(Exception):
    """The machine was never fit to be measured on; the message gives the reason."""


def interleave(contenders: Sequence[Contender], plan: Plan, look: Callable[[], float | None] = lambda: 1.0) -> Times:
    """Times the contenders in turn. `look` returns the peak of the machine before a round, or None if the machine is
    not fit to be measured on; by default it always is, as for CPU clocks.

    Raises NoQuietMomentError.
    """
    counts = {c.name: _count(c, plan.slot) for c in contenders}
    times = Times({c.name: [] for c in contenders})
    while len(times.peaks) < plan.rounds:
        before = look()
        taken = {c.name: _slot(c, counts[c.name]) for c in contenders} if before is not None else {}
        after = look() if before is not None else None
        if before is None or after is None:
            times.void += 1
            if times.void >= MOST_VOID * plan.rounds:
                raise NoQuietMomentError(f"{times.void} rounds were void")
            time.sleep(0.2)
            continue
        times.peaks.append(max(before, after))
        for name, seconds in taken.items():
            times.seconds[name].append(seconds)
    return times


def _count(contender: Contender, slot: float) -> int:
    contender.seconds(1)
    estimate = contender.seconds(1)
    if estimate * 20 < slot:
        estimate = contender.seconds(max(1, int(slot / 20 / estimate)))
    return max(1, int(slot / estimate))


def _slot(contender: Contender, count: int) -> float:
    time.sleep(PAUSE)
    if contender.clock is None:
        contender.call()
    return contender.seconds(count)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call over the rounds, and the peer's time over ours, round by round."""

    median: float
    p10: float
    p90: float
    ratio: float
    ratio_p10: float
    ratio_p90: float


def summarize(seconds: Mapping[str, Sequence[float]], ours: str) -> dict[str, Timing]:
    """The ratio is the median of the rounds' ratios, which a slow drift of the machine does not touch."""
    own = np.asarray(seconds[ours])

    def summary(name: str) -> Timing:
        values = np.asarray(seconds[name])
        return Timing(
            *np.percentile(values, [50, 10, 90]).tolist(), *np.percentile(values / own, [50, 10, 90]).tolist()
        )

    return {name: summary(name) for name in seconds}
