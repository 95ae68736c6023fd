"""`nacre check`: reads model files, and compiles nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic
from ..checking import find_errors
from ..readers.language.settings import Settings
from .model_options import PATH, SET
from .reporting import INPUT_ERROR, report, tell


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=PATH)
@click.option("--checkpoint", type=PATH, help="Checkpoint file or folder; overrides those named in the files.")
@SET
@click.option("--json", "as_json", is_flag=True, help="Print the diagnostics as a JSON list.")
def check_command(files: Sequence[Path], checkpoint: Path | None, settings: Settings, as_json: bool) -> int:
    """Report all errors of model files and their checkpoints.

    \b
      nacre check model.nacre blocks/*.nacre
      nacre check bert.nacre --checkpoint bert/

    All errors of a file are reported in one run: syntax, names, shapes and dtypes. A file without errors is compared
    with the names, shapes and dtypes of its checkpoint. A note names a checkpoint that does not exist, and tensors that
    nothing reads. With --checkpoint, configurations are
    also searched in that folder. Exits with 1 if there is an error.
    """
    found: list[Diagnostic] = []
    for path in files:
        diagnostics, sources, notes = find_errors(path, checkpoint, settings)
        found += diagnostics
        if diagnostics and not as_json:
            report(diagnostics, sources)
        for note in notes:
            tell(f"note: {note}")
    failed = any(d.severity == "error" for d in found)
    if as_json:
        click.echo(json.dumps([asdict(d) for d in found], indent=2))
    elif not failed:
        click.echo(f"{len(files)} file{'s' * (len(files) != 1)}: no errors", err=True)
    return INPUT_ERROR if failed else 0
