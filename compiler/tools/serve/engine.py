"""The engine: a queue of requests, and the thread that runs them.

Requests are admitted in order of arrival. In each round, every running request advances by one step: a part of its
prompt, or a token. `turns.py` and `batches.py` are the two implementations of a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread

import numpy as np

from ..generate.guide import Guide
from ..generate.tokens import Logits, Sampling

PART = 256
"""The maximum number of prompt tokens of a request in one round."""


class QueueFullError(Exception):
    """The queue of waiting requests is full."""


class StoppedError(Exception):
    """The engine has been stopped and accepts no requests."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a request. The reason is `length` if the tokens of the request or the room of the session are used up,
    else `stop`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token of an answer. A job may ask for the logarithm of its probability, and for the most likely tokens with
    theirs; they follow from the logits alone, without the parameters of sampling."""

    token: int
    log_probability: float = 0.0
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Read(Sampled):
    """A token of the prompt, but the first one, with the same. They come in their order, before the answer."""


Event = Sampled | Finished | Exception
"""A token, the end of a request, or its failure."""


@dataclass(slots=True, eq=False)
class Job:
    """A request. `emit` is called in the thread of the engine; `cancelled` may be set in any thread. `alternatives` is
    the number of most likely tokens that come with each token; None omits probabilities. `reads`: whether the tokens of
    the prompt come with their probabilities too. Its keys and values are then computed anew."""

    ids: Sequence[int]
    count: int
    sampling: Sampling
    emit: Callable[[Event], None]
    guide: Guide | None = None
    alternatives: int | None = None
    reads: bool = False
    cancelled: bool = False

    @property
    def has_its_form(self) -> bool:
        """Whether the form of a guide is complete and permits no further token."""
        return self.guide is not None and self.guide.is_done

    def sampled(self, token: int, logits: Logits) -> Sampled:
        """Returns the event of a token that was chosen from logits."""
        return Sampled(token) if self.alternatives is None else Sampled(*self._scores(token, logits, self.alternatives))

    def read(self, token: int, logits: Logits) -> Read:
        """Returns the event of a token of the prompt, which follows others with logits."""
        return Read(*self._scores(token, logits, self.alternatives or 0))

    def _scores(
        self, token: int, logits: Logits, alternatives: int
    ) -> tuple[int, float, tuple[tuple[int, float], ...]]:
        wide = logits.astype(np.float64)
        wide -= wide.max()
        logs = wide - np.log(np.exp(wide).sum())
        best = np.argsort(-logs, kind="stable")[:alternatives]
        return token, float(logs[token]), tuple((int(other), float(logs[other])) for other in best)


@dataclass(slots=True)
class Counters:
    """Totals since the start of the engine, for `/metrics`."""

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0


class Engine(ABC):
    """A queue of requests, and the thread that runs them. `capacity` bounds the tokens of a request, prompt and answer
    together; `slots` bounds the number of running requests."""

    def __init__(self, capacity: int, slots: int, queue: int) -> None:
        self.capacity, self.slots, self.counters = capacity, slots, Counters()
        self._limit = queue
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._stopped = False
        self._thread = Thread(target=self._run, name="nacre-serve", daemon=True)

    @abstractmethod
    def _jobs(self) -> Iterable[Job]:
        """Returns the running requests."""

    @abstractmethod
    def _admit(self, job: Job) -> bool:
        """Begins a request if there is room for it; returns whether it began."""

    @abstractmethod
    def _round(self) -> None:
        """Advances each running request by one step."""

    @property
    def running(self) -> int:
        return sum(1 for _ in self._jobs())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopped

    def submit(self, *jobs: Job) -> None:
        """Adds requests, all or none. Raises QueueFullError or StoppedError."""
        with self._changed:
            if self._stopped:
                raise StoppedError
            if len(self._waiting) + len(jobs) > self._limit + self.slots - self.running:
                self.counters.refused += len(jobs)
                raise QueueFullError
            self.counters.requests += len(jobs)
            self._waiting.extend(jobs)
            self._changed.notify()

    def stop(self) -> None:
        """Ends all requests and the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and not self._waiting and not self.running:
                    self._changed.wait()
                if self._stopped:
                    break
                while self._waiting and self.running < self.slots and self._admit_or_drop(self._waiting[0]):
                    self._waiting.popleft()
            self._round()
        for job in (*self._waiting, *self._jobs()):
            job.emit(StoppedError())

    def _admit_or_drop(self, job: Job) -> bool:
        if job.cancelled:
            self.counters.cancelled += 1
        return job.cancelled or self._admit(job)


def count_shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """Returns the length of the longest common prefix of two token sequences."""
    count = 0
    for one, other in zip(ids, others, strict=False):
        if one != other:
            break
        count += 1
    return count
