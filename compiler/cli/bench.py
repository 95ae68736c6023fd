"""`nacre bench`: measures the latency and the memory of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...dialect.types import Array
from ...dialect.wrapping import fit
from ...runtime.loader import Entry
from ..options import LONGEST
from ..tools.profile.device_peaks import device_name
from ..tools.profile.latency import PERCENTILES, Latency, measure_latency
from ..tools.profile.machine import processor, threads_of
from .build_options import progress
from .figures import headline, show_bytes, show_seconds
from .models import ChosenCall, call_options
from .number_ranges import SECONDS, NumberRange


@click.command("bench")
@call_options
@click.option(
    "--seconds",
    type=SECONDS,
    default=3.0,
    show_default=True,
    help="Duration of the measurement.",
)
@click.option(
    "--warm-up",
    type=NumberRange(0, LONGEST),
    default=0.5,
    show_default=True,
    help="Duration of the warm-up, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def bench_command(context: click.Context, call: ChosenCall, seconds: float, warm_up: float, as_json: bool) -> None:
    """Measure the latency of calls and the memory of a model.

    \b
      nacre bench model.so
      nacre bench model.nacre --at B=1,T=128 --threads 1
      nacre bench model.so --input x=x.npy --seconds 10 --json

    Without --input, inputs are random: normally distributed floats, integers 0 and 1. The model is loaded and called in
    a separate process. Before each call, states get their initial values, or those of --states; the time excludes this.
    """
    opened = call.open(context)
    with progress(f"measuring {call.path}"):
        measured = measure_latency(
            opened.model,
            opened.entry,
            opened.inputs,
            weights=call.weights,
            states=call.states,
            threads=call.threads,
            warm_up=warm_up,
            seconds=seconds,
        )
    used = threads_of(call.threads)
    if as_json:
        device = opened.model.device
        name = processor() if device == "cpu" else device_name(device)
        data = {"device": device, "processor": name} | _latency_data(opened.entry, opened.inputs, used, measured)
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(fit(headline(opened.entry, opened.inputs, used, opened.model.device)))
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
    if latency.states:
        yield "states", show_bytes(latency.states)
    yield "weights", f"{show_bytes(latency.weights)}, the file {show_bytes(latency.file)}"
    yield "resident", f"{show_bytes(latency.resident)} more than before, {show_bytes(latency.peak)} the process at most"


def _latency_data(entry: Entry, inputs: Sequence[Array], threads: int, latency: Latency) -> dict[str, Any]:
    return {
        "entry": entry.name,
        "dims": entry.bind(*inputs),
        "threads": threads,
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
            "states": latency.states,
            "weights": latency.weights,
            "file": latency.file,
            "resident": latency.resident,
            "peak_resident": latency.peak,
        },
    }
