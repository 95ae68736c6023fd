"""Requests of the protocol of OpenAI: https://platform.openai.com/docs/api-reference.

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
_ANSWERS = 128
"""The maximum number of answers of a request."""
_MOST = 20
"""The maximum number of most likely tokens beside each token."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "suffix": ("",),
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


Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request. A prompt is a text, ids of tokens, or the messages of a conversation; it gets `answers`
    answers. `alternatives` is the number of most likely tokens beside each token, None without probabilities. `echo`:
    whether answers begin with the prompt; `count`, the number of their tokens, may then be 0."""

    prompts: Sequence[Prompt]
    is_chat: bool
    answers: int
    alternatives: int | None
    echo: bool
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
    prompts: Sequence[Prompt] = [_messages(body)] if is_chat else _prompts(body)
    answers = _integer(body, "n", 1, 1, _ANSWERS + 1)
    if len(prompts) * answers > _ANSWERS:
        raise RequestError(400, f"the request asks for more than {_ANSWERS} answers", param="n")
    if body.get("best_of") not in (None, answers):
        raise RequestError(400, "`best_of` is not `n`", code="unsupported_parameter", param="best_of")
    alternatives = _alternatives(body, is_chat=is_chat)
    echo = not is_chat and _flag(body, "echo")
    return Order(
        prompts,
        is_chat,
        answers,
        alternatives,
        echo,
        _integer(body, tokens, _DEFAULT_TOKENS, 0 if echo else 1, 1 << 31),
        Sampling(
            temperature=_number(body, "temperature", 1.0, 0, 100),
            top_k=_integer(body, "top_k", 0, 0, 1 << 31),
            top_p=_number(body, "top_p", 1.0, 1e-6, 1),
            min_p=_number(body, "min_p", 0.0, 0, 1),
            penalty=_number(body, "repetition_penalty", 1.0, 1e-6, 100),
            seed=_integer(body, "seed", secrets.randbits(31), -(1 << 31), 1 << 31),
            presence=_number(body, "presence_penalty", 0.0, -2, 2),
            frequency=_number(body, "frequency_penalty", 0.0, -2, 2),
            bias=_bias(body),
        ),
        _stops(body),
        _flag(body, "stream"),
        bool((options or {}).get("include_usage")),
        _form(body),
    )


def _prompts(body: Mapping[str, Any]) -> Sequence[str | Sequence[int]]:
    given = body.get("prompt")
    prompts = [given] if isinstance(given, str) or (isinstance(given, list) and _are_ids(given)) else given
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, str) or _are_ids(p) for p in prompts):
        raise RequestError(400, "`prompt` is neither a text, nor a list of tokens, nor a list of these", param="prompt")
    return prompts


def _are_ids(prompt: Any) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(number) is int for number in prompt)


def _alternatives(body: Mapping[str, Any], *, is_chat: bool) -> int | None:
    """Returns the number of tokens whose probabilities are wanted beside those of the answer."""
    if not is_chat:
        wanted = body.get("logprobs")
        return (
            None if wanted in (None, False) and type(wanted) is not int else _integer(body, "logprobs", 0, 0, _MOST + 1)
        )
    count = _integer(body, "top_logprobs", 0, 0, _MOST + 1)
    if _flag(body, "logprobs"):
        return count
    if count:
        raise RequestError(400, "`top_logprobs` needs `logprobs`", param="top_logprobs")
    return None


def _bias(body: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    given = body.get("logit_bias")
    found = {} if given is None else given
    message = "`logit_bias` is not an object of tokens with numbers from -100 to 100"
    if not isinstance(found, dict) or not all(re.fullmatch(r"\d{1,9}", token, re.ASCII) for token in found):
        raise RequestError(400, message, param="logit_bias")
    if not all(type(number) in (int, float) and -100 <= number <= 100 for number in found.values()):
        raise RequestError(400, message, param="logit_bias")
    return tuple((int(token), float(number)) for token, number in found.items())


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
