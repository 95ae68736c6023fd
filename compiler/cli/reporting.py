"""Exit codes and error output of commands. An error in the input is reported and exits with 1, an invalid command line
with 2, an internal compiler error with 70 and a folder with a reproducer. No command ends in a traceback.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note, render_all
from ...dialect.wrapping import WIDTH, fit
from ...runtime.library import ArtifactError, NacreError
from ..base.compiler_errors import (
    NACRE,
    NO_ANSWER,
    RERUN,
    CompilerError,
    WrongNumbersError,
    new_reproducer,
    write_reproducer,
)
from ..base.similar import similar_file

INPUT_ERROR = 1
COMPILER_ERROR = 70
INTERRUPTED = 130

_COLOURS = {"error": "red", "warning": "yellow"}
_HEAD = re.compile(r"(error|warning)\[([\w-]+)\](: .*)")
_KEPT_BYTES = 1 << 20
_QUOTED = re.compile(r'"([^"\n]+)"')
_AGAIN = f"reproduce with `sh {RERUN}` in"


def colour(text: str) -> str:
    """Colours the parts of a rendered diagnostic; click omits the colours if the output is not a terminal."""
    lines = []
    style: Mapping[str, Any] = {}  # of the lines that continue a message, a label or a help
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            severity, code, message = head.groups()
            style = {"bold": True}
            line = click.style(f"{severity}[{code}]", fg=_COLOURS[severity], **style) + click.style(message, **style)
        elif re.match(r" *\| [ \t]*\^", line):
            bar, rest = line.split("|", 1)
            line = f"{bar}|{click.style(rest, fg='red')}"
        elif re.match(r" *= ", line):
            style = {"fg": "green"} if re.match(r" *= help:", line) else {}
            line = click.style(line, **style) if style else line
        elif style and re.match(r" {3,}[^ |]", line) and "-->" not in line:
            line = click.style(line, **style)
        lines.append(line)
    return "\n".join(lines)


def report(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]) -> None:
    """Writes diagnostics to standard error, with their number."""
    text = render_all(diagnostics, sources, WIDTH)
    click.echo(text if os.environ.get("NO_COLOR") else colour(text), err=True)
    errors = sum(d.severity == "error" for d in diagnostics)
    if errors > 1:
        click.echo(f"\n{errors} errors", err=True)


def tell(text: str) -> None:
    """Writes lines of prose to standard error."""
    click.echo(fit(text), err=True)


def keep_reproducer(arguments: Sequence[str]) -> Path:
    """Writes a reproducer of the current error and returns its folder: the traceback, the versions, the files named on
    the command line, the files that these name, and a script that runs the command on them. Raises OSError."""
    folder = new_reproducer()
    kept = [_keep_argument(argument, folder) for argument in arguments]
    write_reproducer(folder, {"traceback.txt": traceback.format_exc()}, [*NACRE, *kept])
    return folder


def _keep_argument(argument: str, folder: Path) -> str:
    """Returns the argument for the reproducer: the name of a copied file, or an absolute path."""
    name, equals, value = argument.rpartition("=")
    path = Path(value)
    if value.startswith("-") or not path.exists():
        return argument
    if not path.is_file():
        return f"{name}{equals}{path.absolute()}"
    target = Path(path.name)
    while (folder / target).exists():
        target = Path(f"other-{target}")
    _keep_file(path, folder / target)
    return f"{name}{equals}{target}"


def _keep_file(path: Path, target: Path) -> None:
    """Copies a file, and the files below its folder that a model names; a large file becomes a symbolic link."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size > _KEPT_BYTES:
        target.symlink_to(path.absolute())
        return
    shutil.copyfile(path, target)
    if path.suffix == ".nacre":
        for name in _QUOTED.findall(path.read_text(encoding="utf-8", errors="replace")):
            named = Path(name)
            if not named.is_absolute() and ".." not in named.parts and (path.parent / named).is_file():
                _keep_file(path.parent / named, target.parent / named)


def _report_error(error: Exception, arguments: Sequence[str]) -> None:
    what = (str(error).splitlines() or [""])[0]
    tell(f"nacre: internal compiler error: {type(error).__name__}: {what}"[:300])
    try:
        tell(f"{_AGAIN} {keep_reproducer(arguments)}")
    except OSError as reason:
        tell(f"the reproducer cannot be written: {reason.strerror}")


def _too_slow(failure: CompilerError) -> Diagnostic:
    """Returns the diagnostic of a timeout. The user sets the limit; the code generator may hang or be slow."""
    subject = f"kernel `{failure.kernel}`" if failure.kernel else "the entries"
    seconds = failure.what.removeprefix(NO_ANSWER).strip()
    notes = tuple(map(Note, failure.nodes[:1]))
    message = f"code generation of {subject} took longer than {seconds}, in the stage `{failure.stage}`"
    return Diagnostic("timeout", message, notes=notes, help="increase the limit with --timeout")


def _missing(error: FileNotFoundError) -> Diagnostic:
    """Returns the diagnostic of a path without a file, which is the same in all commands."""
    subject = f"`{error.filename}` cannot be read" if error.filename else "a file cannot be read"
    help = similar_file(error.filename) if isinstance(error.filename, str) else ""
    return Diagnostic("missing-file", f"{subject}: no such file or directory", help=help)


def _wrong_artifact(error: NacreError) -> Diagnostic:
    # The readers take a tenth of a second to import, which only this error needs.
    suffixes = import_module("..readers.table", __package__).READERS
    code = "bad-artifact" if isinstance(error, ArtifactError) else "bad-call"
    is_model = any(f"{suffix}` is not an artifact" in str(error) for suffix in suffixes)
    return Diagnostic(code, str(error), help="`nacre compile` makes an artifact of a model file" if is_model else "")


def contained(command: Callable[[], object], arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except DiagnosticError as error:
        report(error.diagnostics, error.sources)
        return INPUT_ERROR
    except FileNotFoundError as error:
        report([_missing(error)], {})
        return INPUT_ERROR
    except BrokenPipeError:
        # The reader has closed the pipe. Python would report a second error while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        report([Diagnostic("file-error", f"`{error.filename}`: {reason}" if error.filename else reason)], {})
        return INPUT_ERROR
    except NacreError as error:
        report([_wrong_artifact(error)], {})
        return INPUT_ERROR
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        text = StringIO()
        error.show(text)
        tell(text.getvalue().rstrip("\n"))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except WrongNumbersError as failure:
        report([failure.diagnostic], failure.sources)
        tell(f"{_AGAIN} {failure.reproducer}")
        return COMPILER_ERROR
    except CompilerError as failure:
        if failure.what.startswith(NO_ANSWER):
            report([_too_slow(failure)], {})
            tell(f"{_AGAIN} {failure.reproducer}")
            return INPUT_ERROR
        what = (failure.what.splitlines() or [""])[0]
        tell(f"nacre: {failure.headline}: {what}"[:300])
        if failure.nodes:
            more = f", and {len(failure.nodes) - 1} more" if len(failure.nodes) > 1 else ""
            tell(f"the kernel computes {failure.nodes[0]}{more}")
        tell(f"{_AGAIN} {failure.reproducer}")
        return COMPILER_ERROR
    except Exception as error:
        _report_error(error, arguments)
        return COMPILER_ERROR
