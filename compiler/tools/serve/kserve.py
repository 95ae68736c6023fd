"""The application for models of plain tensors: the protocol KServe v2 with its extension for binary data.

Each entry without states is a model. It has the name of the artifact if there is one such entry, and else the name of
the artifact, a dot and its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ....runtime.loader import Entry, Model
from ...version import __version__
from .calls import LENGTH, Calls, call_entry, read_body
from .fields import RequestError
from .tensors import DATATYPES, choose_outputs, describe, read_inputs, write_output


def served_entries(model: Model, name: str) -> dict[str, Entry]:
    """Returns the entries that the protocol can call, by their names in it."""
    plain = [
        entry
        for entry in model.entries.values()
        if not entry.states and all(a.dtype in DATATYPES for a in (*entry.arguments, *entry.results))
    ]
    return {name if len(plain) == 1 else f"{name}.{entry.name}": entry for entry in plain}


@dataclass(frozen=True, slots=True)
class TensorServer:
    """Entries that are served, and routes of another protocol beside them."""

    entries: Mapping[str, Entry]
    calls: Calls
    beside: Sequence[Route] = ()

    def application(self) -> Starlette:
        model = "/v2/models/{name}"
        routes = [
            *self.beside,
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

        async def refuse(request: Request, error: Exception) -> Response:
            assert isinstance(error, RequestError)
            other = any(request.url.path == route.path for route in self.beside)
            return JSONResponse(error.body if other else {"error": str(error)}, error.status)

        return Starlette(routes=routes, exception_handlers={RequestError: refuse})

    async def server(self, _request: Request) -> Response:
        return JSONResponse({"name": "nacre", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, _request: Request) -> Response:
        """The text format of Prometheus."""
        lines = []
        for name, value in self.calls.counts.items():
            lines += [f"# TYPE nacre_{name}_total counter", f"nacre_{name}_total {value}"]
        lines += ["# TYPE nacre_requests_open gauge", f"nacre_requests_open {self.calls.open}"]
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
        async with self.calls.admitted():
            body, rest = await read_body(request, self.calls.body)
            inputs = read_inputs(entry.arguments, body, rest)
            wanted = choose_outputs(entry.results, body)
            found = await self.calls.run(lambda: call_entry(entry, inputs))
            sent = [
                write_output(result, tensor, wanted[result.name])
                for result, tensor in zip(entry.results, found, strict=True)
                if result.name in wanted
            ]
        answer: dict[str, Any] = {"model_name": name, "model_version": "1", "outputs": [said for said, _ in sent]}
        if isinstance(body.get("id"), str):
            answer["id"] = body["id"]
        binary = b"".join(content for _, content in sent)
        if not binary:
            return JSONResponse(answer)
        head = json.dumps(answer, separators=(",", ":")).encode()
        return Response(head + binary, headers={LENGTH: str(len(head))}, media_type="application/octet-stream")

    def _entry(self, request: Request) -> tuple[str, Entry]:
        name, version = request.path_params["name"], request.path_params.get("version", "1")
        if name not in self.entries or version != "1":
            known = ", ".join(self.entries)
            raise RequestError(404, f"there is no model `{name}` of version {version}; there are {known} of version 1")
        return name, self.entries[name]
