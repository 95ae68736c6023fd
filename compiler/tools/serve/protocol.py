"""Requests and answers of the protocol of OpenAI: https://platform.openai.com/docs/api-reference.

A field that would change the answer and is not supported is refused. Others, such as `user`, are ignored.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..generate.guide import JSON_SCHEMA, Form
from ..generate.tokens import Sampling

_DEFAULT_TOKENS = 256
_STOPS = 4
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "tools": ([],),
    "functions": ([],),
    "modalities": (["text"],),
    "audio": (),
}
"""Fields that are not supported, with the values that have no effect and are accepted."""


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""A surrogate in JSON. Two of them may be the halves of one character."""


class RequestError(Exception):
    """A request that is answered with an error, and the HTTP status of the answer."""

    def __init__(self, status: int, message: str, *, code: str = "invalid_request_error", param: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"message": message, "type": _kind(status), "param": param or None, "code": code},
        }


def _kind(status: int) -> str:
    return "invalid_request_error" if status < 500 and status != 429 else "server_error"


def parse_json(content: bytes | bytearray) -> Any:
    """Returns the content of a body. Raises RequestError if it is not JSON, or has halves of surrogate pairs in texts,
    which neither a tokenizer nor an answer can contain."""
    try:
        text = content.decode()
        found = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(400, "the body has texts that are not Unicode") from None
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request. `prompt` is a text, ids of tokens, or the messages of a conversation."""

    prompt: str | Sequence[int] | Sequence[Mapping[str, str]]
    is_chat: bool
    count: int
    sampling: Sampling
    stops: tuple[str, ...]
    stream: bool
    usage: bool
    form: Form | None


def read_order(body: Any, model: str, *, is_chat: bool) -> Order:
    """Checks the JSON of a request. Raises RequestError."""
    if not isinstance(body, dict):
        raise RequestError(400, "the body is not a JSON object")
    named = body.get("model")
    if not isinstance(named, str):
        raise RequestError(400, "`model` is not a text", param="model")
    if named != model:
        raise RequestError(
            404, f"there is no model `{named}`; this is `{model}`", code="model_not_found", param="model"
        )
    for name, neutral in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise RequestError(400, f"`{name}` is not supported", code="unsupported_parameter", param=name)
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise RequestError(400, "`stream_options` is not an object", param="stream_options")
    tokens = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return Order(
        _messages(body) if is_chat else _prompt(body),
        is_chat,
        _integer(body, tokens, _DEFAULT_TOKENS, 1, 1 << 31),
        Sampling(
            temperature=_number(body, "temperature", 1.0, 0, 100),
            top_k=_integer(body, "top_k", 0, 0, 1 << 31),
            top_p=_number(body, "top_p", 1.0, 1e-6, 1),
            min_p=_number(body, "min_p", 0.0, 0, 1),
            penalty=_number(body, "repetition_penalty", 1.0, 1e-6, 100),
            seed=_integer(body, "seed", secrets.randbits(31), -(1 << 31), 1 << 31),
        ),
        _stops(body),
        _flag(body, "stream"),
        bool((options or {}).get("include_usage")),
        _form(body),
    )


def _prompt(body: Mapping[str, Any]) -> str | Sequence[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(type(number) is int for number in prompt):
        return prompt
    raise RequestError(400, "`prompt` is neither one text nor a list of tokens", param="prompt")


def _messages(body: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "`messages` is not a list of messages", param="messages")
    found = []
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]  # all are texts
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            wanted = "a `role` and a text as `content`"
            raise RequestError(400, f"`messages[{number}]` does not have {wanted}", param="messages")
        found.append({"role": message["role"], "content": content})
    return found


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > _STOPS or not all(isinstance(s, str) and s for s in stops):
        raise RequestError(400, f"`stop` is neither a text nor a list of up to {_STOPS} texts", param="stop")
    return tuple(stops)


def _form(body: Mapping[str, Any]) -> Form | None:
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return Form(JSON_SCHEMA, '{"type": "object"}')
    given = wanted.get("json_schema") if kind == "json_schema" else None
    schema = given.get("schema") if isinstance(given, dict) else None
    if not isinstance(schema, dict):
        message = "`response_format` has none of the types `text`, `json_object`, and `json_schema` with its `schema`"
        raise RequestError(400, message, param="response_format")
    return Form(JSON_SCHEMA, json.dumps(schema))


def _integer(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < high:
        raise RequestError(400, f"`{name}` is not an integer from {low} to {high - 1}", param=name)
    return value


def _number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not low <= value <= high:
        raise RequestError(400, f"`{name}` is not a number from {low:g} to {high:g}", param=name)
    return float(value)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, False, True):
        raise RequestError(400, f"`{name}` is not true or false", param=name)
    return bool(value)


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


def answer(
    order: Order, number: str, created: int, model: str, text: str, reason: str | None, *, part: bool
) -> dict[str, Any]:
    """Returns an answer, or a part of one in a stream."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
    if not order.is_chat:
        kind = "text_completion"
        choice["text"] = text
    elif part:
        kind = "chat.completion.chunk"
        choice["delta"] = {"content": text} if text or reason is None else {}
    else:
        kind = "chat.completion"
        choice["message"] = {"role": "assistant", "content": text}
    return {"id": number, "object": kind, "created": created, "model": model, "choices": [choice]}
