"""Autoregressive decoding: a session with its KV cache, and the sampling of the next token.

The model has the entries `prefill(tokens)`, `decode(token)` and `sample(logits, ...)`. Models that are read from GGUF
files and from Hugging Face folders have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.loader import Entry, Model, Session
from .guide import Guide, Mask
from .lookup import draft
from .rounding import rounding_bound
from .vocabulary import error

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]
_ENTRIES = ("prefill", "decode", "sample")
_CAPACITY = "S"
_NO_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of sampling. Temperature 0 selects greedy decoding. The neutral values are 0 for `top_k` and
    `min_p`, and 1 for `top_p` and `penalty`. The repetition penalty applies to the last `window` tokens.

    The logit of a token of the answer is reduced by `presence`, and by `frequency` for each of its occurrences; `bias`
    holds tokens and the numbers that are added to their logits.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    penalty: float = 1.0
    window: int = 64
    seed: int = 0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()

    @property
    def changes_logits(self) -> bool:
        """Whether logits change before `sample` reads them."""
        return bool(self.presence or self.frequency or self.bias)


def check_language_model(model: Model) -> None:
    """Raises DiagnosticError if a model is not a language model."""
    missing = [name for name in _ENTRIES if name not in model.entries]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise error("not-a-language-model", f"model `{model.name}` has no entry {names}")


def most_tokens(model: Model) -> int:
    """Returns the largest capacity of a session, which is the context length of the model. A model without a cache has
    no limit."""
    capacity = _capacity_dim(model)
    return _NO_LIMIT if capacity is None else int(capacity["high"])


def check_capacity(capacity: int, most: int) -> None:
    """Raises DiagnosticError if a session cannot have a capacity."""
    if not 0 < capacity <= most:
        raise error("bad-capacity", f"a capacity of {capacity} tokens is not between 1 and {most}")


def _capacity_dim(model: Model) -> Mapping[str, Any] | None:
    return next((dim for dim in _session_dims(model) if dim["name"] == _CAPACITY), None)


def _session_dims(model: Model) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = model.describe()["session"]["dims"]
    return found


class Generator:
    """A session, and the tokens in its KV cache. `lookup` is the maximum length of a draft, 0 for none."""

    def __init__(self, model: Model, capacity: int, lookup: int = 0) -> None:
        check_language_model(model)
        self.lookup = lookup
        self._rounding = rounding_bound(model, lookup + 1) if lookup and "score" in model.entries else 0.0
        most = most_tokens(model)
        check_capacity(capacity, most)
        dims = {} if _capacity_dim(model) is None else {_CAPACITY: capacity}
        # The pool of the entries for several texts is not used.
        dims |= {dim["name"]: int(dim["low"]) for dim in _session_dims(model) if dim["name"] not in dims}
        self.session: Session = model.session(**dims)
        self.capacity, self._most = capacity, most
        self.ids: list[int] = []
        vocabulary = self.session.entries["sample"].arguments[0].shape[0]
        assert isinstance(vocabulary, int), vocabulary
        self.allowed = np.ones(vocabulary, np.bool_)
        self._sample = self.session.entries["sample"]
        self.logits: Logits | None = None
        """The logits from which `generate` chose its last token."""
        # The number of tokens in the cache: the attention of a query ends there.
        has_cache = _capacity_dim(model) is not None and "score" in model.entries
        lengths = [name for name in self.session.states if name.rpartition(".")[2] == "length"]
        self._length = lengths[0] if has_cache and len(lengths) == 1 else None

    def append(self, ids: Sequence[int]) -> Logits:
        """Appends tokens to the cache and returns the logits of the next token. Raises DiagnosticError if the cache
        lacks room; the session is then unchanged."""
        left = self.capacity - len(self.ids)
        if len(ids) > left:
            message = f"{len(ids)} tokens do not fit: {left} of {self.capacity} positions are free"
            help = "" if self.capacity == self._most else "--capacity gives the session more positions"
            raise error("prompt-too-long", message, help)
        entry = self.session.entries["decode" if len(ids) == 1 else "prefill"]
        logits: Logits = entry(np.array(ids, np.int32))
        self.ids += ids
        return logits

    @property
    def drops_tokens(self) -> bool:
        """Whether the cache can be truncated, see `keep`: the states are a KV cache of all tokens."""
        return self._length is not None

    def clear(self) -> None:
        """Drops all tokens."""
        self.session.reset()
        self.ids = []

    def keep(self, count: int) -> None:
        """Truncates the cache to its first `count` tokens."""
        assert self._length is not None and count <= len(self.ids), count
        self.session.states[self._length] = count
        del self.ids[count:]

    def generate(
        self, prompt: Sequence[int], count: int, sampling: Sampling, end: frozenset[int], guide: Guide | None = None
    ) -> Iterator[int]:
        """Yields up to `count` tokens that follow a prompt. Stops before a token of `end`, when the cache is full, and
        when the guide permits no further token.

        With `lookup` and at temperature 0, a draft is verified in one call, see `lookup.py`. The logits of such a call
        differ from those of single calls in their last bits. Where this could change the choice of a token, the tokens
        since the last single call are computed again one by one. The output therefore equals that of single calls.
        """
        if not prompt:
            raise error("empty-prompt", "the prompt has no tokens")
        wrong = next((number for number in prompt if not 0 <= number < len(self.allowed)), None)
        if wrong is not None:
            message = f"the prompt has token {wrong}, which is not among the {len(self.allowed)} of the model"
            raise error("bad-token", message, "does the tokenizer belong to another model?")
        rows = [self.append(prompt)]
        start = known = exact = len(self.ids)
        drafted: list[int] = []
        planned = taken = 0
        is_plain = sampling.temperature == 0 and not sampling.changes_logits
        lookup = self.lookup if is_plain and self.drops_tokens else 0
        try:
            for number in range(count):
                row = rows.pop(0)
                allowed = self.allowed if guide is None else guide.allowed()
                if exact < known and not self._is_decided(row, allowed, known, sampling):
                    row, drafted = self._again(exact, known), []
                    exact = known
                self.logits = row
                token = choose(self._sample, allowed, row, self.ids[:known], start, sampling)
                if token in end:
                    return
                if guide is not None:
                    guide.accept(token)
                yield token
                if known == self.capacity or (guide is not None and guide.is_done):
                    return
                if drafted and token == drafted.pop(0):
                    taken += 1
                else:
                    if known < len(self.ids):
                        self.keep(known)
                    # After a rejected draft, the next one is shorter.
                    size = 2 * taken + 1 if planned else lookup
                    room = min(lookup, size, count - number - 2, self.capacity - known - 1)
                    drafted = draft([*self.ids, token], room)
                    planned, taken = len(drafted), 0
                    rows = self.append_each([token, *drafted])
                    exact += exact == known and not drafted
                known += 1
        finally:
            if known < len(self.ids):
                self.keep(known)

    def _is_decided(self, logits: Logits, allowed: Mask, known: int, sampling: Sampling) -> bool:
        """Returns whether the most likely token is the same for all logits within the bound of rounding."""
        changed = np.where(allowed, logits, -np.inf)
        recent = self.ids[max(0, known - sampling.window) : known]
        changed[recent] *= np.where(changed[recent] > 0, 1 / sampling.penalty, sampling.penalty)
        largest = np.partition(changed, -2)[-2:]
        return bool(largest[1] - largest[0] > self._rounding * np.abs(logits).max())

    def _again(self, exact: int, known: int) -> Logits:
        """Recomputes the tokens from position `exact` to `known` in single calls, and returns the logits after the last
        one."""
        again = self.ids[exact:known]
        self.keep(exact)
        for number in again:
            logits = self.append([number])
        return logits

    def append_each(self, ids: Sequence[int]) -> list[Logits]:
        """Adds tokens to the cache and returns the logits after each of them."""
        if len(ids) == 1:
            return [self.append(ids)]
        rows = list(self.session.entries["score"](np.array(ids, np.int32)))
        self.ids += ids
        return rows


def choose(sample: Entry, allowed: Mask, logits: Logits, ids: Sequence[int], start: int, s: Sampling) -> int:
    """Returns the token that the entry `sample` chooses to follow `ids`, whose answer begins at `start`."""
    recent = ids[max(0, len(ids) - s.window) :] if s.penalty != 1 else []
    numbers = (s.temperature, s.top_k, s.top_p, s.min_p, s.penalty, s.seed, len(ids))
    token, _probability = sample(with_penalties(logits, ids[start:], s), np.array(recent, np.int32), allowed, *numbers)
    return int(token)


def with_penalties(logits: Logits, answer: Sequence[int], s: Sampling) -> Logits:
    """Returns the logits with penalties for tokens of the answer, and with biases."""
    if not s.changes_logits:
        return logits
    changed = logits.copy()
    tokens, counts = np.unique(np.array(answer, np.int64), return_counts=True)
    changed[tokens] -= (s.presence + s.frequency * counts).astype(np.float32)
    for token, bias in s.bias:
        changed[token] += np.float32(bias)
    return changed
