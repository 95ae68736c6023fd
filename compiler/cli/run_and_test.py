"""Commands that run models: `run` and `test`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.text import Text

from ...dialect.types import Array
from ...dialect.wrapping import fit, wrap
from ...runtime.loader import Session
from ..base.files import replacing
from ..checking import read_model
from ..model.parameters import open_parameters
from ..tools.gradients import test_gradients
from ..tools.model_tests import Outcome, test_model
from .build_options import MODEL, Chosen, build_options, from_option, progress, read_dims
from .model_options import PATH
from .models import ENTRY, INPUTS, MODEL_OR_ARTIFACT, WEIGHTS, choose_entry, open_model, open_session
from .reporting import INPUT_ERROR
from .tensors import read_inputs, summary


def _save(folder: Path, results: Mapping[str, Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in results.items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array)


@click.command("run")
@MODEL_OR_ARTIFACT
@INPUTS
@click.option("--output", metavar="FOLDER", type=PATH, help="Write each result to NAME.npy in this folder.")
@ENTRY
@WEIGHTS
@click.option("--at", "dims", metavar="S=64", callback=read_dims, help="Dims of the session of a model with states.")
@build_options
@from_option
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
@click.pass_context
def run_command(
    context: click.Context,
    model: Path,
    inputs: Sequence[str],
    output: Path | None,
    entry: str | None,
    weights: Path | None,
    dims: Mapping[str, int],
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Call a model. A model file is compiled first and cached in $NACRE_CACHE or the user's cache folder. States have
    their initial values, and are printed as they are after the call.

    \b
      nacre run model.so --input x=x.npy --output results/
      nacre run model.nacre --input 'x=[[1, 2, 3]]'
      nacre run model.nacre --input x=data.npz:images --json
      nacre run 34-assembly.s --from assembly --checkpoint bert/ --input x=x.npy
    """
    loaded = open_model(context, model, chosen, weights)
    described = choose_entry(loaded, entry)
    arrays = read_inputs(inputs, described["arguments"])
    if dims and "states" not in described:
        raise click.UsageError("--at is for models with states; the inputs determine the other dims")
    session = open_session(loaded, described, arrays, dims)
    made = session.entries[described["name"]](*arrays)
    names = [r["name"] for r in described["results"]]
    results = dict(zip(names, made if isinstance(made, tuple) else (made,), strict=True))
    if isinstance(session, Session):
        results |= {f"state.{name}": array for name, array in session.states.items()}
    if output is not None:
        _save(output, results)
    if as_json:
        click.echo(json.dumps({name: summary(array) for name, array in results.items()}, indent=2))
        return
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, array in results.items():
        console.print(Text.assemble((name, "bold"), f" {array.dtype} {list(array.shape)}"))
        console.print(np.array2string(array, threshold=64, precision=6))


@click.command("test")
@MODEL
@build_options
@from_option
@click.option(
    "--tests",
    metavar="MODEL.nacre",
    type=PATH,
    help="Model file with the tests and budgets to run; required with --from.",
)
@click.option("--gradients", is_flag=True, help="Compare the gradients of all operators with finite differences.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON.")
def test_command(model: Path, chosen: Chosen, tests: Path | None, gradients: bool, as_json: bool) -> int:
    """Run the tests and budgets of a model file.

    \b
      nacre test model.nacre
      nacre test bert.nacre --checkpoint bert/ --json
      nacre test training.nacre --gradients
      nacre test 26-linalg.mlir --from linalg --tests bert.nacre

    Every test runs with the reference interpreter and with the compiled artifact. Exits with 1 if one fails. With
    --gradients, nothing is compiled: the interpreter runs every entry on random inputs in float64, and compares the
    gradient of each node with finite differences.
    """
    if (chosen.start is None) != (tests is None):
        raise click.UsageError("--from requires --tests, and --tests requires --from: the dump of a stage has no tests")
    if gradients:
        if chosen.start is not None:
            raise click.UsageError("--gradients is for model files")
        source_model = chosen.read(model)
        with progress(f"testing the gradients of {model}"):
            outcomes = test_gradients(source_model.module, open_parameters(source_model))
        return _report_outcomes(outcomes, as_json)
    with progress(f"compiling and testing {model}"):
        outcomes = test_model(
            chosen.build(model), None if tests is None else read_model(tests, chosen.checkpoint, chosen.settings)
        )
    return _report_outcomes(outcomes, as_json)


def _report_outcomes(outcomes: Sequence[Outcome], as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(list(map(asdict, outcomes)), indent=2))
    else:
        _print_outcomes(outcomes)
    return 0 if all(o.passed for o in outcomes) else INPUT_ERROR


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    if not outcomes:
        click.echo("the file has no test and no budget: `nacre help test`")
    for o in outcomes:
        word = click.style("passed", fg="green") if o.passed else click.style("failed", fg="red", bold=True)
        means = "" if o.means in ("budget", "gradients") else f" ({o.means})"
        line, *others = wrap(f"{o.model}: {o.title}{means}: {o.detail}", " " * 8, " " * 8)
        click.echo("\n".join([f"{word}  {line.strip()}", *others]))
        if not o.passed and o.at:
            click.echo(fit(f"        {o.at}{f' {o.wrong}' if o.wrong else ''}"))
    click.echo(f"{sum(o.passed for o in outcomes)} passed, {sum(not o.passed for o in outcomes)} failed")
