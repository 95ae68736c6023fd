"""Commands that run models: `run` and `test`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from rich.console import Console

from ...runtime.loader import Model, load
from ..budgets import Costs
from ..cache import build_cached
from ..dumps import Dumps
from ..testing import run_budgets, run_tests
from .build import MODEL, build_options, make_build, progress
from .faults import INPUT_FAULT
from .tensors import read_inputs, summary


def _open(
    model: Path, level: int, target: str, checkpoint: Path | None, passes: str | None, weights: Path | None
) -> Model:
    """An artifact as it is; a model file through the cache."""
    if model.suffix == ".so":
        return load(model, weights=weights)
    with progress(f"compiling {model}"):
        return load(build_cached(make_build(model, level, target, checkpoint, passes, Dumps())))


@click.command("run")
@click.argument("model", metavar="MODEL.nacre|MODEL.so", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A .npy file, FILE.npz:KEY, or JSON.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for NAME.npy of each result."
)
@click.option("--entry", help="Which entry, if there are several.")
@click.option(
    "--weights", type=click.Path(path_type=Path), help="The file of external weights, if not beside MODEL.so."
)
@build_options
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON; also where the output is piped.")
def run_command(
    model: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    entry: str | None,
    weights: Path | None,
    level: int,
    target: str,
    checkpoint: Path | None,
    passes: str | None,
    as_json: bool,
) -> None:
    """Call a model. A model file is compiled first, into a cache.

    \b
      nacre run model.so --input x=x.npy --output results/
      nacre run model.nacre --input 'x=[[1, 2, 3]]'
    """
    loaded = _open(model, level, target, checkpoint, passes, weights)
    names = list(loaded.entries)
    chosen = entry or ("main" if "main" in names else names[0])
    if chosen not in names or (entry is None and len(names) > 1 and "main" not in names):
        raise click.BadParameter(f"the model has the entries {', '.join(names)}", param_hint="--entry")
    description = next(e for e in loaded.describe()["entries"] if e["name"] == chosen)
    results = loaded.entries[chosen](*read_inputs(inputs, description["arguments"]))
    named = dict(
        zip(
            [r["name"] for r in description["results"]],
            results if isinstance(results, tuple) else [results],
            strict=True,
        )
    )
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, array in named.items():
            temporary = output / f".{name}.npy"
            np.save(temporary, array)
            os.replace(temporary, output / f"{name}.npy")
    console = Console()
    if as_json or not console.is_terminal:
        click.echo(json.dumps({name: summary(array) for name, array in named.items()}, indent=2))
        return
    for name, array in named.items():
        console.print(f"[bold]{name}[/bold] {array.dtype} {list(array.shape)}", highlight=False)
        console.print(np.array2string(array, threshold=64, precision=6), highlight=False)


@click.command("test")
@MODEL
@build_options
@click.option("--json", "as_json", is_flag=True, help="The outcomes as JSON.")
def test_command(
    model: Path, level: int, target: str, checkpoint: Path | None, passes: str | None, as_json: bool
) -> int:
    """Run the tests and budgets that stand in a model file.

    Every test runs twice, by the reference interpreter and by the compiled artifact. Exits with 1 if one fails.
    """
    build = make_build(model, level, target, checkpoint, passes, Dumps())
    reader = build.read_parameters()
    with TemporaryDirectory(prefix="nacre-test-") as folder:
        path = Path(folder) / f"{build.elaborated.module.name}.so"
        with progress(f"compiling {model}"):
            build.run(path)
        loaded = load(path)
        module = build.optimize()
        costs = Costs(module, build.lower(module))
        outcomes = [*run_tests(build.elaborated, reader, loaded), *run_budgets(build.elaborated, costs, loaded, path)]
    if as_json:
        click.echo(json.dumps([asdict(o) for o in outcomes], indent=2))
    else:
        for o in outcomes:
            word = click.style("passed", fg="green") if o.passed else click.style("failed", fg="red", bold=True)
            click.echo(f"{word}  {o.model}: {o.title} ({o.means}): {o.detail}")
        click.echo(f"{sum(o.passed for o in outcomes)} passed, {sum(not o.passed for o in outcomes)} failed")
    return 0 if all(o.passed for o in outcomes) else INPUT_FAULT
