"""Calls of entries without states: admission of requests, and the bodies of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from ....runtime.library import NacreError
from ....runtime.loader import Entry
from .fields import RequestError, parse_json

LENGTH = "inference-header-content-length"
"""The header that gives the length of the JSON before the binary data."""


@dataclass(slots=True)
class Calls:
    """Limits concurrent calls: at most `running` calls run, and at most `queue` further requests wait. `body` is the
    maximum size of a request in bytes."""

    running: int
    queue: int
    body: int
    counts: dict[str, int] = field(default_factory=lambda: {"requests": 0, "refused": 0, "failed": 0})
    open: int = 0
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.running)

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """A context in which a request is counted. Raises RequestError if too many requests wait, and in place of other
        errors."""
        if self.open >= self.running + self.queue:
            self.counts["refused"] += 1
            raise RequestError(429, "too many requests wait; try again later", code="queue_full")
        self.open += 1
        self.counts["requests"] += 1
        try:
            yield
        except Exception as error:
            self.counts["failed"] += 1
            if isinstance(error, RequestError):
                raise
            raise RequestError(500, f"the request failed: {error}", code="internal_error") from error
        finally:
            self.open -= 1

    async def run(self, call: Callable[[], list[Any]]) -> list[Any]:
        """Runs a function in a thread, once fewer than `running` calls run."""
        async with self._free:
            return await asyncio.to_thread(call)


async def read_body(request: Request, most: int) -> tuple[dict[str, Any], bytes]:
    """Returns the JSON of a request, and the bytes after it. Raises RequestError."""
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise RequestError(413, f"the body is larger than {most} bytes", code="body_too_large")
    except ClientDisconnect:
        raise RequestError(400, "the body is not complete") from None
    said = request.headers.get(LENGTH, str(len(content)))
    length = int(said) if said.isascii() and said.isdigit() and len(said) < 20 else -1
    if not 0 <= length <= len(content):
        raise RequestError(400, f"the header {LENGTH} is {said}, and the body has {len(content)} bytes")
    body = parse_json(content[:length])
    if not isinstance(body, dict):
        raise RequestError(400, "the body is not a JSON object")
    return body, bytes(content[length:])


def call_entry(entry: Entry, inputs: list[Any]) -> list[Any]:
    """Returns the results of a call. Raises RequestError."""
    try:
        found = entry(*inputs)
    except NacreError as error:
        raise RequestError(400, str(error)) from None
    return [found] if len(entry.results) == 1 else list(found)
