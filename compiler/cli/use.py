"""Commands that run models: `run` and `test`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from ...dialect.types import Array
from ...runtime.loader import Model, load
from ..cache import load_cached
from ..files import replacing
from ..testing import Outcome, test_model
from .faults import INPUT_FAULT
from .options import MODEL, PATH, Chosen, build_options, progress
from .tensors import read_inputs, summary

_FOR_TEXT = ("level", "target", "checkpoint", "passes", "strict", "debug", "no_cache")
"""The options of `run` that mean something for a model file alone."""


def _open(context: click.Context, model: Path, chosen: Chosen, weights: Path | None) -> Model:
    """An artifact as it is; a model file through the cache."""
    if model.suffix == ".so":
        for option in context.command.params:
            given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
            if option.name in _FOR_TEXT and given:
                raise click.UsageError(f"{option.opts[0]} is for model files; {model} is compiled already")
        return load(model, weights=weights)
    if weights is not None:
        raise click.UsageError("--weights is for artifacts; --checkpoint names the weights of a model file")
    with progress(f"compiling {model}"):
        return load_cached(chosen.build(model))


def _choose_entry(model: Model, entry: str | None) -> Mapping[str, Any]:
    """How the artifact describes the entry that is meant."""
    entries: Any = model.describe()["entries"]
    by_name: dict[str, Mapping[str, Any]] = {e["name"]: e for e in entries}
    if entry is None:
        entry = next(iter(by_name)) if len(by_name) == 1 else "main"
    if entry not in by_name:
        raise click.BadParameter(f"the model has the entries {', '.join(by_name)}", param_hint="--entry")
    return by_name[entry]


def _save(folder: Path, results: Mapping[str, Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in results.items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array)


@click.command("run")
@click.argument("model", metavar="MODEL.nacre|MODEL.so", type=PATH)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A .npy file, FILE.npz:KEY, or JSON.")
@click.option("--output", metavar="FOLDER", type=PATH, help="A folder for NAME.npy of each result.")
@click.option("--entry", metavar="NAME", help="Which entry, if there are several and none is `main`.")
@click.option("--weights", type=PATH, help="The file of external weights, if not beside MODEL.so.")
@build_options
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON; also where the output is piped.")
@click.pass_context
def run_command(
    context: click.Context,
    model: Path,
    inputs: Sequence[str],
    output: Path | None,
    entry: str | None,
    weights: Path | None,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Call a model. A model file is compiled first, into a cache ($NACRE_CACHE, or the user's).

    \b
      nacre run model.so --input x=x.npy --output results/
      nacre run model.nacre --input 'x=[[1, 2, 3]]'
      nacre run model.nacre --input x=data.npz:images | jq .result.shape
    """
    loaded = _open(context, model, chosen, weights)
    described = _choose_entry(loaded, entry)
    made = loaded.entries[described["name"]](*read_inputs(inputs, described["arguments"]))
    names = [r["name"] for r in described["results"]]
    results = dict(zip(names, made if isinstance(made, tuple) else (made,), strict=True))
    if output is not None:
        _save(output, results)
    if as_json or not sys.stdout.isatty():
        click.echo(json.dumps({name: summary(array) for name, array in results.items()}, indent=2))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    for name, array in results.items():
        console.print(Text.assemble((name, "bold"), f" {array.dtype} {list(array.shape)}"))
        console.print(np.array2string(array, threshold=64, precision=6))


@click.command("test")
@MODEL
@build_options
@click.option("--json", "as_json", is_flag=True, help="The outcomes as JSON.")
def test_command(model: Path, chosen: Chosen, as_json: bool) -> int:
    """Run the tests and budgets that stand in a model file.

    \b
      nacre test model.nacre
      nacre test bert.nacre --checkpoint bert/ --json

    Every test runs twice, by the reference interpreter and by the compiled artifact. Exits with 1 if one fails.
    """
    with progress(f"compiling and testing {model}"):
        outcomes = test_model(chosen.build(model))
    if as_json:
        click.echo(json.dumps([asdict(o) for o in outcomes], indent=2))
    else:
        _print_outcomes(outcomes)
    return 0 if all(o.passed for o in outcomes) else INPUT_FAULT


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    for o in outcomes:
        word = click.style("passed", fg="green") if o.passed else click.style("failed", fg="red", bold=True)
        means = "" if o.means == "budget" else f" ({o.means})"
        click.echo(f"{word}  {o.model}: {o.title}{means}: {o.detail}")
    click.echo(f"{sum(o.passed for o in outcomes)} passed, {sum(not o.passed for o in outcomes)} failed")
