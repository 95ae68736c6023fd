"""Continuous batching with a paged KV cache: running requests are rows of common calls and share a pool of pages.

Each round makes two calls. One processes the next part of every incomplete prompt, the other computes the next token of
all other requests. Requests join and leave between rounds. A request is admitted when the pool has enough pages for its
prompt and its longest answer, so a running request never waits for pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....runtime.loader import Model
from ..generate.tokens import Logits, check_capacity, choose, most_tokens
from .engine import PART, Engine, Event, Finished, Job
from .pages import Pages

_PREFILL, _DECODE = "prefill_rows", "decode_rows"
_POOL, _TEXT = "P", "S"


@dataclass(slots=True, eq=False)
class _Row:
    """A running request. `ids` are its tokens so far; the pages hold the first `known` of them."""

    job: Job
    ids: list[int]
    pages: list[int]
    known: int
    sampled: int = 0


@dataclass(slots=True)
class _Limits:
    """The sizes of a model: tokens of a page, pages of a row, rows of a call, tokens of a text."""

    page: int
    pages: int
    rows: int
    tokens: int
    session: Mapping[str, int] = field(default_factory=dict)


_Compute = Callable[[Sequence[_Row], Sequence[int]], Sequence[Logits]]
"""Appends tokens to each row, as many as the second sequence says, and returns the logits of the next token of each."""


def has_rows(model: Model) -> bool:
    """Returns whether a model has the entries for several rows."""
    return _PREFILL in model.entries and _DECODE in model.entries


class Batches(Engine):
    """The engine of one session, whose pool holds at least `pool` tokens."""

    def __init__(self, model: Model, *, slots: int, capacity: int, pool: int, queue: int, end: frozenset[int]) -> None:
        limits = _limits(model, capacity)
        check_capacity(capacity, limits.tokens)
        self.pages = Pages(-(-pool // limits.page), limits.page)
        most = min(capacity, self.pages.count * limits.page)
        super().__init__(most, min(slots, limits.rows), queue)
        self._session = model.session(**{**limits.session, _POOL: self.pages.count})
        self._sample = self._session.entries["sample"]
        self._allowed = np.ones(_vocabulary(model), np.bool_)
        self._end, self._rows = end, list[_Row]()
        self._thread.start()

    def _jobs(self) -> Iterable[Job]:
        return (row.job for row in self._rows)

    def _admit(self, job: Job) -> bool:
        assert 0 < len(job.ids) < self.capacity, len(job.ids)
        # The last token of an answer is not appended.
        tokens = len(job.ids) + min(job.count, self.capacity - len(job.ids)) - 1
        taken = self.pages.take([] if job.reads else job.ids, tokens)
        if taken is None:
            return False
        pages, known = taken
        self._rows.append(_Row(job, list(job.ids), pages, known))
        self.counters.prompt_tokens += len(job.ids)
        self.counters.reused_tokens += known
        return True

    def _round(self) -> None:
        for row in [row for row in self._rows if row.job.cancelled]:
            self.counters.cancelled += 1
            self._finish(row, None)
        decoded = [row for row in self._rows if row.sampled]
        prompts = [row for row in self._rows if not row.sampled]
        if prompts:
            part = max(1, PART // len(prompts))
            # A call returns the logits behind the last token of a part.
            counts = [1 if row.job.reads else min(part, len(row.ids) - row.known) for row in prompts]
            self._step(prompts, counts, self._prefill)
        if decoded:
            self._step(decoded, [1] * len(decoded), self._decode)

    def _prefill(self, rows: Sequence[_Row], counts: Sequence[int]) -> Sequence[Logits]:
        tokens = np.zeros((len(rows), max(counts)), np.int32)
        for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
            tokens[number, :count] = row.ids[row.known : row.known + count]
        entry = self._session.entries[_PREFILL]
        return list(entry(tokens, np.array(counts, np.int32), _known(rows), self._table(rows, counts)))

    def _decode(self, rows: Sequence[_Row], counts: Sequence[int]) -> Sequence[Logits]:
        tokens = np.array([row.ids[row.known] for row in rows], np.int32)
        return list(self._session.entries[_DECODE](tokens, _known(rows), self._table(rows, counts)))

    def _step(self, rows: Sequence[_Row], counts: Sequence[int], compute: _Compute) -> None:
        try:
            logits = compute(rows, counts)
        except Exception as error:
            for row in rows:
                self._fail(row, error)
            return
        for row, count, line in zip(rows, counts, logits, strict=True):
            first = row.known // self.pages.size
            row.known += count
            for number in range(first, row.known // self.pages.size):
                self.pages.fill(row.pages, row.ids, number)
            if row.job.reads and row.known < len(row.ids):
                row.job.emit(row.job.read(row.ids[row.known], line))
            if row.known == len(row.ids):
                try:
                    self._draw(row, line)
                except Exception as error:
                    self._fail(row, error)

    def _table(self, rows: Sequence[_Row], counts: Sequence[int]) -> Any:
        """Returns the pages of the rows, as many as the longest has tokens for; the last page fills shorter ones up."""
        needed = [self.pages.needed(row.known + count) for row, count in zip(rows, counts, strict=True)]
        width = max(needed)
        return np.array(
            [row.pages[:n] + [row.pages[n - 1]] * (width - n) for row, n in zip(rows, needed, strict=True)], np.int32
        )

    def _draw(self, row: _Row, logits: Logits) -> None:
        guide = row.job.guide
        allowed = self._allowed if guide is None else guide.allowed()
        token = choose(self._sample, allowed, logits, row.ids, len(row.job.ids), row.job.sampling)
        if token in self._end:
            self._finish(row, Finished("stop"))
            return
        if guide is not None:
            guide.accept(token)
        row.ids.append(token)
        row.sampled += 1
        self.counters.generated_tokens += 1
        row.job.emit(row.job.sampled(token, logits))
        if row.job.has_its_form:
            self._finish(row, Finished("stop"))
        elif row.sampled == row.job.count or len(row.ids) == self.capacity:
            self._finish(row, Finished("length"))

    def _fail(self, row: _Row, error: Exception) -> None:
        self.counters.failed += 1
        self._finish(row, error)

    def _finish(self, row: _Row, event: Event | None) -> None:
        self._rows.remove(row)
        self.pages.release(row.pages)
        if event is not None:
            row.job.emit(event)


def _known(rows: Sequence[_Row]) -> Any:
    return np.array([row.known for row in rows], np.int32)


def _vocabulary(model: Model) -> int:
    size = model.entries["sample"].arguments[0].shape[0]
    assert isinstance(size, int), size
    return size


def _limits(model: Model, capacity: int) -> _Limits:
    described = model.describe()
    # The positions of a page are the last axis of keys. Without keys, a page holds the states of a text of any length.
    states = [state for state in described["session"]["states"] if state["name"].endswith(".keys")]
    page = next((int(state["shape"][-1]) for state in states if state["shape"][:1] == [_POOL]), capacity)
    entry = next(entry for entry in described["entries"] if entry["name"] == _DECODE)
    high = {dim["name"]: int(dim["high"]) for dim in entry["dims"]}
    # The cache of a single text is as small as it can be.
    others = {dim["name"]: int(dim["low"]) for dim in described["session"]["dims"] if dim["name"] == _TEXT}
    return _Limits(page, high["M"], high["B"], most_tokens(model), others)
