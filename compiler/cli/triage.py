"""Commands for compiler bugs: `bisect` finds the pass or kernel that causes one, `reduce` finds a small test case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.dims import DimError
from ...dialect.graph import Function, Module
from ...dialect.interpreter import bind_dims
from ...dialect.states import stateless
from ...dialect.types import Array, dtype_of
from ...dialect.wrapping import fit
from ..base.files import path_beside
from ..model.parameters import open_parameters
from ..model.source import SourceModel
from ..tools.bisect.bisect import Found, alike_in_code, alike_in_passes, bisect, find_failing
from ..tools.bisect.case import Case, make_case, states_of
from ..tools.bisect.command import EXITS, NONZERO, CommandFinder
from ..tools.bisect.culprit import culprit_data, describe
from ..tools.bisect.failures import KINDS, MEMORY, PASSES, Examiner, Failure
from ..tools.bisect.reduce import reduce_case
from ..tools.bisect.storage import check_paths, write_case
from ..validate.devices import find_runnable
from ..validate.inputs import (
    EDGES,
    ORDINARY,
    SPECIAL,
    Trial,
    random_dims,
    random_large_dims,
    random_trial,
)
from ..validate.model_calls import ending_trials
from ..weights import open_tensors
from .build_options import MODEL, Chosen, build_options, check_dims, progress_line, read_dims
from .completion import ENTRIES, proposals
from .model_options import PATH
from .number_ranges import SECONDS
from .reporting import INPUT_ERROR, tell
from .tensors import read_inputs

_INPUT = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A .npy file, FILE.npz:KEY, or JSON; random by default.",
)
_AT = click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Dims of random inputs.")
_ENTRY = click.option(
    "--entry", metavar="NAME", shell_complete=ENTRIES, help="Model of the file, if there are several."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
_TIMEOUT = click.option(
    "--timeout",
    type=SECONDS,
    default=300.0,
    show_default=True,
    help="Time limit for each attempt, in seconds.",
)
_EFFORT = click.option(
    "--effort",
    type=click.IntRange(min=0),
    default=400,
    show_default=True,
    help="Maximum number of smaller models to try.",
)


# --- cases ---


def _without_states(source_model: SourceModel) -> SourceModel:
    """Returns the model with states as ordinary arguments and results, which inputs and failures can name."""
    return replace(source_model, module=stateless(source_model.module))


def _choose_function(module: Module, entry: str | None) -> Function:
    names = [f.name for f in module.functions]
    chosen = entry or (names[0] if len(names) == 1 else "main")
    if chosen not in names:
        raise click.BadParameter(f"the file has the models {', '.join(names)}", param_hint="--entry")
    return module.function(chosen)


def _given_trial(function: Function, inputs: Sequence[str]) -> Trial:
    """Returns the call with the inputs of the user. Raises BadParameter if they do not fit the function."""
    described = [{"name": a.name, "type": str(a.type), "dtype": a.type.dtype.name} for a in function.arguments]
    arrays = tuple(read_inputs(inputs, described))
    for argument, array in zip(function.arguments, arrays, strict=True):
        if dtype_of(array) != argument.type.dtype or array.ndim != argument.type.rank:
            message = f"`{argument.name}` is {argument.type}, not {dtype_of(array)}{list(array.shape)}"
            raise click.BadParameter(message, param_hint="--input")
    try:
        sizes = bind_dims(function, arrays)
    except DimError as error:
        raise click.BadParameter(str(error), param_hint="--input") from error
    return Trial(function.name, sizes, ORDINARY, tuple(a.name for a in function.arguments), arrays)


def _trials(module: Module, function: Function, inputs: Sequence[str], dims: Mapping[str, int]) -> Sequence[Trial]:
    """Returns the calls to examine: the one with the given inputs, or several with random inputs."""
    check_dims(module.dims, dims)
    if inputs:
        return [_given_trial(function, inputs)]
    if dims:
        return [random_trial(function, {**random_dims(function.symbols())[0], **dims})]
    sizes = random_dims(function.symbols())
    drawn = [*(random_trial(function, each) for each in sizes), random_trial(function, sizes[0], SPECIAL)]
    drawn += [random_trial(function, sizes[0], EDGES, seed=seed) for seed in (0, 1)]
    return drawn + [random_trial(function, each) for each in random_large_dims(function.symbols())]


def _cases(source_model: SourceModel, entry: str | None, inputs: Sequence[str], dims: Mapping[str, int]) -> list[Case]:
    """Returns a case for each call to examine. Raises DiagnosticError if the parameters cannot be read."""
    reader = open_parameters(source_model)
    function = _choose_function(source_model.module, entry)
    cases = []
    trials = _trials(source_model.module, function, inputs, dims)
    for trial in ending_trials(source_model.module, trials, reader):
        arguments = dict(zip(trial.names, trial.arguments, strict=True))
        cases.append(make_case(source_model.module, function.name, arguments, reader, trial.kind))
    return cases


def _examiner(chosen: Chosen, source_model: SourceModel, timeout: float, level: int | None = None) -> Examiner:
    """Returns an examiner with the chosen options, at another optimisation level if one is given."""
    if len(chosen.base.targets) > 1:
        raise click.BadParameter("give one target: results may differ between targets", param_hint="--target")
    for target, reason in find_runnable(chosen.base.targets).reasons:
        message = f"this machine cannot run code for `{target.name}`, so nothing can be compared: {reason}"
        raise click.BadParameter(message, param_hint="--target")
    options = chosen.options(timeout=timeout)
    if level is not None:
        options = replace(options, level=level, passes=None)
    return Examiner(options, timeout).bounded(source_model)


def _write(small: Case, failure: Failure, output: Path, head: Sequence[str]) -> list[Path]:
    signed = failure.difference is not None and failure.difference.is_sign
    try:
        return write_case(small, output, "\n".join(head), signed=signed)
    except DiagnosticError as error:
        raise DiagnosticError([*error.diagnostics, *_said(head)]) from error


def _said(head: Sequence[str]) -> list[Diagnostic]:
    """Converts the findings to warnings, for a model that cannot be written."""
    return [Diagnostic("not-written", line.strip(), severity="warning") for line in head]


# --- bisect ---


def _read_level(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    match = re.fullmatch(r"(?:-?O)?([0-3])", value or "-O0")
    if match is None:
        raise click.BadParameter(f"`{value}` is not an optimisation level: -O0 to -O3")
    return None if value is None else int(match[1])


@click.command("bisect")
@MODEL
@_INPUT
@_AT
@_ENTRY
@click.option("--reference", type=PATH, metavar="FILE.npz", help="Expected results by name, also compared.")
@click.option("--against", metavar="-O0", callback=_read_level, help="Optimisation level to check first.")
@build_options
@click.option("-o", "--output", type=PATH, help="Output path of the small model.  [default: MODEL.small.nacre]")
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
    effort: int,
    as_json: bool,
) -> int:
    """Find the rewrite or the kernel that computes wrong numbers.

    The cause is a single rewrite of a graph pass, or a kernel and the stage of its code. The smallest model that shows
    the error is written to a file.

    \b
      nacre bisect model.nacre --input x=x.npy
      nacre bisect model.nacre --input x=x.npy --reference expected.npz
      nacre bisect model.nacre --at B=1,T=128 -O3

    Results are compared with the reference interpreter; the tolerance follows from the rounding of the model's nodes.
    Without --input, inputs are random and include special values. The small model is written with its inputs and
    weights in files beside it and contains a test: `nacre test` fails until the bug is fixed. Exits with 1 if a cause
    is found.
    """
    output = output or path_beside(model, ".small.nacre")
    given = chosen.read(model)
    source_model = _without_states(given)
    check_paths(output, model)
    examiners = [_examiner(chosen, source_model, timeout, level) for level in dict.fromkeys((against, None))]
    cases = _cases(source_model, entry, inputs, dims)
    states = states_of(given.module, cases[0].function.name, open_parameters(given))

    @cache
    def cases_at_boundaries() -> Sequence[Case]:
        """Builds an artifact, which the other cases may show to be wrong."""
        if inputs or dims:
            return ()
        wrong_sizes = examiners[-1].failing_sizes(source_model, cases[0].function.name)
        return [case for each in wrong_sizes for case in _cases(source_model, entry, (), each)]

    if reference is not None:
        if not inputs:
            raise click.UsageError("--reference requires the inputs it was computed from: --input")
        _compare_reference(cases[0], reference)
    with progress_line() as report:
        found = None
        for each in examiners:
            failing = find_failing(cases, each, report, states, cases_at_boundaries)
            if failing is not None:
                found = bisect(*failing, each, attempts=effort, report=report)
                break
    if found is None:
        what = "no error found: the passes and the artifact compute the same results as the source"
        click.echo(json.dumps({"culprit": None}, indent=2) if as_json else fit(what))
        return 0
    # No test gives states their values.
    is_shown = not found.small.function.states
    written = _write(found.small, found.failure, output, describe(found.culprit)) if is_shown else []
    _report(found, written, as_json)
    return INPUT_ERROR


def _compare_reference(case: Case, path: Path) -> None:
    """Raises DiagnosticError if the reference contradicts the source: then no stage is the cause."""
    stored = open_tensors(path)
    names = case.function.result_names
    missing = [name for name in names if name not in stored]
    if missing:
        message = f"`{path}` has no `{missing[0]}`; the results are {', '.join(names)}"
        raise DiagnosticError([Diagnostic("bad-reference", message)])
    arrays: list[Array] = [stored.read(name) for name in names]
    difference = case.judge(in_blocks=True).difference(arrays)
    if difference is not None:
        message = f"the source itself computes other results than `{path}`: {difference}"
        help_text = "no pass and no kernel is the cause: compare the model and its weights with those of the reference"
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
        click.echo(fit(line))
    click.echo(fit(f"  {found.failure.message}"))
    _report_written(written, found.small)


def _failure_data(failure: Failure) -> dict[str, str]:
    return {"kind": failure.kind, "origin": failure.origin, "message": failure.message}


def _report_written(written: Sequence[Path], small: Case) -> None:
    if not written:
        tell("no small model is written: the error needs the states of a session, which no test sets")
        return
    tell(f"wrote {', '.join(map(str, written))}: {small.nodes} node{'s' * (small.nodes != 1)}")


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
    shell_complete=proposals(lambda _: KINDS),
    help=f"{', '.join(KINDS)}, or a shell command that is run on each model; {{}} stands for its path.",
)
@click.option(
    "--exits",
    type=click.Choice(EXITS),
    default=NONZERO,
    show_default=True,
    help="Exit code of the command that counts as a failure.",
)
@build_options
@click.option("-o", "--output", type=PATH, required=True, help="Output path of the small model.")
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
    effort: int,
    as_json: bool,
) -> None:
    """Reduce a failing model to a small one.

    The result fails in the same way, with fewer nodes and parameters, smaller sizes and simpler numbers.

    \b
      nacre reduce model.nacre --fails crash -o small.nacre
      nacre reduce model.nacre --input x=x.npy --fails numbers -o small.nacre
      nacre reduce model.nacre --fails 'nacre test {}' -o small.nacre
      nacre reduce model.nacre --fails timeout --timeout 20 -o small.nacre

    Each candidate is compiled and called in a child process. The inputs and weights of the small model are written to
    files beside it.
    """
    source_model = _without_states(chosen.read(model))
    check_paths(output, model)
    cases = _cases(source_model, entry, inputs, dims)
    with progress_line() as report:
        if fails in KINDS:
            case, failure, find = _failing(cases, fails, _examiner(chosen, source_model, timeout), report)
        else:
            finder = CommandFinder(fails, exits, timeout)
            failing = finder.find(cases)
            if failing is None:
                raise _does_not_fail(f"`{fails}` does not fail on the model")
            case, failure, find = failing, Failure("command", fails, f"{exits} exit code"), finder.find
        small = reduce_case(case, find, attempts=effort, report=report)
    written = _write(small, failure, output, [f"{failure.kind}: {failure.message}"])
    if as_json:
        paths = [str(path) for path in written]
        click.echo(json.dumps({"failure": _failure_data(failure), "nodes": small.nodes, "written": paths}, indent=2))
    else:
        click.echo(fit(f"{failure.kind}: {failure.message}"))
        _report_written(written, small)


def _failing(
    cases: Sequence[Case], kind: str, examiner: Examiner, report: Callable[[str], None]
) -> tuple[Case, Failure, Callable[[Sequence[Case]], Case | None]]:
    """Returns the first failing case, its failure, and a function that finds cases with the same failure."""
    found = find_failing(cases, examiner, report)
    if found is not None and found[1].kind == MEMORY != kind:
        # Kernels run alone, on guarded memory, before the artifact, which may fail in the way that was asked for.
        whole = examiner.code(found[0])
        found = found if whole is None else (found[0], whole)
    if found is None or found[1].kind != kind:
        raise _does_not_fail(
            "the model does not fail" if found is None else f"the model fails in another way: {found[1].message}"
        )
    case, failure = found
    in_passes = failure.origin == PASSES or failure.is_like(examiner.passes(case))
    return case, failure, (alike_in_passes if in_passes else alike_in_code)(examiner, failure)


def _does_not_fail(message: str) -> DiagnosticError:
    help_text = "give the inputs that show the failure with --input"
    return DiagnosticError([Diagnostic("does-not-fail", message, help=help_text)])
