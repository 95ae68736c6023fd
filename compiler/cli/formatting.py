"""`nacre fmt`: rewrites model files in the canonical format."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from ...dialect.diagnostics import DiagnosticError
from ..base.files import write_whole
from ..readers.language.format import format_source
from ..readers.language.parse import decode, normalise
from .reporting import INPUT_ERROR, report


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--check", is_flag=True, help="Do not write files; exit with 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Do not write files; print the changes, and exit with 1 if there are any.")
def fmt_command(files: Sequence[str], check: bool, diff: bool) -> int:
    """Rewrite model files in the canonical format.

    \b
      nacre fmt model.nacre
      nacre fmt --check --diff blocks/*.nacre
      nacre fmt - < model.nacre

    Comments are kept. `-` reads standard input and writes standard output. A file with syntax errors is not changed.
    """
    failed = False
    for name in files:
        try:
            failed |= _format(name, check or diff, diff)
        except DiagnosticError as error:
            report(error.diagnostics, error.sources)
            failed = True
    return INPUT_ERROR if failed else 0


def _format(name: str, only_look: bool, diff: bool) -> bool:
    """Formats one file; with `only_look`, returns whether it would change."""
    shown = "<stdin>" if name == "-" else name
    with click.open_file(name, "rb") as file:
        text = decode(file.read(), shown)
    formatted = format_source(text, shown)
    changes = formatted != text
    if name == "-" and not only_look:
        click.echo(formatted.encode(), nl=False)
    elif changes:
        if diff:
            click.echo("".join(_difference(text, formatted, shown)), nl=False)
        if not only_look:
            write_whole(Path(name), formatted)
        click.echo(f"{'would format' if only_look else 'formatted'} {shown}", err=True)
    return changes and only_look


def _difference(text: str, formatted: str, name: str) -> list[str]:
    old, new = (normalise(t).splitlines(keepends=True) for t in (text, formatted))
    return [
        line if line.endswith("\n") else f"{line}\n\\ no newline at the end of the file\n"
        for line in difflib.unified_diff(old, new, name, f"{name} (formatted)")
    ]
