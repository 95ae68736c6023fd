"""`nacre profile`: attributes the time of a call to kernels and source lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ...dialect.wrapping import fit
from ...runtime.observe import evaluate
from ..base.files import check_writable, write_whole
from ..base.text_tables import Column
from ..options import LONGEST
from ..targets.chips import CHIPS, Chip
from ..tools.profile.device_peaks import Peaks, chip_peaks, device_name, find_chip
from ..tools.profile.machine import Peak, find_peak, processor, threads_of
from ..tools.profile.profile import (
    CallTime,
    KernelTime,
    LineTime,
    Profile,
    count_products,
    ideal_seconds,
    profile_entry,
)
from ..tools.profile.trace import trace_events
from .build_options import progress
from .device_profile import model_call, model_data, model_tables
from .figures import headline, show_seconds, titled_table
from .model_options import PATH
from .models import ChosenCall, OpenCall, call_options
from .number_ranges import NumberRange

_MEASURED, _ANEW = "measured", "measure"


def _read_peak(context: click.Context, parameter: click.Parameter, value: str) -> Peak | str:
    if value in (_MEASURED, _ANEW):
        return value
    try:
        flops, size = map(float, value.split(","))
    except ValueError:
        flops = size = 0.0
    if not (flops > 0 and size > 0):
        raise click.BadParameter(f"`{value}` is neither `{_ANEW}` nor GFLOP/s and GB/s, as in `140,20`")
    return Peak(flops * 1e9, size * 1e9)


@click.command("profile")
@call_options
@click.option(
    "--seconds",
    type=NumberRange(0, LONGEST),
    default=1.0,
    show_default=True,
    help="Duration of the measurement; at least 3 calls.",
)
@click.option(
    "--peak",
    metavar="GFLOP/S,GB/S",
    default=_MEASURED,
    callback=_read_peak,
    help=f"Peak performance. By default, that of the CPU is measured once; `{_ANEW}` repeats the measurement. "
    "That of a GPU is the one of its data sheet.",
)
@click.option(
    "--model",
    "chip",
    type=click.Choice(sorted(CHIPS)),
    help="Instead of calling the model, bound its time on this GPU by the data sheet, and describe its launches.",
)
@click.option("--trace", metavar="FILE", type=PATH, help="Write a trace for ui.perfetto.dev or about:tracing.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
@click.pass_context
def profile_command(
    context: click.Context,
    call: ChosenCall,
    seconds: float,
    peak: Peak | str,
    chip: str | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Attribute the time of a call to kernels and source lines.

    \b
      nacre profile model.so --input x=x.npy
      nacre profile model.nacre --at B=1,T=128 --threads 1
      nacre profile model.so --trace trace.json --json
      nacre profile model.nacre --target cuda --at B=1,T=128 --model h100

    For each kernel, the report shows the operations and bytes per second as shares of the machine's peak (for products
    of bf16 or i8, the peak of such products), whether it is compute or memory bound, and the load balance of threads.
    Without --input, inputs are random: normally distributed floats, integers 0 and 1.

    On a GPU, times are those of events around each kernel: without the copies of arguments and results, and for a short
    kernel with the time of its launch.

    With --model, no GPU is needed. The bound of a kernel is the longer one of its operations at their peak rate and of
    its bytes at that of memory. The registers of a launch are known where ptxas is installed, or named by $NACRE_PTXAS.
    """
    if chip is not None:
        _show_model(call, CHIPS[chip], as_json)
        return
    if trace is not None:
        check_writable(trace)
    opened = call.open(context)
    used = threads_of(call.threads) if opened.model.device == "cpu" else 0
    known = _find_peaks(opened, peak, used)
    with progress(f"measuring {call.path}"):
        profile = profile_entry(opened.model, opened.entry, opened.inputs, used, seconds, opened.restart)
    if trace is not None:
        write_whole(trace, json.dumps(trace_events(profile.recording, tuple(opened.model.entries))))
    if as_json:
        click.echo(json.dumps(_profile_data(profile, known), indent=2))
        return
    # Markup and emoji are disabled, since rich would interpret `f32[b]` and a name with colons.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(fit(headline(opened.entry, opened.inputs, used, opened.model.device)))
    for part in _profile_tables(profile, known, call.path.parent, console.width):
        console.print(part)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The processor of a call, its peak for the whole call and for each kernel; None: unknown."""

    processor: str
    peak: Peak | None
    peaks: Peaks


def _find_peaks(opened: OpenCall, given: Peak | str, threads: int) -> _Machine:
    """Returns the peaks of the CPU's threads or of the GPU; `given` is `--peak`."""
    device = opened.model.device
    name = processor() if device == "cpu" else device_name(device)
    if not isinstance(given, str):
        return _Machine(name, given, lambda kernel: given)
    if device == "cpu":
        with progress("measuring the machine"):
            measured = find_peak(threads, anew=given == _ANEW)
        return _Machine(name, measured, lambda kernel: measured)
    if given == _ANEW:
        raise click.UsageError("the peak of a GPU is not measured: `--peak GFLOP/S,GB/S` gives it")
    chip = find_chip(name)
    if chip is None:
        return _Machine(name, None, lambda kernel: None)
    peak = Peak(chip.flops, chip.bandwidth, chip.products)
    return _Machine(name, peak, chip_peaks(Path(opened.model.path), chip))


def _show_model(call: ChosenCall, chip: Chip, as_json: bool) -> None:
    entry, dims, bounds = model_call(call, chip)
    if as_json:
        click.echo(json.dumps(model_data(entry, dims, bounds, chip), indent=2))
        return
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for part in model_tables(entry, dims, bounds, chip, console.width):
        console.print(part)


def _profile_tables(profile: Profile, machine: _Machine, folder: Path, width: int) -> Iterator[Text]:
    flops = sum(k.flops for k in profile.kernels()) / profile.seconds
    peak, of, most = machine.peak, "", f"; the peak of `{machine.processor}` is not known, --peak gives it"
    if peak is not None:
        of, most = f" of {peak.flops / 1e9:.4g}", f", memory read at {peak.bytes / 1e9:.4g} GB/s at most"
    yield Text(
        f"{show_seconds(profile.seconds)} a call, the mean of the faster half of {profile.runs};\n"
        f"{show_seconds(profile.outside)} of it in no kernel;\n"
        f"{flops / 1e9:.4g} GFLOP/s{of}{most}"
    )
    is_shared = ("balance",) if profile.threads else ()
    titles = ("time", "share", "calls", "GFLOP/s", "peak", "GB/s", "peak", "bound by", *is_shared)
    rows = [
        (
            show_seconds(k.seconds),
            f"{k.seconds / profile.seconds:.1%}",
            str(k.calls),
            *_rates(k, machine.peaks(k.kernel)),
            *(f"{k.balance:.0%}" for _ in is_shared),
            _operators(k),
        )
        for k in profile.kernels()
    ]
    yield from titled_table("\nkernels", [*map(Column, titles), Column("kernel", is_name=True)], rows, width)
    lines = [
        (
            show_seconds(line.seconds),
            f"{line.seconds / profile.seconds:.1%}",
            line.at,
            _source(folder, line) or ", ".join(line.operators),
        )
        for line in profile.lines()
    ]
    columns = [Column("time"), Column("share"), Column("line", is_name=True), Column("", is_name=True)]
    yield from titled_table("\nlines", columns, lines, width)


def _rates(k: KernelTime, peak: Peak | None) -> tuple[str, str, str, str, str]:
    """Returns the operations and bytes per second, each with its share of the peak, and the limit of the kernel."""
    flops, size = (f"{count / k.seconds / 1e9:.4g}" if k.seconds else "0" for count in (k.flops, k.bytes))
    if peak is None:
        return flops, "", size, "", ""
    return flops, f"{k.compute(peak):.0%}", size, f"{k.bandwidth(peak):.0%}", k.bound(peak)


def _operators(kernel: KernelTime) -> str:
    return ", ".join(dict.fromkeys(o.op for o in kernel.operations)) or kernel.kernel


def _source(folder: Path, line: LineTime) -> str:
    """Returns the text of the line, if the model's file exists."""
    file, _, number = line.at.rpartition(":")
    try:
        return (folder / file).read_text().splitlines()[int(number) - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""


def _profile_data(profile: Profile, machine: _Machine) -> dict[str, Any]:
    peak = machine.peak
    return {
        "entry": profile.entry,
        "dims": dict(profile.dims),
        "threads": profile.threads,
        "processor": machine.processor,
        "peak": peak
        and {
            "flops_per_second": peak.flops,
            "bytes_per_second": peak.bytes,
            "products_per_second": dict(peak.narrow),
        },
        "runs": profile.runs,
        "seconds": profile.seconds,
        "outside_kernels": profile.outside,
        "kernels": [_kernel_data(k, profile, machine.peaks(k.kernel)) for k in profile.kernels()],
        "lines": [
            {
                "at": line.at,
                "seconds": line.seconds,
                "share": line.seconds / profile.seconds,
                "flops": line.flops,
                "operators": list(line.operators),
            }
            for line in profile.lines()
        ],
        "calls": [_call_data(c, profile.dims, machine.peaks(c.call.kernel)) for c in profile.calls],
    }


def _call_data(c: CallTime, dims: Mapping[str, int], peak: Peak | None) -> dict[str, Any]:
    flops = sum(evaluate(o.flops, dims) for o in c.call.operations)
    return {
        "number": c.call.number,
        "kernel": c.call.kernel,
        "seconds": c.seconds,
        "busy": list(c.busy),
        "flops": flops,
        "ideal_seconds": peak and ideal_seconds(flops, count_products(c.call.operations, dims), peak),
        "bytes": evaluate(c.call.bytes, dims),
        "values": [v.name for v in c.call.values],
    }


def _kernel_data(k: KernelTime, profile: Profile, peak: Peak | None) -> dict[str, Any]:
    return {
        "kernel": k.kernel,
        "kind": k.kind,
        "calls": k.calls,
        "seconds": k.seconds,
        "share": k.seconds / profile.seconds,
        "flops": k.flops,
        "products": dict(k.products),
        "bytes": k.bytes,
        "compute_share": peak and k.compute(peak),
        "bandwidth_share": peak and k.bandwidth(peak),
        "bound": peak and k.bound(peak),
        "threads": k.threads,
        "balance": k.balance,
        "operations": [{"op": o.op, "scope": o.scope, "at": o.at} for o in k.operations],
    }
