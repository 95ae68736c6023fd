"""Answers of the protocol of OpenAI: the tokens of a job become parts of a text, and these become JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..generate.vocabulary import Pieces, Vocabulary
from .engine import Finished, Job, Read, Sampled
from .protocol import Order
from .tool_calls import CallPart, Notation, Scanner

_UNFINISHED = "\ufffd"


class Cut:
    """Stop sequences: ends a text before the first of several strings. Characters that may begin such a string are held
    back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.is_done = False

    def push(self, piece: str) -> str:
        """Returns the text that no stop sequence can include any more."""
        text = self._held + piece
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            self.is_done, self._held = True, ""
            return text[: min(starts)]
        kept = max((n for s in self._stops for n in range(len(s)) if n and text.endswith(s[:n])), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> str:
        held, self._held = self._held, ""
        return held


@dataclass(frozen=True, slots=True)
class Scored:
    """A token with its probability: its text, the start of the text in the answer, the logarithm of its probability,
    and the texts of the most likely tokens with theirs. The first token of a prompt has no probability."""

    text: str
    offset: int
    log_probability: float | None
    alternatives: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an answer. The last one has the reason of the end. `calls` are parts of calls of tools."""

    index: int
    text: str
    reason: str | None = None
    scored: tuple[Scored, ...] = ()
    calls: tuple[CallPart, ...] = ()


class Answer:
    """One of the answers of a request, which the tokens of a job extend. `before` is the text before the first token:
    the prompt, if the request wants an echo. `notation` is that of calls, if the request has tools."""

    def __init__(
        self, index: int, order: Order, vocabulary: Vocabulary, job: Job, before: str, notation: Notation | None = None
    ) -> None:
        self.index, self.job, self.before = index, job, before
        self.is_done, self.sampled = False, 0
        self._order = order
        self._scanner = None if notation is None or order.tools is None else Scanner(notation, order.tools)
        shown = {} if notation is None else notation.special_tokens(vocabulary)
        self._pieces = Pieces(vocabulary, () if order.is_chat else job.ids, shown)
        self._cut = Cut(order.stops)
        self._complete = self._shown = len(before)
        """The lengths of the text of whole characters, and of the text of all parts."""
        self._scored: list[Scored] = []
        self._prompt: _ReadPrompt | None = None
        if job.reads:
            self._prompt = _ReadPrompt(vocabulary)
            self._scored.append(self._prompt.push(job.ids[0], None, ()))

    def push(self, event: Sampled | Finished) -> Part | None:
        """Returns the part that an event completes, if there is one."""
        if isinstance(event, Finished):
            rest = self._cut.push(self._pieces.rest())
            return self._part(rest, "stop") if self._cut.is_done else self._part(rest + self._cut.rest(), event.reason)
        if isinstance(event, Read):
            assert self._prompt is not None
            self._scored.append(self._prompt.push(event.token, event.log_probability, event.alternatives))
            return None
        if not self._order.count:
            return None
        self.sampled += 1
        if self._order.alternatives is not None:
            self._scored.append(self._score(event))
        piece = self._pieces.push(event.token)
        self._complete += len(piece)
        text = self._cut.push(piece)
        if not text and not self._cut.is_done:
            return None
        part = self._part(text, "stop" if self._cut.is_done else None)
        return part if part.text or part.calls or part.scored or part.reason else None

    def _score(self, event: Sampled) -> Scored:
        others = tuple((self._pieces.peek(token), number) for token, number in event.alternatives)
        return Scored(self._pieces.peek(event.token), self._complete, event.log_probability, others)

    def _part(self, text: str, reason: str | None) -> Part:
        """Returns a part with the tokens that begin in its text."""
        self._shown += len(text)
        shown = tuple(token for token in self._scored if token.offset < self._shown or not self._cut.is_done)
        self._scored = []
        calls: tuple[CallPart, ...] = ()
        if self._scanner is not None:
            text, calls = self._scanner.push(text, last=reason is not None)
            if self._scanner.is_done or (self._scanner.calls and reason == "stop"):
                reason = "tool_calls"
        self.is_done = reason is not None
        return Part(self.index, text, reason, shown, calls)


class _ReadPrompt:
    """The tokens of a prompt with their probabilities."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces, self._length = Pieces(vocabulary, ()), 0

    def push(self, token: int, log_probability: float | None, alternatives: Sequence[tuple[int, float]]) -> Scored:
        others = tuple((self._pieces.peek(other), number) for other, number in alternatives)
        scored = Scored(self._pieces.peek(token), self._length, log_probability, others)
        self._length += len(self._pieces.push(token))
        return scored


def answer_json(order: Order, number: str, created: int, model: str, choices: Sequence[Any], *, part: bool) -> Any:
    """Returns the JSON of a whole answer, or of a part of one in a stream."""
    kind = "chat.completion" if order.is_chat else "text_completion"
    suffix = ".chunk" if order.is_chat and part else ""
    return {"id": number, "object": kind + suffix, "created": created, "model": model, "choices": choices}


def choice_json(order: Order, part: Part, *, whole: bool) -> dict[str, Any]:
    """Returns the JSON of an answer among those of a request; of a part of it unless it is `whole`."""
    choice: dict[str, Any] = {"index": part.index, "finish_reason": part.reason, "logprobs": None}
    if not order.is_chat:
        choice["text"] = part.text
    elif whole:
        choice["message"] = {"role": "assistant", "content": part.text if part.text or not part.calls else None}
        if part.calls:
            choice["message"]["tool_calls"] = _whole_calls(part.calls)
    else:
        choice["delta"] = {"content": part.text} if part.text or not (part.reason or part.calls) else {}
        if part.calls:
            choice["delta"]["tool_calls"] = [{"index": call.index, **_call_json(call)} for call in part.calls]
    if order.alternatives is not None and (part.scored or whole):
        choice["logprobs"] = _chat_scores(part.scored) if order.is_chat else _completion_scores(part.scored)
    return choice


def _call_json(call: CallPart) -> dict[str, Any]:
    named = {"name": call.name} if call.name else {}
    head = {"id": call.id, "type": "function"} if call.id else {}
    return {**head, "function": {**named, "arguments": call.arguments}}


def _whole_calls(parts: Sequence[CallPart]) -> list[dict[str, Any]]:
    heads = [part for part in parts if part.id]
    texts = ["".join(part.arguments for part in parts if part.index == head.index) for head in heads]
    return [_call_json(replace(head, arguments=text)) for head, text in zip(heads, texts, strict=True)]


def _chat_scores(scored: Sequence[Scored]) -> dict[str, Any]:
    return {
        "content": [
            {
                **_token_json(token.text, token.log_probability),
                "top_logprobs": [_token_json(*other) for other in token.alternatives],
            }
            for token in scored
        ],
        "refusal": None,
    }


def _token_json(text: str, log_probability: float | None) -> dict[str, Any]:
    is_whole = _UNFINISHED not in text
    return {"token": text, "logprob": log_probability, "bytes": list(text.encode()) if is_whole else None}


def _completion_scores(scored: Sequence[Scored]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in scored],
        "token_logprobs": [token.log_probability for token in scored],
        "top_logprobs": [
            None if token.log_probability is None else dict(reversed(token.alternatives)) for token in scored
        ],
        "text_offset": [token.offset for token in scored],
    }
