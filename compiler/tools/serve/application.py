"""The application: requests become jobs of the engine, their tokens become text, whole or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ....dialect.diagnostics import DiagnosticError
from ..generate.guide import CALLS, Form, Forms, Guide
from ..generate.vocabulary import Vocabulary
from .answers import Answer, Part, answer_json, choice_json
from .engine import Engine, Event, Job, QueueFullError, StoppedError
from .fields import RequestError, parse_json
from .protocol import Order, Prompt, read_order
from .tool_calls import Notation, calls_form, find_notation

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
        events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        answers = await asyncio.to_thread(self._answers, order, events, asyncio.get_running_loop())
        self._submit([answer.job for answer in answers])
        number, created = f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}", int(time.time())
        parts = _parts(answers, events)
        write = partial(answer_json, order, number, created, self.name)
        if order.stream:
            stream = _events(order, answers, parts, partial(write, part=True))
            return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})
        whole: list[list[Part]] = [[] for _ in answers]
        watcher = asyncio.ensure_future(_cancel_when_left(request, answers))
        try:
            async for part in parts:
                whole[part.index].append(part)
        except Exception as error:
            raise _failure(error) from error
        finally:
            watcher.cancel()
        choices = [choice_json(order, _joined(answer, whole[answer.index]), whole=True) for answer in answers]
        return JSONResponse(write(choices, part=False) | {"usage": _usage(order, answers)})

    def _answers(
        self, order: Order, events: asyncio.Queue[tuple[int, Event]], loop: asyncio.AbstractEventLoop
    ) -> list[Answer]:
        """Returns the answers of a request with their jobs, those to the same prompt side by side."""
        found: list[Answer] = []
        for token, _ in order.sampling.bias:
            self._check_token(token, "logit_bias")
        notation, form = self._calls(order)
        for prompt in order.prompts:
            ids = self._encode(prompt, order)
            before = (prompt if isinstance(prompt, str) else self.vocabulary.decode(ids)) if order.echo else ""
            for number in range(order.answers):
                seed = (order.sampling.seed + number + (1 << 31)) % (1 << 32) - (1 << 31)
                emit = partial(_deliver, loop, events, len(found))
                guide = None if form is None else self._guide(form)
                # A request for the prompt alone ends after the first token, which is not shown.
                count = min(max(1, order.count), self.engine.capacity - len(ids))
                reads = order.echo and order.alternatives is not None
                job = Job(ids, count, replace(order.sampling, seed=seed), emit, guide, order.alternatives, reads)
                found.append(Answer(len(found), order, self.vocabulary, job, before, notation))
        return found

    def _calls(self, order: Order) -> tuple[Notation | None, Form | None]:
        """Returns the notation of calls in the answers of a request, and their form. Raises RequestError."""
        if order.tools is None:
            return None, order.form
        with _refused("tools"):
            notation = find_notation(self.vocabulary)
        return notation, calls_form(notation, order.tools, self.vocabulary, order.form)

    def _submit(self, jobs: Sequence[Job]) -> None:
        """Passes all jobs of a request to the engine, or none."""
        try:
            self.engine.submit(*jobs)
        except QueueFullError:
            raise RequestError(429, "too many requests wait; try again later", code="queue_full") from None
        except StoppedError:
            raise RequestError(503, "the server is shutting down", code="shutting_down") from None

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

    def _encode(self, prompt: Prompt, order: Order) -> Sequence[int]:
        """Returns the ids of a prompt. Raises RequestError if a session has no room for them."""
        with _refused("suffix" if order.suffix else ""):
            if isinstance(prompt, str):
                ids: Sequence[int] = self.vocabulary.encode(prompt)
            elif order.is_chat:
                tools = [] if order.tools is None else [function.described() for function in order.tools.functions]
                ids = self.vocabulary.encode(self.vocabulary.converse(prompt, tools))  # type: ignore[arg-type]  # messages
            else:
                ids = prompt  # type: ignore[assignment]  # ids
            if order.suffix:
                ids = self.vocabulary.fill_in(ids, order.suffix)
        if not ids:
            raise RequestError(400, "the prompt has no tokens", param="prompt")
        for number in ids:
            self._check_token(number, "prompt")
        if len(ids) >= self.engine.capacity:
            message = f"the prompt has {len(ids)} tokens, and a session holds {self.engine.capacity}"
            raise RequestError(
                400, message, code="context_length_exceeded", param="messages" if order.is_chat else "prompt"
            )
        return ids

    def _check_token(self, number: int, name: str) -> None:
        if not 0 <= number < self.tokens:
            raise RequestError(400, f"token {number} is not among the {self.tokens} of the model", param=name)

    def _guide(self, form: Form) -> Guide:
        """Returns the guide of an answer. Reads the vocabulary on the first call."""
        with _refused("tools" if form.kind == CALLS else "response_format"):
            with self._reading:
                if not self._forms:
                    self._forms.append(Forms(self.vocabulary, self.tokens))
            return self._forms[0].guide(form)


@contextmanager
def _refused(param: str) -> Iterator[None]:
    """A context in which diagnostics become errors about a field of the request."""
    try:
        yield
    except DiagnosticError as error:
        found = error.diagnostics[0]
        raise RequestError(400, found.message, code=found.code, param=param) from None


async def _parts(answers: Sequence[Answer], events: asyncio.Queue[tuple[int, Event]]) -> AsyncIterator[Part]:
    """Yields the parts of all answers in the order of their events."""
    try:
        while not all(answer.is_done for answer in answers):
            index, event = await events.get()
            answer = answers[index]
            if isinstance(event, Exception):
                raise event
            part = None if answer.is_done else answer.push(event)
            answer.job.cancelled |= answer.is_done
            if part is not None:
                yield part
    finally:
        for answer in answers:
            answer.job.cancelled = True


async def _events(
    order: Order, answers: Sequence[Answer], parts: AsyncIterator[Part], write: Callable[[Sequence[Any]], Any]
) -> AsyncIterator[str]:
    """Yields the events of a stream."""
    try:
        for answer in answers:
            if order.is_chat or answer.before:
                choice = choice_json(order, Part(answer.index, answer.before), whole=False)
                if order.is_chat:
                    choice["delta"]["role"] = "assistant"
                yield _event(write([choice]))
        async for part in parts:
            if part.text or part.scored or part.calls:
                yield _event(write([choice_json(order, replace(part, reason=None), whole=False)]))
            if part.reason is not None:
                yield _event(write([choice_json(order, Part(part.index, "", part.reason), whole=False)]))
        if order.usage:
            yield _event(write([]) | {"usage": _usage(order, answers)})
        yield _DONE
    except Exception as error:
        yield _event(_failure(error).body)
    finally:
        for answer in answers:
            answer.job.cancelled = True


def _joined(answer: Answer, parts: Sequence[Part]) -> Part:
    """Returns a whole answer as one part."""
    text = answer.before + "".join(part.text for part in parts)
    scored = tuple(token for part in parts for token in part.scored)
    return Part(answer.index, text, parts[-1].reason, scored, tuple(call for part in parts for call in part.calls))


def _deliver(
    loop: asyncio.AbstractEventLoop, events: asyncio.Queue[tuple[int, Event]], index: int, event: Event
) -> None:
    """Passes an event from the thread of the engine to the event loop of a request, which may have ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, (index, event))


def _failure(error: Exception) -> RequestError:
    if isinstance(error, StoppedError):
        return RequestError(503, "the server is shutting down", code="shutting_down")
    if isinstance(error, DiagnosticError):
        # Some schemas turn out to be invalid when the first token is chosen.
        found = error.diagnostics[0]
        return RequestError(400, found.message, code=found.code)
    return RequestError(500, f"the request failed: {error}", code="internal_error")


async def _cancel_when_left(request: Request, answers: Sequence[Answer]) -> None:
    """Cancels the jobs of a request when its client closes the connection."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.1)
    for answer in answers:
        answer.job.cancelled = True


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


def _usage(order: Order, answers: Sequence[Answer]) -> dict[str, int]:
    prompts = sum(len(answer.job.ids) for answer in answers[:: order.answers])
    sampled = sum(answer.sampled for answer in answers)
    return {"prompt_tokens": prompts, "completion_tokens": sampled, "total_tokens": prompts + sampled}
