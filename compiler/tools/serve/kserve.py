"""The application for models of plain tensors: the protocol KServe v2 with its extension for binary data.

Each entry without states is a model. It has the name of the artifact if there is one such entry, and else the name of
the artifact, a dot and its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ....runtime.library import NacreError
from ....runtime.loader import Entry, Model
from ...version import __version__
from .protocol import RequestError
from .tensors import DATATYPES, choose_outputs, describe, read_inputs, write_output

_LENGTH = "inference-header-content-length"


def served_entries(model: Model, name: str) -> dict[str, Entry]:
    """Returns the entries that the protocol can call, by their names in it."""
    plain = [
        entry
        for entry in model.entries.values()
        if not entry.states and all(a.dtype in DATATYPES for a in (*entry.arguments, *entry.results))
    ]
    return {name if len(plain) == 1 else f"{name}.{entry.name}": entry for entry in plain}


@dataclass(slots=True)
class TensorServer:
    """Entries that are served. Up to `running` calls run at the same time, and `queue` more wait. `body` is the most
    bytes of a request."""

    entries: Mapping[str, Entry]
    running: int
    queue: int
    body: int
    counts: dict[str, int] = field(default_factory=lambda: {"requests": 0, "refused": 0, "failed": 0})
    _open: int = 0
    _free: asyncio.Semaphore = field(init=False)

    def application(self) -> Starlette:
        self._free = asyncio.Semaphore(self.running)
        model = "/v2/models/{name}"
        routes = [
            Route("/v2", self.server),
            *(Route(path, self.health) for path in ("/health", "/v2/health/live", "/v2/health/ready")),
            Route("/metrics", self.metrics),
            *(
                Route(f"{start}{end}", handler, methods=[method])
                for start in (model, model + "/versions/{version}")
                for end, handler, method in (
                    ("", self.metadata, "GET"),
                    ("/ready", self.ready, "GET"),
                    ("/infer", self.infer, "POST"),
                )
            ),
        ]

        async def refuse(_request: Request, error: Exception) -> Response:
            assert isinstance(error, RequestError)
            return JSONResponse({"error": str(error)}, error.status)

        return Starlette(routes=routes, exception_handlers={RequestError: refuse})

    async def server(self, _request: Request) -> Response:
        return JSONResponse({"name": "nacre", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, _request: Request) -> Response:
        """The text format of Prometheus."""
        lines = []
        for name, value in self.counts.items():
            lines += [f"# TYPE nacre_{name}_total counter", f"nacre_{name}_total {value}"]
        lines += ["# TYPE nacre_requests_open gauge", f"nacre_requests_open {self._open}"]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def ready(self, request: Request) -> Response:
        self._entry(request)
        return JSONResponse({"ready": True})

    async def metadata(self, request: Request) -> Response:
        name, entry = self._entry(request)
        inputs, outputs = map(describe, entry.arguments), map(describe, entry.results)
        said = {"name": name, "versions": ["1"], "platform": "nacre"}
        return JSONResponse(said | {"inputs": list(inputs), "outputs": list(outputs)})

    async def infer(self, request: Request) -> Response:
        name, entry = self._entry(request)
        if self._open >= self.running + self.queue:
            self.counts["refused"] += 1
            raise RequestError(429, "too many requests wait; try again later")
        self._open += 1
        try:
            body, rest = await self._body(request)
            inputs = read_inputs(entry.arguments, body, rest)
            wanted = choose_outputs(entry.results, body)
            self.counts["requests"] += 1
            async with self._free:
                found = await asyncio.to_thread(_call, entry, inputs)
            sent = [
                write_output(result, tensor, wanted[result.name])
                for result, tensor in zip(entry.results, found, strict=True)
                if result.name in wanted
            ]
        except Exception as error:
            self.counts["failed"] += 1
            if isinstance(error, RequestError):
                raise
            raise RequestError(500, f"the request failed: {error}") from error
        finally:
            self._open -= 1
        answer: dict[str, Any] = {"model_name": name, "model_version": "1", "outputs": [said for said, _ in sent]}
        if isinstance(body.get("id"), str):
            answer["id"] = body["id"]
        binary = b"".join(content for _, content in sent)
        if not binary:
            return JSONResponse(answer)
        head = json.dumps(answer, separators=(",", ":")).encode()
        return Response(head + binary, headers={_LENGTH: str(len(head))}, media_type="application/octet-stream")

    def _entry(self, request: Request) -> tuple[str, Entry]:
        name, version = request.path_params["name"], request.path_params.get("version", "1")
        if name not in self.entries or version != "1":
            known = ", ".join(self.entries)
            raise RequestError(404, f"there is no model `{name}` of version {version}; there are {known} of version 1")
        return name, self.entries[name]

    async def _body(self, request: Request) -> tuple[dict[str, Any], bytes]:
        """Returns the JSON of a request, and the bytes behind it."""
        content = bytearray()
        try:
            async for part in request.stream():
                content += part
                if len(content) > self.body:
                    raise RequestError(413, f"the body is larger than {self.body} bytes")
        except ClientDisconnect:
            raise RequestError(400, "the body is not complete") from None
        said = request.headers.get(_LENGTH, str(len(content)))
        length = int(said) if said.isascii() and said.isdigit() else -1
        if not 0 <= length <= len(content):
            raise RequestError(400, f"the header {_LENGTH} is {said}, and the body has {len(content)} bytes")
        try:
            body = json.loads(content[:length])
        except (ValueError, RecursionError):
            raise RequestError(400, "the body is not JSON") from None
        if not isinstance(body, dict):
            raise RequestError(400, "the body is not a JSON object")
        return body, bytes(content[length:])


def _call(entry: Entry, inputs: list[Any]) -> list[Any]:
    try:
        found = entry(*inputs)
    except NacreError as error:
        raise RequestError(400, str(error)) from None
    return [found] if len(entry.results) == 1 else list(found)
