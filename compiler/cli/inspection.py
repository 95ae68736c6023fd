"""`nacre inspect`: what an artifact says of itself, without calling it."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ...runtime.loader import load


@click.command("inspect")
@click.argument("artifact", metavar="MODEL.so", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The artifact's own JSON description.")
def inspect_command(artifact: Path, as_json: bool) -> None:
    """Show an artifact's entries, shapes, dims, workspace formulas, parameters, target and versions.

    Prints JSON where the output is piped.
    """
    description = load(artifact).describe()
    console = Console()
    if as_json or not console.is_terminal:
        click.echo(json.dumps(description, indent=2))
        return
    console.print(f"[bold]{description['name']}[/bold]  {artifact.stat().st_size:,} bytes")
    for key in ("compiler", "abi", "target", "options", "source_hash"):
        value = description[key]
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        console.print(f"  {key}: {text}", highlight=False)
    for entry in description["entries"]:
        table = Table("", "name", "type", title=f"entry {entry['name']}", title_justify="left", title_style="bold")
        for kind in ("arguments", "results"):
            for item in entry[kind]:
                table.add_row(kind[:-1], item["name"], item["type"])
        console.print(table)
        for dim in entry["dims"]:
            multiple = f" multiple {dim['multiple']}" if dim["multiple"] != 1 else ""
            high = "" if dim["high"] is None else dim["high"]
            console.print(f"  dim {dim['name']} in {dim['low']}..{high}{multiple}", highlight=False)
        for constraint in entry["constraints"]:
            console.print(f"  {constraint}", highlight=False)
        console.print(f"  workspace: {entry['workspace']} bytes", highlight=False)
    weights = description["weights"]
    title = f"{len(weights['tensors'])} weights, {weights['bytes']:,} bytes, {weights['placement']}"
    table = Table("name", "type", title=title, title_justify="left", title_style="bold")
    for item in weights["tensors"]:
        table.add_row(item["name"], item["type"])
    console.print(table)
