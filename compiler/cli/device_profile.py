"""`nacre profile --model`: the bounds of a GPU's data sheet, and the code of each launch, without that GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.text import Text

from ...dialect.wrapping import WIDTH, counted
from ...runtime.library import Library, open_library
from ...runtime.observe import evaluate, read_calls
from ..base.text_tables import Column
from ..report import usual_size
from ..targets.chips import CHIPS, Chip
from ..tools.profile.device_code import Code, modules_of, read_artifact
from ..tools.profile.device_model import Bound, bound_calls, count_operations
from .build_options import check_dims, progress
from .figures import show_bytes, show_seconds, titled_table
from .models import ChosenCall, pick_entry, read_dim

_TARGET = re.compile(r"^\.target (sm_\d+)", re.MULTILINE)


def model_call(call: ChosenCall, chip: Chip) -> tuple[str, dict[str, int], list[Bound]]:
    """Returns an entry, its dims and the bounds of its calls. A model file is compiled for the chip."""
    if call.path.suffix == ".so":
        return _model_artifact(call, call.path, chip)
    with TemporaryDirectory() as folder, progress(f"compiling {call.path}"):
        made = Path(folder) / "model.so"
        call.chosen.build(call.path).run(made)
        return _model_artifact(call, made, chip)


def _model_artifact(call: ChosenCall, artifact: Path, chip: Chip) -> tuple[str, dict[str, int], list[Bound]]:
    library = open_library(os.fspath(artifact))
    entry = pick_entry(library.description["entries"], call.entry)
    codes = read_artifact(artifact, chip.architecture)
    if not codes:
        raise click.UsageError(f"{call.path} has no code for GPUs: compile it with --target cuda")
    symbols = [read_dim(described) for described in entry["dims"]]
    check_dims(symbols, call.dims)
    dims = {**usual_dims(entry), **call.dims}
    return entry["name"], dims, list(bound_calls(read_calls(library, "device")[entry["name"]], codes, dims, chip))


def usual_dims(entry: Mapping[str, Any]) -> dict[str, int]:
    """Returns a representative size of each dim of an entry, by its description."""
    return {symbol.name: usual_size(symbol) for symbol in map(read_dim, entry["dims"])}


def device_calls(library: Library) -> list[dict[str, Any]]:
    """Returns the calls of each entry's kernels on a GPU as JSON, with their operations and bytes at usual sizes."""
    entries = library.description["entries"]
    calls = read_calls(library, "device")
    return [
        {
            "entry": entry["name"],
            "dims": dims,
            "calls": [
                {
                    "kernel": call.kernel,
                    "kind": call.kind,
                    "flops": count_operations(call, dims),
                    "bytes": evaluate(call.bytes, dims),
                }
                for call in calls[entry["name"]]
            ],
        }
        for entry, dims in ((entry, usual_dims(entry)) for entry in entries)
        if entry["name"] in calls
    ]


def call_tables(entries: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Yields a table of operations and bytes for each entry of `device_calls`."""
    columns = [Column("operations"), Column("bytes"), Column("kernel", is_name=True)]
    for entry in entries:
        sizes = ", ".join(f"{name}={size}" for name, size in entry["dims"].items())
        rows = [(f"{call['flops']:.4g}", show_bytes(call["bytes"]), call["kernel"]) for call in entry["calls"]]
        yield from titled_table(f"\nkernels of {entry['entry']}{f' at {sizes}' if sizes else ''}", columns, rows)


def model_data(entry: str, dims: Mapping[str, int], bounds: Sequence[Bound], chip: Chip) -> dict[str, Any]:
    """Returns the bounds as JSON."""
    kernels = [asdict(bound) | {"seconds": bound.seconds, "by": bound.by} for bound in bounds]
    total = sum(bound.seconds for bound in bounds)
    return {"model": chip.name, "entry": entry, "dims": dict(dims), "seconds": total, "kernels": kernels}


def model_tables(
    entry: str, dims: Mapping[str, int], bounds: Sequence[Bound], chip: Chip, width: int
) -> Iterator[Text]:
    total = sum(bound.seconds for bound in bounds)
    sizes = ", ".join(f"{name}={size}" for name, size in dims.items())
    count = sum(len(bound.code) for bound in bounds)
    # A call may choose some of them by its sizes.
    launches = f"{'at most ' * (count > 1)}{counted(count, 'launch', 'launches')}"
    yield Text(
        f"{entry}{f' at {sizes}' if sizes else ''}: at least {show_seconds(total)} on {chip.name},\n"
        f"in {launches}; {chip.bandwidth / 1e9:,.0f} GB/s, {chip.flops / 1e12:.4g} TFLOP/s, "
        f"{chip.rate('f16') / 1e12:.4g} in products of f16"
    )
    titles = ("bound", "share", "operations", "bytes", "bound by")
    rows = [
        (
            show_seconds(bound.seconds),
            f"{bound.seconds / total:.1%}" if total else "",
            f"{bound.flops:.4g}",
            show_bytes(bound.bytes),
            bound.by,
            bound.kernel,
        )
        for bound in sorted(bounds, key=lambda each: -each.seconds)
    ]
    yield from titled_table("\nkernels", [*map(Column, titles), Column("kernel", is_name=True)], rows, width)
    yield from launch_table([code for bound in bounds for code in bound.code], chip, width)


def device_chip(artifact: Path) -> Chip | None:
    """Returns a chip of the architecture that the first code for GPUs in an artifact is for, or an older one's."""
    named = next((found[1] for text in modules_of(artifact) if (found := _TARGET.search(text))), None)
    chips = sorted(CHIPS.values(), key=lambda chip: chip.architecture)
    return None if named is None else next((c for c in reversed(chips) if c.architecture <= named), chips[0])


def launch_table(codes: Sequence[Code], chip: Chip, width: int = WIDTH) -> Iterator[Text]:
    """Yields the table of launches; registers are blank where ptxas is not at hand."""
    titles = ("threads", "regs", "spilled", "shared", "active", "mma", "bar", "reads", "writes")
    rows = []
    for code in dict.fromkeys(codes):
        used, spilled, occupancy = "", "", ""
        if code.registers is not None:
            used, spilled = str(code.registers.used), str(code.registers.spilled)
            occupancy = f"{chip.occupancy(code.threads, code.registers.used, code.shared):.0%}"
        accesses = (" ".join(f"{count}x{size}" for size, count in each) for each in (code.reads, code.writes))
        counts = (str(code.products), str(code.barriers))
        sizes = (str(code.threads), used, spilled, show_bytes(code.shared), occupancy)
        rows.append((*sizes, *counts, *accesses, code.name))
    columns = [*map(Column, titles), Column("launch", is_name=True)]
    yield from titled_table(f"\nlaunches on {chip.name}", columns, rows, width)
