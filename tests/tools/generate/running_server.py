"""A server in a thread, and the answers that it should give."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nacre
import uvicorn
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.generate.vocabulary import Vocabulary, read_vocabulary
from nacre.compiler.tools.serve.application import Server
from nacre.compiler.tools.serve.batches import Batches
from nacre.compiler.tools.serve.engine import Engine, Finished, Job, Sampled
from nacre.compiler.tools.serve.turns import Turns
from starlette.applications import Starlette
from talker import CONTEXT, LONGEST, TOKENS

BODY = 4000
"""The maximum number of bytes of a request."""


class ServerThread:
    """An application that is served on a free port, in a thread."""

    def __init__(self, application: Starlette) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        config = uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=20)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.socket])))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()


class Running(ServerThread):
    """A server of the talker. `changed` are fields of its vocabulary that differ from those of the file."""

    def __init__(self, path: Path, engine: str, capacity: int = CONTEXT, **changed: Any) -> None:
        model = nacre.load(path)
        self.vocabulary = replace(read_vocabulary(model), **changed)
        options = {"slots": 3, "capacity": capacity, "queue": 16, "end": self.vocabulary.end}
        self.engine: Engine
        if engine == "turns":
            self.engine = Turns(model, lookup=0, **options)
        else:
            self.engine = Batches(model, pool=2 * capacity, **options)
        server = Server("talker", self.engine, self.vocabulary, len(TOKENS), BODY, 0)
        super().__init__(server.application())

    def call(self, path: str, body: Any = None, method: str = "POST") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, content)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def complete(self, prompt: Any, **given: Any) -> dict[str, Any]:
        body = {"model": "talker", "prompt": prompt, "max_tokens": 12, "temperature": 0} | given
        status, text = self.call("/v1/completions", body)
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found


class Scripted(ServerThread):
    """A server whose model always gives the same answer."""

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        ids = vocabulary.tokenizer.encode(text.replace(" ", "\u2581"), add_special_tokens=False).ids
        super().__init__(Server("talker", _Script(ids), vocabulary, len(TOKENS), BODY, 0).application())


class _Script(Engine):
    """Answers a job when it is submitted, so that it admits none and runs no rounds."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(LONGEST, 1, 9)
        self._ids = ids

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            for token in self._ids:
                job.emit(Sampled(token))
            job.emit(Finished("stop"))

    def stop(self) -> None:
        pass

    def _jobs(self) -> list[Job]:
        return []

    def _admit(self, job: Job) -> bool:
        raise NotImplementedError

    def _round(self) -> None:
        raise NotImplementedError


def expected(talker: Path, prompt: str, count: int = 12, sampling: Sampling | None = None) -> str:
    """The text of a generator of its own."""
    model = nacre.load(talker)
    vocabulary = read_vocabulary(model)
    ids = vocabulary.encode(prompt)
    sampling = sampling or Sampling(temperature=0, top_k=0, top_p=1, min_p=0)
    drawn = Generator(model, CONTEXT).generate(ids, count, sampling, vocabulary.end)
    return "".join(vocabulary.stream(ids, drawn))
