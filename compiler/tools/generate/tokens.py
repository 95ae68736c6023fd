"""Tokens from a compiled language model: a session that appends tokens, and the choice of the next one.

The model has the entries `prefill(tokens)`, `decode(token)` and `sample(logits, ...)`, as those from GGUF files and
from folders of Hugging Face do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.loader import Model, Session
from .vocabulary import error

_ENTRIES = ("prefill", "decode", "sample")
_CAPACITY = "S"
_NO_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Sampling:
    """The rule that chooses tokens. At temperature 0 the most likely token is chosen. `top_k` of 0, `top_p` of 1,
    `min_p` of 0 and a `penalty` of 1 change nothing; the penalty applies to the last `window` tokens."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    penalty: float = 1.0
    window: int = 64
    seed: int = 0


def check_language_model(model: Model) -> None:
    """Raises DiagnosticError if a model is no language model."""
    missing = [name for name in _ENTRIES if name not in model.entries]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise error("not-a-language-model", f"model `{model.name}` has no entry {names}")


def most_tokens(model: Model) -> int:
    """Returns the largest capacity of a session: the length of the context. Sessions without a cache have no limit."""
    capacity = _capacity_dim(model)
    return _NO_LIMIT if capacity is None else int(capacity["high"])


def _capacity_dim(model: Model) -> Mapping[str, Any] | None:
    return next((dim for dim in model.describe()["session"]["dims"] if dim["name"] == _CAPACITY), None)


class Generator:
    """A session and the tokens in its cache."""

    def __init__(self, model: Model, capacity: int) -> None:
        check_language_model(model)
        most = most_tokens(model)
        if not 0 < capacity <= most:
            raise error("bad-capacity", f"a capacity of {capacity} tokens is not between 1 and {most}")
        dims = {} if _capacity_dim(model) is None else {_CAPACITY: capacity}
        self.session: Session = model.session(**dims)
        self.capacity = capacity
        self.ids: list[int] = []
        vocabulary = self.session.entries["sample"].arguments[0].shape[0]
        assert isinstance(vocabulary, int), vocabulary
        self._allowed = np.ones(vocabulary, np.bool_)

    def append(self, ids: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Adds tokens to the cache and returns the logits of the next one. Raises DiagnosticError, which leaves the
        session as it was, if they do not fit."""
        left = self.capacity - len(self.ids)
        if len(ids) > left:
            message = f"{len(ids)} tokens do not fit: {left} of {self.capacity} places are free"
            raise error("prompt-too-long", message, "--capacity gives the session more places")
        entry = self.session.entries["decode" if len(ids) == 1 else "prefill"]
        logits: np.ndarray[tuple[int], np.dtype[np.float32]] = entry(np.array(ids, np.int32))
        self.ids += ids
        return logits

    def generate(self, prompt: Sequence[int], count: int, sampling: Sampling, end: frozenset[int]) -> Iterator[int]:
        """Yields up to `count` tokens that follow a prompt; ends before one of `end`, and where the cache is full."""
        if not prompt:
            raise error("empty-prompt", "the prompt has no tokens")
        logits = self.append(prompt)
        choose = self.session.entries["sample"]
        s = sampling
        for _ in range(count):
            recent = np.array(self.ids[-s.window :] if s.penalty != 1 else [], np.int32)
            numbers = (s.temperature, s.top_k, s.top_p, s.min_p, s.penalty, s.seed, len(self.ids))
            token, _probability = choose(logits, recent, self._allowed, *numbers)
            if int(token) in end:
                return
            yield int(token)
            if len(self.ids) == self.capacity:
                return
            logits = self.append([int(token)])
