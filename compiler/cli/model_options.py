"""Options of commands that read models, and the errors of options. No part of a build is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ...dialect.diagnostics import DiagnosticError
from ..readers.language.settings import Settings, read_settings

PATH = click.Path(path_type=Path)


def wrong(error: DiagnosticError) -> click.BadParameter:
    """Converts an error in an option to an error in the command line."""
    first = error.diagnostics[0]
    return click.BadParameter(f"{first.message}; {first.help}" if first.help else first.message)


SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda context, parameter, values: _settings(values),
    help="Value of a hyper-parameter of the model, as in `--set layers=4`; may be repeated.",
)


def _settings(values: Sequence[str]) -> Settings:
    try:
        return read_settings(values)
    except DiagnosticError as error:
        raise wrong(error) from error
