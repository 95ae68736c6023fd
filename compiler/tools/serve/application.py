"""The application: requests become jobs of the engine, their tokens become text, whole or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ....dialect.diagnostics import DiagnosticError
from ..generate.guide import Form, Forms, Guide
from ..generate.vocabulary import Pieces, Vocabulary
from .engine import Engine, Event, Finished, Job, QueueFullError, StoppedError
from .protocol import Cut, Order, RequestError, answer, parse_json, read_order

_DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Server:
    """A served model. `tokens` is the size of the vocabulary, `body` the maximum size of a request in bytes."""

    name: str
    engine: Engine
    vocabulary: Vocabulary
    tokens: int
    body: int
    started: int
    _forms: list[Forms] = field(default_factory=list)
    _reading: Lock = field(default_factory=Lock)

    def application(self) -> Starlette:
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
        ]

        @asynccontextmanager
        async def lifespan(_application: Starlette) -> AsyncIterator[None]:
            yield
            await asyncio.to_thread(self.engine.stop)

        async def refuse(_request: Request, error: Exception) -> Response:
            assert isinstance(error, RequestError)
            headers = {"retry-after": "1"} if error.status in (429, 503) else None
            return JSONResponse(error.body, error.status, headers)

        return Starlette(routes=routes, lifespan=lifespan, exception_handlers={RequestError: refuse})

    async def health(self, _request: Request) -> Response:
        alive = self.engine.is_alive
        return JSONResponse({"status": "ok" if alive else "stopped"}, 200 if alive else 503)

    async def models(self, _request: Request) -> Response:
        model = {"id": self.name, "object": "model", "created": self.started, "owned_by": "nacre"}
        return JSONResponse({"object": "list", "data": [model]})

    async def metrics(self, _request: Request) -> Response:
        """The text format of Prometheus."""
        lines = []
        for name, value in asdict(self.engine.counters).items():
            lines += [f"# TYPE nacre_{name}_total counter", f"nacre_{name}_total {value}"]
        for name, value in (("running", self.engine.running), ("waiting", self.engine.waiting)):
            lines += [f"# TYPE nacre_requests_{name} gauge", f"nacre_requests_{name} {value}"]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def completions(self, request: Request) -> Response:
        return await self.respond(request, is_chat=False)

    async def chat(self, request: Request) -> Response:
        return await self.respond(request, is_chat=True)

    async def respond(self, request: Request, *, is_chat: bool) -> Response:
        order = read_order(await self._json(request), self.name, is_chat=is_chat)
        ids = await asyncio.to_thread(self._encode, order)
        if len(ids) >= self.engine.capacity:
            message = f"the prompt has {len(ids)} tokens, and a session holds {self.engine.capacity}"
            raise RequestError(400, message, code="context_length_exceeded", param="messages" if is_chat else "prompt")
        guide = None if order.form is None else await asyncio.to_thread(self._guide, order.form)
        events: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        count = min(order.count, self.engine.capacity - len(ids))
        job = Job(ids, count, order.sampling, lambda event: _deliver(loop, events, event), guide)
        try:
            self.engine.submit(job)
        except QueueFullError:
            raise RequestError(429, "too many requests wait; try again later", code="queue_full") from None
        except StoppedError:
            raise RequestError(503, "the server is shutting down", code="shutting_down") from None
        number, created = f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}", int(time.time())
        texts = self._texts(job, order, events)
        if order.stream:
            stream = self._events(order, texts, job, number, created)
            return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})
        whole, sampled = "", 0
        reason: str | None = None
        watcher = asyncio.ensure_future(_cancel_when_left(request, job))
        try:
            async for text, reason, sampled in texts:  # noqa: B007  # the last ones count
                whole += text
        except Exception as error:
            raise _failure(error) from error
        finally:
            watcher.cancel()
        body = answer(order, number, created, self.name, whole, reason, part=False)
        return JSONResponse(body | {"usage": _usage(job, sampled)})

    async def _json(self, request: Request) -> Any:
        content = bytearray()
        try:
            async for part in request.stream():
                content += part
                if len(content) > self.body:
                    message = f"the body is larger than {self.body} bytes"
                    raise RequestError(413, message, code="body_too_large")
        except ClientDisconnect:
            raise RequestError(400, "the body is not complete") from None
        return parse_json(content)

    def _encode(self, order: Order) -> Sequence[int]:
        prompt = order.prompt
        try:
            if isinstance(prompt, str):
                ids: Sequence[int] = self.vocabulary.encode(prompt)
            elif order.is_chat:
                ids = self.vocabulary.encode(self.vocabulary.converse(prompt))  # type: ignore[arg-type]  # messages
            else:
                ids = prompt  # type: ignore[assignment]  # ids
        except DiagnosticError as error:
            raise RequestError(400, error.diagnostics[0].message, code=error.diagnostics[0].code) from None
        if not ids:
            raise RequestError(400, "the prompt has no tokens", param="prompt")
        wrong = next((i for i in ids if not 0 <= i < self.tokens), None)
        if wrong is not None:
            raise RequestError(400, f"token {wrong} is not among the {self.tokens} of the model", param="prompt")
        return ids

    def _guide(self, form: Form) -> Guide:
        """Returns the guide of an answer. Reads the vocabulary on the first call."""
        try:
            with self._reading:
                if not self._forms:
                    self._forms.append(Forms(self.vocabulary, self.tokens))
            return self._forms[0].guide(form)
        except DiagnosticError as error:
            found = error.diagnostics[0]
            raise RequestError(400, found.message, code=found.code, param="response_format") from None

    async def _texts(
        self, job: Job, order: Order, events: asyncio.Queue[Event]
    ) -> AsyncIterator[tuple[str, str | None, int]]:
        """Yields pieces of text with the number of tokens so far; the last piece has the reason of the end."""
        pieces = Pieces(self.vocabulary, () if order.is_chat else job.ids)
        cut, sampled = Cut(order.stops), 0
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Finished):
                    rest = cut.push(pieces.rest())
                    yield (rest if cut.is_done else rest + cut.rest()), "stop" if cut.is_done else event.reason, sampled
                    return
                sampled += 1
                text = cut.push(pieces.push(event))
                if cut.is_done:
                    yield text, "stop", sampled
                    return
                if text:
                    yield text, None, sampled
        finally:
            job.cancelled = True

    async def _events(
        self, order: Order, texts: AsyncIterator[tuple[str, str | None, int]], job: Job, number: str, created: int
    ) -> AsyncIterator[str]:
        sampled = 0
        try:
            if order.is_chat:
                first = answer(order, number, created, self.name, "", None, part=True)
                first["choices"][0]["delta"]["role"] = "assistant"
                yield _event(first)
            async for text, reason, sampled in texts:  # noqa: B007  # the last number counts
                if text or reason is None:
                    yield _event(answer(order, number, created, self.name, text, None, part=True))
                if reason is not None:
                    yield _event(answer(order, number, created, self.name, "", reason, part=True))
            if order.usage:
                last = answer(order, number, created, self.name, "", None, part=True)
                yield _event(last | {"choices": [], "usage": _usage(job, sampled)})
            yield _DONE
        except Exception as error:
            yield _event(_failure(error).body)
        finally:
            job.cancelled = True


def _deliver(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    """Passes an event from the thread of the engine to the event loop of a request, which may have ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)


def _failure(error: Exception) -> RequestError:
    if isinstance(error, StoppedError):
        return RequestError(503, "the server is shutting down", code="shutting_down")
    if isinstance(error, DiagnosticError):
        # Some schemas turn out to be invalid when the first token is chosen.
        found = error.diagnostics[0]
        return RequestError(400, found.message, code=found.code)
    return RequestError(500, f"the request failed: {error}", code="internal_error")


async def _cancel_when_left(request: Request, job: Job) -> None:
    """Cancels a job when its client closes the connection."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.1)
    job.cancelled = True


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


def _usage(job: Job, sampled: int) -> dict[str, int]:
    return {
        "prompt_tokens": len(job.ids),
        "completion_tokens": sampled,
        "total_tokens": len(job.ids) + sampled,
    }
