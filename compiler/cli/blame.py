"""Commands for faults of the compiler: `bisect` says who is to blame, `reduce` makes the model small that shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.dims import DimError
from ...dialect.graph import Function, Module
from ...dialect.interpreter import bind_dims
from ...dialect.types import Array, dtype_of
from ..blame.bisect import Found, alike_in_code, alike_in_passes, bisect, find_failing
from ..blame.case import Case, make_case
from ..blame.command import EXITS, NONZERO, CommandFinder
from ..blame.culprit import culprit_data, describe
from ..blame.failures import KINDS, PASSES, Examiner, Failure
from ..blame.reduce import reduce_case
from ..blame.storage import check_places, write_case
from ..checking.inputs import ORDINARY, SPECIAL, Trial, draw_dims, draw_large_dims, draw_trial
from ..checkpoint import open_tensors
from ..frontend import Elaborated
from ..parameters import open_parameters
from .faults import INPUT_FAULT
from .options import MODEL, PATH, Chosen, build_options, check_dims, read_dims, told_progress
from .tensors import read_inputs

_INPUT = click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A .npy file, FILE.npz:KEY, or JSON; else drawn."
)
_AT = click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Sizes at which inputs are drawn.")
_ENTRY = click.option("--entry", metavar="NAME", help="Which model of the file, if there are several.")
_JSON = click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds that each thing that is tried may take.",
)
_EFFORT = click.option(
    "--effort",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds after which no smaller model is looked for.",
)


# --- cases ---


def _choose_function(module: Module, entry: str | None) -> Function:
    names = [f.name for f in module.functions]
    chosen = entry or (names[0] if len(names) == 1 else "main")
    if chosen not in names:
        raise click.BadParameter(f"the file has the models {', '.join(names)}", param_hint="--entry")
    return module.function(chosen)


def _given_trial(function: Function, inputs: Sequence[str]) -> Trial:
    """The call that the user gives. Raises BadParameter where it does not fit the function."""
    described = [{"name": a.name, "type": str(a.type), "dtype": a.type.dtype.name} for a in function.arguments]
    arrays = tuple(read_inputs(inputs, described))
    for argument, array in zip(function.arguments, arrays, strict=True):
        if dtype_of(array) != argument.type.dtype or array.ndim != argument.type.rank:
            message = f"`{argument.name}` is {argument.type}, not {dtype_of(array)}{list(array.shape)}"
            raise click.BadParameter(message, param_hint="--input")
    return Trial(function.name, {}, ORDINARY, tuple(a.name for a in function.arguments), arrays)


def _trials(module: Module, function: Function, inputs: Sequence[str], dims: Mapping[str, int]) -> Sequence[Trial]:
    """The calls to look at: the one that is given, or some that are drawn."""
    check_dims(module.dims, dims)
    if inputs:
        return [_given_trial(function, inputs)]
    if dims:
        return [draw_trial(function, {**draw_dims(function.symbols())[0], **dims})]
    sizes = draw_dims(function.symbols())
    drawn = [*(draw_trial(function, each) for each in sizes), draw_trial(function, sizes[0], SPECIAL)]
    return drawn + [draw_trial(function, each) for each in draw_large_dims(function.symbols())]


def _cases(elaborated: Elaborated, entry: str | None, inputs: Sequence[str], dims: Mapping[str, int]) -> list[Case]:
    """Raises DiagnosticError where the parameters cannot be read."""
    reader = open_parameters(elaborated)
    function = _choose_function(elaborated.module, entry)
    cases = []
    for trial in _trials(elaborated.module, function, inputs, dims):
        arguments = dict(zip(trial.names, trial.arguments, strict=True))
        cases.append(make_case(elaborated.module, function.name, arguments, reader, trial.kind))
    try:
        for case in cases:
            bind_dims(case.function, case.trial_arrays)
    except DimError as error:
        raise click.BadParameter(str(error), param_hint="--input") from error
    return cases


def _examiner(chosen: Chosen, timeout: float) -> Examiner:
    if len(chosen.targets) > 1:
        raise click.BadParameter("name one: what is wrong may be so for one target alone", param_hint="--target")
    (target,) = chosen.targets
    if not target.runs_here:
        message = f"this machine cannot run code for `{target.name}`, so nothing can be compared"
        raise click.BadParameter(message, param_hint="--target")
    return Examiner(chosen.options(timeout=timeout), timeout)


def _write(small: Case, output: Path, head: Sequence[str]) -> list[Path]:
    try:
        return write_case(small, output, "\n".join(head))
    except DiagnosticError as error:
        raise DiagnosticError([*error.diagnostics, *_said(head)]) from error


def _said(head: Sequence[str]) -> list[Diagnostic]:
    """What was found out all the same, where it cannot be written."""
    return [Diagnostic("not-written", line.strip(), severity="warning") for line in head]


# --- bisect ---


def _read_level(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    match = re.fullmatch(r"(?:-?O)?([0-3])", value or "-O0")
    if match is None:
        raise click.BadParameter(f"`{value}` is no level: -O0 to -O3")
    return None if value is None else int(match[1])


@click.command("bisect")
@MODEL
@_INPUT
@_AT
@_ENTRY
@click.option("--reference", type=PATH, metavar="FILE.npz", help="Results by name, to be compared with as well.")
@click.option(
    "--against", metavar="-O0", callback=_read_level, help="A level to be looked at first, and blamed if it is wrong."
)
@build_options
@click.option("-o", "--output", type=PATH, help="Where the small model goes.  [default: MODEL.small.nacre]")
@_TIMEOUT
@_EFFORT
@_JSON
def bisect_command(
    model: Path,
    inputs: Sequence[str],
    dims: dict[str, int],
    entry: str | None,
    reference: Path | None,
    against: int | None,
    chosen: Chosen,
    output: Path | None,
    timeout: float,
    effort: float,
    as_json: bool,
) -> int:
    """Find what makes the numbers of a model wrong: the pass and in it the single rewrite, or the kernel and the stage
    of its code; and write the smallest model that shows it.

    \b
      nacre bisect model.nacre --input x=x.npy
      nacre bisect model.nacre --input x=x.npy --reference expected.npz
      nacre bisect model.nacre --at B=1,T=128 -O3

    The measure is the reference interpreter, and how far results may be from that follows from the rounding of the
    model's nodes. Without --input, ordinary and special numbers are drawn. The small model stands with its inputs and
    weights in files beside it, and has a test: `nacre test` of it fails as long as the fault is there. Exits with 1 if
    there is somebody to blame.
    """
    output = output or model.with_name(f"{model.stem}.small.nacre")
    check_places(output, model)
    elaborated = chosen.read(model)
    examiner = _examiner(chosen, timeout)
    cases = _cases(elaborated, entry, inputs, dims)
    if reference is not None:
        if not inputs:
            raise click.UsageError("--reference goes with the inputs that it was computed from: --input")
        _compare_reference(cases[0], reference)
    with told_progress() as tell:
        found = None
        for each in [examiner] if against is None else [_at_level(examiner, against), examiner]:
            failing = find_failing(cases, each, tell)
            if failing is not None:
                found = bisect(*failing, each, seconds=effort, tell=tell)
                break
    if found is None:
        what = "nothing is wrong: what the passes leave and what the artifact computes is what the source says"
        click.echo(json.dumps({"culprit": None}, indent=2) if as_json else what)
        return 0
    written = _write(found.small, output, describe(found.culprit))
    _report(found, written, as_json)
    return INPUT_FAULT


def _at_level(examiner: Examiner, level: int) -> Examiner:
    return replace(examiner, options=replace(examiner.options, level=level, passes=None))


def _compare_reference(case: Case, path: Path) -> None:
    """Raises DiagnosticError where the reference has other numbers than the source: then no stage is to blame."""
    stored = open_tensors(path)
    names = case.function.result_names
    missing = [name for name in names if name not in stored]
    if missing:
        message = f"`{path}` has no `{missing[0]}`; the results are {', '.join(names)}"
        raise DiagnosticError([Diagnostic("bad-reference", message)])
    arrays: list[Array] = [stored.read(name) for name in names]
    difference = case.judge(in_blocks=True).difference(arrays)
    if difference is not None:
        message = f"the source itself does not compute what `{path}` holds: {difference}"
        help_text = "no pass and no kernel is to blame: compare the model and its weights with what the reference is of"
        raise DiagnosticError([Diagnostic("other-reference", message, case.function.span, help=help_text)])


def _report(found: Found, written: Sequence[Path], as_json: bool) -> None:
    if as_json:
        data = {
            "culprit": culprit_data(found.culprit),
            "failure": _failure_data(found.failure),
            "nodes": found.small.nodes,
            "written": [str(path) for path in written],
        }
        click.echo(json.dumps(data, indent=2))
        return
    for line in describe(found.culprit):
        click.echo(line)
    click.echo(f"  {found.failure.message}")
    _tell_written(written, found.small)


def _failure_data(failure: Failure) -> dict[str, str]:
    return {"kind": failure.kind, "place": failure.place, "message": failure.message}


def _tell_written(written: Sequence[Path], small: Case) -> None:
    click.echo(f"wrote {', '.join(map(str, written))}: {small.nodes} node{'s' * (small.nodes != 1)}", err=True)


# --- reduce ---


@click.command("reduce")
@MODEL
@_INPUT
@_AT
@_ENTRY
@click.option(
    "--fails",
    required=True,
    metavar="KIND|COMMAND",
    help=f"{', '.join(KINDS)}, or a command of the shell that is given each model, as {{}} or at its end.",
)
@click.option(
    "--exits", type=click.Choice(EXITS), default=NONZERO, show_default=True, help="How the command ends if it fails."
)
@build_options
@click.option("-o", "--output", type=PATH, required=True, help="Where the small model goes.")
@_TIMEOUT
@_EFFORT
@_JSON
def reduce_command(
    model: Path,
    inputs: Sequence[str],
    dims: dict[str, int],
    entry: str | None,
    fails: str,
    exits: str,
    chosen: Chosen,
    output: Path,
    timeout: float,
    effort: float,
    as_json: bool,
) -> None:
    """Make a model that fails small: fewer results, nodes, parameters, smaller sizes, plain numbers.

    \b
      nacre reduce model.nacre --fails crash -o small.nacre
      nacre reduce model.nacre --input x=x.npy --fails numbers -o small.nacre
      nacre reduce model.nacre --fails 'nacre test {}' -o small.nacre
      nacre reduce model.nacre --fails timeout --timeout 20 -o small.nacre

    What is tried is compiled and called in a child process. The small model fails in the same way, and stands with its
    inputs and weights in files beside it.
    """
    check_places(output, model)
    elaborated = chosen.read(model)
    cases = _cases(elaborated, entry, inputs, dims)
    with told_progress() as tell:
        if fails in KINDS:
            case, failure, find = _failing(cases, fails, _examiner(chosen, timeout), tell)
        else:
            finder = CommandFinder(fails, exits, timeout)
            failing = finder.find(cases)
            if failing is None:
                raise _does_not_fail(f"`{fails}` does not end as it should fail")
            case, failure, find = failing, Failure("command", fails, f"{exits} exit code"), finder.find
        small = reduce_case(case, find, seconds=effort, tell=tell)
    written = _write(small, output, [f"{failure.kind}: {failure.message}"])
    if as_json:
        paths = [str(path) for path in written]
        click.echo(json.dumps({"failure": _failure_data(failure), "nodes": small.nodes, "written": paths}, indent=2))
    else:
        click.echo(f"{failure.kind}: {failure.message}")
        _tell_written(written, small)


def _failing(
    cases: Sequence[Case], kind: str, examiner: Examiner, tell: Callable[[str], None]
) -> tuple[Case, Failure, Callable[[Sequence[Case]], Case | None]]:
    """The first case that fails, how, and what finds others that do so."""
    found = find_failing(cases, examiner, tell)
    if found is None or found[1].kind != kind:
        raise _does_not_fail("nothing is wrong with it" if found is None else f"it fails otherwise: {found[1].message}")
    case, failure = found
    in_passes = failure.place == PASSES or failure.is_like(examiner.passes(case))
    return case, failure, (alike_in_passes if in_passes else alike_in_code)(examiner, failure)


def _does_not_fail(message: str) -> DiagnosticError:
    help_text = "the inputs that show the fault may be missing: --input"
    return DiagnosticError([Diagnostic("does-not-fail", message, help=help_text)])
