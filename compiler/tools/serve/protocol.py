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
from .conversation import Message, Tools, read_messages, read_tools
from .fields import RequestError, flag, integer, number

_DEFAULT_TOKENS = 256
_STOPS = 4
_ANSWERS = 128
"""The maximum number of answers of a request."""
_MOST = 20
"""The maximum number of most likely tokens beside each token."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "modalities": (["text"],),
    "audio": (),
}
"""Fields that are not supported, with the values that have no effect and are accepted."""

Prompt = str | Sequence[int] | Sequence[Message]


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request. A prompt is a text, ids of tokens, or the messages of a conversation; it gets `answers`
    answers. `alternatives` is the number of most likely tokens beside each token, None without probabilities. `echo`:
    whether answers begin with the prompt; `count`, the number of their tokens, may then be 0. `suffix` is the text
    behind an answer, if the prompt is the text before it. `tools` are the functions that an answer may call."""

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
    suffix: str
    tools: Tools | None


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
    prompts: Sequence[Prompt] = [read_messages(body)] if is_chat else _prompts(body)
    answers = integer(body, "n", 1, 1, _ANSWERS + 1)
    if len(prompts) * answers > _ANSWERS:
        raise RequestError(400, f"the request asks for more than {_ANSWERS} answers", param="n")
    if body.get("best_of") not in (None, answers):
        raise RequestError(400, "`best_of` is not `n`", code="unsupported_parameter", param="best_of")
    alternatives = _alternatives(body, is_chat=is_chat)
    echo = not is_chat and flag(body, "echo")
    suffix = "" if is_chat else _suffix(body, echo=echo)
    return Order(
        prompts,
        is_chat,
        answers,
        alternatives,
        echo,
        integer(body, tokens, _DEFAULT_TOKENS, 0 if echo else 1, 1 << 31),
        Sampling(
            temperature=number(body, "temperature", 1.0, 0, 100),
            top_k=integer(body, "top_k", 0, 0, 1 << 31),
            top_p=number(body, "top_p", 1.0, 1e-6, 1),
            min_p=number(body, "min_p", 0.0, 0, 1),
            penalty=number(body, "repetition_penalty", 1.0, 1e-6, 100),
            seed=integer(body, "seed", secrets.randbits(31), -(1 << 31), 1 << 31),
            presence=number(body, "presence_penalty", 0.0, -2, 2),
            frequency=number(body, "frequency_penalty", 0.0, -2, 2),
            bias=_bias(body),
        ),
        _stops(body),
        flag(body, "stream"),
        bool((options or {}).get("include_usage")),
        _form(body),
        suffix,
        read_tools(body) if is_chat else None,
    )


def _prompts(body: Mapping[str, Any]) -> Sequence[str | Sequence[int]]:
    given = body.get("prompt")
    prompts = [given] if isinstance(given, str) or (isinstance(given, list) and _are_ids(given)) else given
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, str) or _are_ids(p) for p in prompts):
        raise RequestError(400, "`prompt` is neither a text, nor a list of tokens, nor a list of these", param="prompt")
    return prompts


def _suffix(body: Mapping[str, Any], *, echo: bool) -> str:
    suffix = body.get("suffix")
    if not isinstance(suffix, (str, type(None))):
        raise RequestError(400, "`suffix` is not a text", param="suffix")
    if suffix and echo:
        raise RequestError(400, "`suffix` and `echo` exclude each other", param="suffix")
    return suffix or ""


def _are_ids(prompt: Any) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(number) is int for number in prompt)


def _alternatives(body: Mapping[str, Any], *, is_chat: bool) -> int | None:
    """Returns the number of tokens whose probabilities are wanted beside those of the answer."""
    if not is_chat:
        wanted = body.get("logprobs")
        return (
            None if wanted in (None, False) and type(wanted) is not int else integer(body, "logprobs", 0, 0, _MOST + 1)
        )
    count = integer(body, "top_logprobs", 0, 0, _MOST + 1)
    if flag(body, "logprobs"):
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
