"""Requests in separate sessions that take turns, for models without entries for several rows.

A slot keeps the tokens of its last request in its KV cache. A request goes to the free slot with the longest common
prefix, and only the rest of its prompt is computed.
"""

from __future__ import annotations

from collections.abc import Generator as PythonGenerator
from collections.abc import Iterable
from dataclasses import dataclass

from ....runtime.loader import Model
from ..generate.tokens import Generator
from .engine import PART, Engine, Event, Finished, Job, count_shared

Steps = PythonGenerator[int | None, None, None]


@dataclass(slots=True, eq=False)
class _Slot:
    generator: Generator
    job: Job | None = None
    steps: Steps | None = None
    sampled: int = 0


class Turns(Engine):
    """Sessions of a model, one for each slot."""

    def __init__(
        self, model: Model, *, slots: int, capacity: int, queue: int, end: frozenset[int], lookup: int
    ) -> None:
        super().__init__(capacity, slots, queue)
        self._slots = [_Slot(Generator(model, capacity, lookup)) for _ in range(slots)]
        self._end = end
        self._thread.start()

    def _jobs(self) -> Iterable[Job]:
        return (slot.job for slot in self._slots if slot.job is not None)

    def _admit(self, job: Job) -> bool:
        free = [slot for slot in self._slots if slot.job is None]
        slot = max(free, key=lambda slot: count_shared(slot.generator.ids, job.ids))
        slot.job, slot.sampled, slot.steps = job, 0, self._steps(slot.generator, job)
        return True

    def _round(self) -> None:
        for slot in self._slots:
            self._step(slot)

    def _steps(self, generator: Generator, job: Job) -> Steps:
        """Yields None for each part of the prompt, then the tokens of the answer."""
        # At least one token is computed: its logits choose the next one.
        kept = 0 if job.reads else min(count_shared(generator.ids, job.ids), len(job.ids) - 1)
        if kept and generator.drops_tokens:
            generator.keep(kept)
        elif generator.ids:
            kept = 0
            generator.clear()
        self.counters.prompt_tokens += len(job.ids)
        self.counters.reused_tokens += kept
        last = len(job.ids) - 1
        scored = PART if "score" in generator.session.entries else 1
        while job.reads and kept < last:
            part = job.ids[kept : min(kept + scored, last)]
            for number, logits in enumerate(generator.append_each(part), kept + 1):
                job.emit(job.read(job.ids[number], logits))
            kept += len(part)
            yield None
        while len(job.ids) - kept > PART:
            generator.append(job.ids[kept : kept + PART])
            kept += PART
            yield None
        yield from generator.generate(job.ids[kept:], job.count, job.sampling, self._end, job.guide)

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
            full = slot.sampled == job.count or len(slot.generator.ids) == self.capacity
            self._finish(slot, Finished("length" if full and not job.has_its_form else "stop"))
            return
        except Exception as error:
            # One request fails, and the next one gets a session without its tokens.
            self.counters.failed += 1
            self._finish(slot, error)
            slot.generator.clear()
            return
        if token is not None:
            slot.sampled += 1
            self.counters.generated_tokens += 1
            assert slot.generator.logits is not None
            job.emit(job.sampled(token, slot.generator.logits))

    def _finish(self, slot: _Slot, event: Event | None) -> None:
        assert slot.job is not None
        assert slot.steps is not None
        # Tokens that were only drafted are dropped from the cache.
        slot.steps.close()
        job, slot.job, slot.steps = slot.job, None, None
        if event is not None:
            job.emit(event)
