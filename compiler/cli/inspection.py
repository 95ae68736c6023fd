"""`nacre inspect`: prints the description of an artifact without calling it or reading its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.text import Text

from ...dialect.wrapping import counted, fit
from ...runtime.library import open_library
from ..artifact.needs import read_needs
from ..base.text_tables import Column
from ..targets.ptxas import describe_device_code
from ..tools.profile.device_code import read_artifact
from ..tools.stored_trees import StoredTrees, read_trees
from .device_profile import call_tables, device_calls, device_chip, launch_table
from .figures import titled_table
from .model_options import PATH


@click.command("inspect")
@click.argument("artifact", metavar="MODEL.so", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print the description as JSON.")
def inspect_command(artifact: Path, as_json: bool) -> None:
    """Describe an artifact: entries, memory, target, libraries.

    The description contains the entries with their types and dims, the formula of the workspace, the stored weights,
    the CPU variants, the loops compiled to one function, and the libraries and symbol versions that the artifact
    requires. For tree ensembles, it contains the numbers of trees, nodes and leaves, the depths, and the operators that
    follow the trees. For GPUs, it contains the operations and bytes of each kernel at usual sizes of the dims, the
    threads, shared memory and instructions of each launch, and registers and occupancy where ptxas is installed.

    \b
      nacre inspect model.so
      nacre inspect model.so --json
    """
    library = open_library(os.fspath(artifact))
    description = library.description
    description["needs"] = read_needs(artifact)
    chip = device_chip(artifact)
    trees = read_trees(artifact)
    if trees.operators:
        described = {"ensembles": [e.extent() for e in trees.ensembles], "operators": trees.operators}
        description["trees"] = described
    launches = [] if chip is None else read_artifact(artifact, chip.architecture)
    if launches:
        description["launches"] = [asdict(code) for code in launches]
        description["device_calls"] = device_calls(library)
    if as_json:
        click.echo(json.dumps(description, indent=2))
        return
    # Markup and emoji are disabled, since rich would interpret `f32[b]` and a name with colons.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text.assemble((description["name"], "bold"), f"  {artifact.stat().st_size:,} bytes"))
    for part in (
        *_head(description),
        *_entries(description),
        *_session(description),
        *_trees(trees),
        *_weights(description),
    ):
        console.print(fit(part) if isinstance(part, str) else part)
    if chip is not None:
        for part in (*call_tables(description.get("device_calls", ())), *launch_table(launches, chip)):
            console.print(part)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    return titled_table(title, [Column(column, is_name=True) for column in columns], rows)


def _head(description: Mapping[str, Any]) -> Iterator[RenderableType]:
    for key in ("compiler", "abi", "target", "needs", "options", "source_hash"):
        value = description[key]
        if key == "target":
            levels = (level["name"] + (f" ({level['cpu']})" * (level["name"] == "native")) for level in value["levels"])
            value = f"{value['triple']}, {', '.join(levels)}"
        elif key == "needs":
            value = ", ".join(f"{library} ({version})" if version else library for library, version in value.items())
        elif isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, ""))
        yield f"  {key}: {value}"
    for level in description["target"]["levels"]:
        for left in level.get("untiled", ()):
            yield f"  plain loops for {level['name']}: {left['kernel']}: {left['reason']}"
        for loop in level.get("loops", ()):
            yield f"  {level['name']}: {loop}"
    device = description["target"].get("device", {"levels": ()})
    for name in device["levels"]:
        yield f"  {name}: {describe_device_code(device['cubins'].get(name, ''))}"
    for left in device.get("untiled", ()):
        yield f"  one thread of {left['target']}: {left['kernel']}: {left['reason']}"


def _entries(description: Mapping[str, Any]) -> Iterator[RenderableType]:
    for entry in description["entries"]:
        kinds = ("arguments", "results")
        rows = [(kind.removesuffix("s"), item["name"], item["type"]) for kind in kinds for item in entry[kind]]
        yield from _table(f"entry {entry['name']}", ("", "name", "type"), rows)
        for dim in entry["dims"]:
            multiple = f" multiple {dim['multiple']}" if dim["multiple"] != 1 else ""
            yield f"  dim {dim['name']} in {dim['low']}..{'' if dim['high'] is None else dim['high']}{multiple}"
        yield from (f"  {constraint}" for constraint in entry["constraints"])
        yield f"  workspace: {entry['workspace']} bytes"
        if "states" in entry:
            states = description["session"]["states"]
            yield f"  states: {', '.join(states[number]['name'] for number in entry['states'])}"


def _session(description: Mapping[str, Any]) -> Iterator[RenderableType]:
    if "session" not in description:
        return
    session = description["session"]
    rows = [(state["name"], state["type"], state["initial"]) for state in session["states"]]
    yield from _table(counted(len(rows), "state"), ("name", "type", "initial"), rows)
    dims = ", ".join(d["name"] for d in session["dims"])
    yield f"  session of {dims or 'no dims'}: {session['bytes']} bytes"


def _trees(trees: StoredTrees) -> Iterator[RenderableType]:
    yield from trees.lines()


def _weights(description: Mapping[str, Any]) -> Iterator[RenderableType]:
    weights = description["weights"]
    rows = [(item["name"], item["type"]) for item in weights["tensors"]]
    if rows:
        yield from _table(
            f"{counted(len(rows), 'weight')}, {weights['bytes']:,} bytes, {weights['placement']}",
            ("name", "type"),
            rows,
        )
    else:
        yield "no weights"
