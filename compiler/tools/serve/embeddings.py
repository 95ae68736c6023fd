"""Embeddings by the protocol of OpenAI: https://platform.openai.com/docs/api-reference/embeddings.

The texts of a request are computed in batches of similar lengths.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ....runtime.loader import Entry, Model
from ..generate.vocabulary import ENTRY, Vocabulary, read_vocabulary
from .calls import Calls, call_entry, read_body
from .fields import RequestError

EMBED = "embed"
_TEXTS = 2048
"""The maximum number of texts in a request."""
_AT_ONCE = 32
"""The maximum number of texts in a call. All texts of a call are padded to the longest one."""

Tensor = np.ndarray[Any, Any]


def embeds(model: Model) -> bool:
    """Returns whether a model has a tokenizer and an entry that returns a vector for each text."""
    entry = model.entries.get(EMBED)
    if entry is None or ENTRY not in model.entries:
        return False
    return [(a.dtype, len(a.shape)) for a in entry.arguments] == [("i64", 2), ("i64", 2)]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """A text encoder with the name under which it is served. `context` is the maximum number of tokens of a text."""

    name: str
    entry: Entry
    vocabulary: Vocabulary
    context: int
    calls: Calls
    started: int

    def routes(self) -> list[Route]:
        return [Route("/v1/models", self.models), Route("/v1/embeddings", self.embeddings, methods=["POST"])]

    async def models(self, _request: Request) -> Response:
        model = {"id": self.name, "object": "model", "created": self.started, "owned_by": "nacre"}
        return JSONResponse({"object": "list", "data": [model]})

    async def embeddings(self, request: Request) -> Response:
        async with self.calls.admitted():
            body, _ = await read_body(request, self.calls.body)
            order = read_order(body, self.name)
            texts = await asyncio.to_thread(self._encode, order.texts)
            width = self.entry.results[0].shape[1]
            if order.width not in (None, width):
                message = f"`dimensions` is {order.width}, and the model gives {width} numbers"
                raise RequestError(400, message, code="unsupported_parameter", param="dimensions")
            found: dict[int, Tensor] = {}
            for numbers in _alike([len(ids) for ids in texts]):
                ids, mask = _padded([texts[number] for number in numbers])
                (vectors,) = await self.calls.run(partial(call_entry, self.entry, [ids, mask]))
                found |= dict(zip(numbers, vectors, strict=True))
        data = [
            {"object": "embedding", "index": number, "embedding": order.write(found[number])}
            for number in range(len(texts))
        ]
        tokens = sum(map(len, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": self.name, "usage": usage})

    def _encode(self, texts: Sequence[str | Sequence[int]]) -> list[Sequence[int]]:
        encoded = [self.vocabulary.encode_whole(text) if isinstance(text, str) else text for text in texts]
        for number, ids in enumerate(encoded):
            if not 0 < len(ids) <= self.context:
                said = f"text {number} has {len(ids)} tokens, and the model takes 1 to {self.context}"
                raise RequestError(400, said, code="context_length_exceeded", param="input")
        return encoded


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request. `width` is the requested number of dimensions, if there is one."""

    texts: Sequence[str | Sequence[int]]
    width: int | None
    write: Callable[[Tensor], Any]


def read_order(body: Any, model: str) -> Order:
    """Checks the JSON of a request. Raises RequestError."""
    named = body.get("model")
    if not isinstance(named, str):
        raise RequestError(400, "`model` is not a text", param="model")
    if named != model:
        message = f"there is no model `{named}`; this is `{model}`"
        raise RequestError(404, message, code="model_not_found", param="model")
    encoding = body.get("encoding_format")
    if encoding not in (None, *_WRITERS):
        said = f"`encoding_format` is not one of {', '.join(_WRITERS)}"
        raise RequestError(400, said, param="encoding_format")
    width = body.get("dimensions")
    if width is not None and type(width) is not int:
        raise RequestError(400, "`dimensions` is not an integer", param="dimensions")
    return Order(_read_texts(body.get("input")), width, _WRITERS[encoding or "float"])


def _read_texts(given: Any) -> Sequence[str | Sequence[int]]:
    texts = [given] if isinstance(given, str) or _are_ids(given) else given
    if not isinstance(texts, list) or not 0 < len(texts) <= _TEXTS:
        raise RequestError(400, f"`input` is neither a text nor a list of 1 to {_TEXTS} texts", param="input")
    if not all(isinstance(text, str) or _are_ids(text) for text in texts):
        raise RequestError(400, "a text of `input` is neither a text nor a list of tokens", param="input")
    return texts


def _are_ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(n) is int and 0 <= n < 1 << 31 for n in given)


def _write_bytes(vector: Tensor) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


_WRITERS: dict[str, Callable[[Tensor], Any]] = {"float": lambda vector: vector.tolist(), "base64": _write_bytes}


def _alike(lengths: Sequence[int]) -> list[list[int]]:
    """Returns batches of texts of similar lengths, by the indices of the texts."""
    numbers = sorted(range(len(lengths)), key=lambda number: lengths[number])
    return [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]


def _padded(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Returns the ids of texts as rows, and the attention mask, which excludes padding."""
    ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return ids, mask


def make_embeddings(model: Model, name: str, calls: Calls, started: int) -> Embeddings:
    """Returns the encoder of a model; see `embeds`."""
    entry = model.entries[EMBED]
    described = next(one for one in model.describe()["entries"] if one["name"] == EMBED)
    dims = {dim["name"]: int(dim["high"]) for dim in described["dims"]}
    size = entry.arguments[0].shape[1]
    context = dims[size] if isinstance(size, str) else size
    return Embeddings(name, entry, read_vocabulary(model), context, calls, started)
