"""Commands that read model files and compile nothing: `check` and `fmt`."""

from __future__ import annotations

import difflib
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic
from ..frontend import check_source
from ..frontend.format import format_source
from ..frontend.parse import parse_bytes
from .faults import INPUT_FAULT, tell

_FILES = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


def _text(path: Path) -> str:
    """The text of a file, or the diagnostic that it is not text."""
    data = path.read_bytes()
    parse_bytes(data, str(path))
    return data.decode("utf-8-sig")


@click.command("check")
@_FILES
@click.option("--json", "as_json", is_flag=True, help="One JSON list of diagnostics instead of text.")
def check_command(files: tuple[Path, ...], as_json: bool) -> int:
    """Find every fault of model files: syntax, names, shapes, dtypes, checkpoints.

    All of a file's faults are told in one run. Exits with 1 if there is any error.
    """
    failed = False
    found: list[Diagnostic] = []
    for path in files:
        text = path.read_bytes().decode("utf-8", errors="replace")
        diagnostics = check_source(text, str(path), path.parent)
        failed |= any(d.severity == "error" for d in diagnostics)
        found += diagnostics
        if diagnostics and not as_json:
            tell(diagnostics, {str(path): text})
    if as_json:
        click.echo(json.dumps([asdict(d) for d in found], indent=2))
    elif not failed:
        click.echo(f"{len(files)} file{'s' * (len(files) != 1)}: no errors", err=True)
    return INPUT_FAULT if failed else 0


def _replace(path: Path, text: str) -> None:
    """Writes beside the file and renames, so that an interruption loses nothing; keeps the file's permissions."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(temporary, path.stat().st_mode & 0o7777)
    os.replace(temporary, path)


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, allow_dash=True))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
def fmt_command(files: tuple[str, ...], check: bool, diff: bool) -> int:
    """Bring model files into the one canonical format, keeping comments.

    `-` reads standard input and writes standard output.
    """
    changed = 0
    for name in files:
        if name == "-":
            click.echo(format_source(sys.stdin.read(), "<stdin>"), nl=False)
            continue
        path = Path(name)
        text = _text(path)
        formatted = format_source(text, name)
        if formatted == text:
            continue
        changed += 1
        if diff:
            lines = difflib.unified_diff(text.splitlines(True), formatted.splitlines(True), name, f"{name} (formatted)")
            click.echo("".join(lines), nl=False)
        elif not check:
            _replace(path, formatted)
        click.echo(f"{'would format' if check or diff else 'formatted'} {name}", err=True)
    return INPUT_FAULT if changed and (check or diff) else 0
