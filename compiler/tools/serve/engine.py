"""Runs the requests of many users on a fixed number of sessions, in one thread.

Requests wait in a queue until a slot is free. Each round gives every running request one step: a part of its prompt, or
a token. So a long prompt or a long answer delays the others by one step each round. A slot keeps the tokens of its last
request; a request whose text begins with the same ones goes there, and computes the rest alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Generator as PythonGenerator
from dataclasses import dataclass
from threading import Condition, Thread

from ....runtime.loader import Model
from ..generate.tokens import Generator, Sampling

_PART = 256
"""Tokens of a prompt in one step."""


class QueueFullError(Exception):
    """The queue of waiting requests is full."""


class StoppedError(Exception):
    """The engine takes no requests any more."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a request: `length` where its tokens or the session were used up, else `stop`."""

    reason: str


Event = int | Finished | Exception
"""A token, or the end of a request."""


@dataclass(slots=True, eq=False)
class Job:
    """A request. `emit` is called in the thread of the engine; `cancelled` may be set in any thread."""

    ids: Sequence[int]
    count: int
    sampling: Sampling
    emit: Callable[[Event], None]
    cancelled: bool = False


Steps = PythonGenerator[int | None, None, None]


@dataclass(slots=True, eq=False)
class _Slot:
    generator: Generator
    job: Job | None = None
    steps: Steps | None = None
    drawn: int = 0


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0


class Engine:
    """Sessions of a model, and the thread that runs them."""

    def __init__(
        self, model: Model, *, slots: int, capacity: int, queue: int, end: frozenset[int], lookup: int
    ) -> None:
        self.capacity, self.counters = capacity, Counters()
        self._slots = [_Slot(Generator(model, capacity, lookup)) for _ in range(slots)]
        self._limit, self._end = queue, end
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._stopped = False
        self._thread = Thread(target=self._run, name="nacre-serve", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        return sum(slot.job is not None for slot in self._slots)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopped

    def submit(self, job: Job) -> None:
        """Adds a request. Raises QueueFullError or StoppedError."""
        with self._changed:
            if self._stopped:
                raise StoppedError
            free = len(self._slots) - self.running
            if len(self._waiting) >= self._limit + free:
                self.counters.refused += 1
                raise QueueFullError
            self.counters.requests += 1
            self._waiting.append(job)
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
                while self._waiting and self.running < len(self._slots):
                    self._begin(self._waiting.popleft())
            for slot in self._slots:
                self._step(slot)
        for job in (*self._waiting, *(slot.job for slot in self._slots)):
            if job is not None:
                job.emit(StoppedError())

    def _begin(self, job: Job) -> None:
        free = [slot for slot in self._slots if slot.job is None]
        slot = max(free, key=lambda slot: _shared(slot.generator.ids, job.ids))
        slot.job, slot.drawn, slot.steps = job, 0, self._steps(slot.generator, job)

    def _steps(self, generator: Generator, job: Job) -> Steps:
        """Yields None for each part of the prompt, then the tokens of the answer."""
        # At least one token is computed: its logits choose the next one.
        kept = min(_shared(generator.ids, job.ids), len(job.ids) - 1)
        if kept and generator.drops_tokens:
            generator.keep(kept)
        elif generator.ids:
            kept = 0
            generator.clear()
        self.counters.prompt_tokens += len(job.ids)
        self.counters.reused_tokens += kept
        while len(job.ids) - kept > _PART:
            generator.append(job.ids[kept : kept + _PART])
            kept += _PART
            yield None
        yield from generator.generate(job.ids[kept:], job.count, job.sampling, self._end)

    def _step(self, slot: _Slot) -> None:
        job = slot.job
        if job is None or slot.steps is None:
            return
        if job.cancelled:
            self.counters.cancelled += 1
            self._finish(slot, None)
            return
        try:
            token = next(slot.steps)
        except StopIteration:
            full = slot.drawn == job.count or len(slot.generator.ids) == self.capacity
            self._finish(slot, Finished("length" if full else "stop"))
            return
        except Exception as error:
            # One request fails, and the next one gets a session without its tokens.
            self.counters.failed += 1
            self._finish(slot, error)
            slot.generator.clear()
            return
        if token is not None:
            slot.drawn += 1
            self.counters.generated_tokens += 1
            job.emit(token)

    def _finish(self, slot: _Slot, event: Event | None) -> None:
        assert slot.job is not None
        assert slot.steps is not None
        # Tokens that were only drafted are dropped from the cache.
        slot.steps.close()
        job, slot.job, slot.steps = slot.job, None, None
        if event is not None:
            job.emit(event)


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """Returns how many tokens two texts have in common at their beginning."""
    count = 0
    for one, other in zip(ids, others, strict=False):
        if one != other:
            break
        count += 1
    return count
