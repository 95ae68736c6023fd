"""`nacre diff`: compares the values of two builds, and their descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.types import Array
from ...dialect.wrapping import fit
from ...runtime.loader import Session
from ..comparison.capture import Capture, capture
from ..tools.diff.builds import Build, describe_build
from ..tools.diff.compare import Tolerance, compare_captures
from ..tools.diff.difference_text import comparison_data, format_comparison
from ..tools.diff.onnx_reference import ONNX, run_onnx
from ..tools.diff.references import TENSORS, read_reference
from ..tools.diff.stored import Weights, pair_weights
from ..tools.stored_trees import FILES, compare_trees
from .build_options import Chosen, build_options
from .model_options import PATH
from .models import AT, ENTRY, INPUTS, STATES, Side, choose_entry, inputs_for, open_session, open_side
from .number_ranges import NumberRange
from .reporting import INPUT_ERROR

ORACLE = 0
"""The level of the reference build if no other build is named: plain loops in the order that the model states."""


def _refer(path: Path, inputs: Mapping[str, Array], results: Sequence[str], build: Capture) -> Capture:
    if path.suffix == ONNX:
        return run_onnx(path, inputs, results, build)
    return read_reference(path, results)


@click.command("diff")
@click.argument("a", metavar="A", type=PATH)
@click.argument("b", metavar="[B]", type=PATH, required=False)
@INPUTS
@ENTRY
@AT
@STATES
@click.option(
    "--tolerance",
    type=NumberRange(min=0),
    help="Allowed error, relative to a tensor's largest value.  [default: derived from rounding]",
)
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def diff_command(
    a: Path,
    b: Path | None,
    inputs: Sequence[str],
    entry: str | None,
    dims: Mapping[str, int],
    states: Path | None,
    tolerance: float | None,
    chosen: Chosen,
    as_json: bool,
) -> int:
    """Compare two builds tensor by tensor.

    The report names the first divergence, in the order of the computation.

    \b
      nacre diff model.nacre --input x=x.npy     the model against itself at -O0
      nacre diff old.so new.so --input x=x.npy
      nacre diff old.nacre new.nacre --strict
      nacre diff model.so expected.npz --input x=x.npy
      nacre diff model.so model.onnx --input x=x.npy

    A is an artifact or a model file, which is compiled with the given options. B may also be an .onnx file, or a .npz
    or .safetensors file with tensors named after values or results of the model. The comparison covers the parameters
    that both builds store and the values that both leave in memory, such as `layer.0.output.h` and `result y`. Of tree
    ensembles, it names the first node that differs in each tree. Exits with 1 if a difference exceeds the tolerance.
    """
    first = open_side(a, chosen)
    described = choose_entry(first.model, entry)
    name: str = described["name"]
    given = inputs_for(described, inputs, dims)
    caller = open_session(first.model, described, given, dims, states)
    captured = capture(caller, name, given, keeps_failure=True)
    builds: list[Build] = []
    weights: Weights | None = None
    trees: Sequence[str] = ()
    if b is not None and b.suffix in (*TENSORS, ONNX):
        results = [r["name"] for r in described["results"]]
        names = [x["name"] for x in described["arguments"]]
        label, reference = str(b), _refer(b, dict(zip(names, given, strict=True)), results, captured)
    else:
        second = open_side(b, chosen) if b is not None else _open_oracle(a, chosen)
        _check_entry(first, second, name)
        session = open_session(second.model, described, given, dims, states)
        label, reference = second.name, capture(session, name, given, keeps_failure=True)
        weights = pair_weights((first.path, second.path), (first.model, second.model))
        if b is not None:
            files = (path if path.suffix in FILES else side.path for path, side in ((a, first), (b, second)))
            trees = compare_trees(*files)
        bound = dict(caller.dims) if isinstance(caller, Session) else {}
        sizes = captured.dims or {**bound, **caller.entries[name].bind(*given)}
        builds = [describe_build(side.path, side.model, name, sizes) for side in (first, second)]
    comparison = compare_captures(captured, reference, Tolerance(tolerance), weights)
    if not comparison.points:
        raise click.BadParameter(f"it has no value in common with {a}", param_hint="B")
    if as_json:
        data = comparison_data(comparison, (first.name, label), builds) | {"trees": list(trees)}
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(fit(format_comparison(comparison, (first.name, label), builds)))
        if trees:
            click.echo(fit("\n".join(["", *trees])))
    return INPUT_ERROR if comparison.divergence is not None else 0


def _check_entry(first: Side, second: Side, name: str) -> None:
    """Raises DiagnosticError if only one of the builds has the entry."""
    names = [entry["name"] for entry in second.model.describe()["entries"]]
    if name not in names:
        message = f"`{first.path}` has the entry `{name}`, `{second.path}` does not: it has {', '.join(names)}"
        help_text = "select an entry of both builds with --entry"
        raise DiagnosticError([Diagnostic("other-entry", message, help=help_text)])


def _open_oracle(path: Path, chosen: Chosen) -> Side:
    if path.suffix == ".so":
        raise click.UsageError(f"{path} is already compiled: give a second build to compare with")
    return open_side(path, replace(chosen, base=replace(chosen.base, level=ORACLE, passes=None)))
