"""`nacre serve`."""

from __future__ import annotations

import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...runtime.loader import Model
from ..tools.generate.tokens import check_language_model, most_tokens
from ..tools.generate.vocabulary import read_vocabulary
from .build_options import Chosen, build_options
from .model_options import PATH
from .models import THREADS, open_model


@click.command("serve")
@click.argument("model", metavar="MODEL.so|MODEL.gguf|FOLDER", type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 for any free one.",
)
@click.option("--name", help="Name of the model in requests.  [default: the name of the file]")
@click.option(
    "--slots",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Maximum number of requests that run at the same time.",
)
@click.option(
    "--queue",
    type=click.IntRange(0),
    default=64,
    show_default=True,
    help="Maximum number of waiting requests; further ones get status 429.",
)
@click.option(
    "--capacity",
    type=click.IntRange(min=2),
    help="Capacity of a session in tokens, for prompt and answer.  [default: 2048, or the context of the model]",
)
@click.option(
    "--pool",
    type=click.IntRange(min=1),
    help="Tokens in the pool that all requests of a paged model share.  [default: slots * capacity]",
)
@click.option(
    "--body", type=click.IntRange(1), default=1 << 20, show_default=True, help="Maximum number of bytes of a request."
)
@click.option(
    "--lookup",
    type=click.IntRange(min=0, max=64),
    default=0,
    show_default=True,
    help="Maximum number of tokens drafted from earlier text, at temperature 0.",
)
@click.option(
    "--grace", type=click.IntRange(0), default=30, show_default=True, help="Seconds for open requests at shutdown."
)
@build_options
@THREADS
@click.pass_context
def serve_command(
    context: click.Context,
    model: Path,
    host: str,
    port: int,
    name: str | None,
    slots: int,
    queue: int,
    capacity: int | None,
    pool: int | None,
    body: int,
    lookup: int,
    grace: int,
    chosen: Chosen,
    threads: int,
) -> None:
    """Serve a compiled model over HTTP. A language model is served by the completions and chat protocol of OpenAI, any
    other model by the protocol KServe v2.

    \b
      nacre serve model.so --port 8000 --slots 8
      curl localhost:8000/v1/completions \\
        -d '{"model": "model", "prompt": "Once", "max_tokens": 8}'

    /v1/completions and /v1/chat/completions return a complete answer or a stream. /v1/models, /health and /metrics
    (Prometheus) report the models and the state of the server. A model compiled with --set page=32 computes the next
    tokens of all requests in one call, and keeps their keys and values in pages of 32 tokens of a common pool.
    Requests to other models take turns.

    For other models, /v2/models/NAME/infer calls the entries without states; --slots is the number of calls that run at
    the same time. An encoder of text with a tokenizer answers /v1/embeddings as well. SIGINT and SIGTERM end the server
    when the open requests are answered.
    """
    uvicorn = _load("uvicorn")
    loaded = open_model(context, model, chosen, None, threads)
    if "prefill" in loaded.entries:
        made = _language_application(loaded, name or model.stem, slots, queue, capacity, pool, body, lookup)
    else:
        made = _tensor_application(loaded, name or model.stem, slots, queue, body)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn handles these while it runs, and raises them again when all is done, which is no failure.
        signal.signal(number, lambda *_: None)
    try:
        uvicorn.run(
            made,
            host=host,
            port=port,
            log_level="info",
            timeout_graceful_shutdown=grace,
            access_log=False,
        )
    except SystemExit:
        # uvicorn has reported that it cannot listen, and exits with a code of its own.
        context.exit(1)


def _language_application(
    loaded: Model,
    name: str,
    slots: int,
    queue: int,
    capacity: int | None,
    pool: int | None,
    body: int,
    lookup: int,
) -> Any:
    turns, batches, application = _tool("turns"), _tool("batches"), _tool("application")
    check_language_model(loaded)
    vocabulary = read_vocabulary(loaded)
    size = capacity or min(most_tokens(loaded), 2048)
    given = {"slots": slots, "capacity": size, "queue": queue, "end": vocabulary.end}
    if batches.has_rows(loaded) and not lookup:
        made = batches.Batches(loaded, pool=pool or slots * size, **given)
    elif pool is not None:
        raise click.UsageError("--pool is for models compiled with --set page=..., and without --lookup")
    else:
        made = turns.Turns(loaded, lookup=lookup, **given)
    tokens = loaded.entries["sample"].arguments[0].shape[0]
    assert isinstance(tokens, int), tokens
    served = application.Server(name, made, vocabulary, tokens, body, int(time.time()))
    return served.application()


def _tensor_application(loaded: Model, name: str, slots: int, queue: int, body: int) -> Any:
    kserve = _tool("kserve")
    entries = kserve.served_entries(loaded, name)
    if not entries:
        message = f"model `{loaded.name}` has no entry without states that the protocol KServe v2 can call"
        raise DiagnosticError([Diagnostic("not-served", message)])
    calls, embeddings = _tool("calls").Calls(slots, queue, body), _tool("embeddings")
    beside = (
        embeddings.make_embeddings(loaded, name, calls, int(time.time())).routes() if embeddings.embeds(loaded) else []
    )
    return kserve.TensorServer(entries, calls, beside).application()


def _tool(name: str) -> Any:
    """The application needs a package that other commands do not."""
    _load("starlette")
    return import_module(f"..tools.serve.{name}", __package__)


def _load(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        message = f"serving needs the Python package `{package}`, which is not installed"
        raise DiagnosticError([Diagnostic("missing-package", message, help="pip install 'nacre[serve]'")]) from None
