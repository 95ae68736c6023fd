"""`nacre bench`: how long calls of a model take, and what memory they need."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ...dialect.types import Array
from ...runtime.loader import Entry
from ..measure.latency import PERCENTILES, Latency, measure_latency
from ..measure.machine import processor, threads_of
from .figures import headline, show_bytes, show_seconds
from .models import AT, ENTRY, INPUTS, MODEL_OR_ARTIFACT, THREADS, WEIGHTS, choose_entry, inputs_for, open_model
from .options import Chosen, build_options, progress


@click.command("bench")
@MODEL_OR_ARTIFACT
@INPUTS
@AT
@ENTRY
@WEIGHTS
@build_options
@THREADS
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=3.0,
    show_default=True,
    help="How long.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    help="Seconds before that.",
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON; also where the output is piped.")
@click.pass_context
def bench_command(
    context: click.Context,
    model: Path,
    inputs: Sequence[str],
    dims: dict[str, int],
    entry: str | None,
    weights: Path | None,
    chosen: Chosen,
    threads: int,
    seconds: float,
    warm_up: float,
    as_json: bool,
) -> None:
    """Measure how long calls of a model take, one after another, and what memory they need.

    \b
      nacre bench model.so
      nacre bench model.nacre --at B=1,T=128 --threads 1
      nacre bench model.so --input x=x.npy --seconds 10 --json

    Without --input, the inputs are made up: normal floats, integers 0 and 1. The model is loaded and called in a
    process of its own.
    """
    loaded = open_model(context, model, chosen, weights, threads)
    described = choose_entry(loaded, entry)
    arrays = inputs_for(described, inputs, dims)
    called = loaded.entries[described["name"]]
    called(*arrays)
    with progress(f"measuring {model}"):
        measured = measure_latency(
            loaded, called, arrays, weights=weights, threads=threads, warm_up=warm_up, seconds=seconds
        )
    used = threads_of(threads)
    if as_json or not sys.stdout.isatty():
        click.echo(json.dumps(_latency_data(called, arrays, used, measured), indent=2))
        return
    click.echo(headline(called, arrays, used))
    for name, value in _latency_rows(measured):
        click.echo(f"  {name:<12}{value}")


def _latency_rows(latency: Latency) -> Iterator[tuple[str, str]]:
    yield "calls", f"{len(latency.seconds)}, {1 / latency.mean:.4g} per second"
    yield "mean", show_seconds(latency.mean)
    yield "least", show_seconds(latency.seconds[0])
    for percent in PERCENTILES:
        yield f"p{percent:g}", show_seconds(latency.percentile(percent))
    yield "load", f"{show_seconds(latency.load)}, first call {show_seconds(latency.first)}"
    yield "workspace", show_bytes(latency.workspace)
    yield "weights", f"{show_bytes(latency.weights)}, the file {show_bytes(latency.file)}"
    yield "resident", f"{show_bytes(latency.resident)} more than before, {show_bytes(latency.peak)} the process at most"


def _latency_data(entry: Entry, inputs: Sequence[Array], threads: int, latency: Latency) -> dict[str, Any]:
    return {
        "entry": entry.name,
        "dims": entry.bind(*inputs),
        "threads": threads,
        "processor": processor(),
        "calls": len(latency.seconds),
        "per_second": 1 / latency.mean,
        "seconds": {
            "mean": latency.mean,
            "min": latency.seconds[0],
            "max": latency.seconds[-1],
            **{f"p{percent:g}": latency.percentile(percent) for percent in PERCENTILES},
        },
        "cold": {"load": latency.load, "first_call": latency.first},
        "bytes": {
            "workspace": latency.workspace,
            "weights": latency.weights,
            "file": latency.file,
            "resident": latency.resident,
            "peak_resident": latency.peak,
        },
    }
