"""`nacre quantize`: searches for the fastest precision of each layer within an error budget."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.wrapping import counted, fit
from ..base.files import check_writable, path_beside, write_whole
from ..checking import read_model
from ..comparison.bounds import EXAMPLES, Bound
from ..describe import source_hash
from ..identity import identify_compiler, identify_files
from ..model.parameters import open_parameters
from ..model.policy import Calibration, Method
from ..model.source import SourceModel
from ..targets.target import identify_host
from ..tools.accuracy.accuracy_text import number
from ..tools.quantize.findings import Findings, open_findings
from ..tools.quantize.layers import CHOICES
from ..tools.quantize.policy_text import count_choices, policy_text
from ..tools.quantize.precision_search import Found, search
from ..tools.quantize.trials import Trials
from .accuracy import BATCH, DATA, read_bound
from .build_options import MODEL, Chosen, build_options, progress_line
from .completion import proposals
from .model_options import PATH
from .models import ENTRY, THREADS

_USUAL = "bf16,int8,int8-static"


def _read_choices(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(value.replace(" ", "").split(",")))
    for name in names:
        if name not in CHOICES:
            raise click.BadParameter(f"there is no precision `{name}`; the candidates are {', '.join(CHOICES)}")
    return names


@click.command("quantize")
@MODEL
@DATA
@click.option("--budget", "bound", required=True, callback=read_bound, help=f"Accuracy bound, such as {EXAMPLES}.")
@click.option("-o", "--output", type=PATH, help="Output path of the policy.  [default: MODEL.policy.nacre]")
@click.option(
    "--choices",
    default=_USUAL,
    show_default=True,
    callback=_read_choices,
    shell_complete=proposals(lambda _: CHOICES, listed=True),
    help=f"Candidate precisions: {', '.join(CHOICES)}.",
)
@click.option(
    "--ranges",
    type=click.Choice([method for method in get_args(Method) if method != "percentile"]),
    default="mse",
    show_default=True,
    help="Calibration method of int8-static.",
)
@click.option(
    "--estimate", is_flag=True, help="Estimate times instead of measuring them; gives the same result on every machine."
)
@ENTRY
@BATCH
@THREADS
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def quantize_command(
    model: Path,
    data: Path,
    bound: Bound,
    output: Path | None,
    choices: Sequence[str],
    ranges: Method,
    estimate: bool,
    entry: str | None,
    batch: int,
    threads: int,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Search for the fastest precision of each layer.

    \b
      nacre quantize model.nacre --data in.npz --budget 'top1 drop <= 0.5%'
      nacre quantize model.nacre --data in/ --budget 'snr >= 40' --choices int8
      nacre compile model.nacre --precision model.policy.nacre -o model.so

    The result is a policy that meets an error budget. Each layer is measured alone in each candidate precision, which
    gives its error and its time. Then complete assignments are measured on all samples until the fastest one that
    meets the budget against f32 is found. Measurements are saved in OUTPUT.findings.json. An interrupted search, or
    one for another budget, continues from there.
    """
    output = output or path_beside(model, ".policy.nacre")
    if output.resolve() == model.resolve():
        raise click.BadParameter(f"`{output}` is the model itself", param_hint="--output")
    source_model = read_model(model, chosen.checkpoint, chosen.settings)
    check_writable(output)
    name = _choose_model(source_model, entry)
    kept = output.with_name(f"{output.name}.findings.json")
    check_writable(kept)
    calibration = Calibration(data, ranges)
    findings = open_findings(kept, _question(source_model, name, calibration, estimate, batch, threads, chosen))
    with TemporaryDirectory(prefix="nacre-quantize-") as folder, progress_line() as report:
        trials = Trials(source_model, name, chosen.options(), calibration, batch, threads, Path(folder))
        found = search(trials, bound, choices, findings, report, estimate=estimate)
        samples = trials.samples.count
    if not found.keeps:
        value = bound.show(found.tried.figures[bound.figure.words] or 0.0)
        message = f"the model does not meet `{bound}` even in f32: two runs of it give {value}"
        raise DiagnosticError([Diagnostic("budget-out-of-reach", message)])
    seen = replace(calibration, path=Path(os.path.relpath(data, output.parent)))
    write_whole(output, policy_text(found, bound, findings, name, f"{data.name}, {samples} samples,", seen))
    if as_json:
        click.echo(json.dumps(_found_data(found, bound, findings, output), indent=2))
        return
    counts = ", ".join(f"{count} in {choice}" for choice, count in count_choices(found, findings).items() if count)
    layers = counted(len(findings.plain_layers), "layer") + (f": {counts}" if counts else "")
    value = bound.show(found.tried.figures[bound.figure.words] or 0.0)
    click.echo(fit(f"{layers}; {bound.figure.words} {value}"))
    click.echo(f"wrote {output}", err=True)


def _choose_model(source_model: SourceModel, entry: str | None) -> str:
    names = [function.name for function in source_model.module.functions]
    if entry is None:
        entry = names[0] if len(names) == 1 else "main"
    if entry not in names:
        raise click.BadParameter(f"the model has the entries {', '.join(names)}", param_hint="--entry")
    return entry


def _question(
    source_model: SourceModel,
    name: str,
    calibration: Calibration,
    estimate: bool,
    batch: int,
    threads: int,
    chosen: Chosen,
) -> dict[str, Any]:
    """Returns all data that determine the measurements, this machine among them; not the budget, nor the candidate
    precisions."""
    data, module = calibration.path, source_model.module
    reader = open_parameters(replace(source_model, module=replace(module, functions=(module.function(name),))))
    files = [*(sorted(data.iterdir()) if data.is_dir() else [data]), *reader.files()]
    try:
        stamps = list(identify_files(files))
    except OSError as error:
        message = f"`{error.filename}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    return {
        "compiler": hashlib.sha256(f"{identify_compiler()}\n{identify_host()}".encode()).hexdigest(),
        "model": source_hash(source_model.module),
        "entry": name,
        "files": [*stamps, *reader.digests()],
        "ranges": calibration.method,
        "options": list(chosen.options().flags),
        "batch": batch,
        "threads": threads,
        "estimate": estimate,
    }


def _found_data(found: Found, bound: Bound, findings: Findings, output: Path) -> dict[str, Any]:
    return {
        "written": str(output),
        "budget": str(bound),
        "figures": {words: None if v is None else number(v) for words, v in found.tried.figures.items()},
        "seconds": found.tried.seconds,
        "seconds_in_f32": found.plain,
        "keeps": found.keeps,
        "layers": [
            {
                "layer": path,
                "choice": found.assignment.get(path, "f32"),
                "seconds_in_f32": seconds,
                "alone": {
                    name: {"rms_error": number(m.harm**0.5), "seconds": m.seconds, "estimated": m.estimated}
                    for name, m in findings.by_layer.get(path, {}).items()
                },
            }
            for path, seconds in findings.plain_layers.items()
        ],
    }
