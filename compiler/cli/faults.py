"""What ends a command: a fault of the input is told and exits with 1, a wrong command line with 2, a fault of the
compiler with 70 and a folder from which it can be run again. No command ends in a traceback.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...runtime.loader import NacreError
from ..checking.faults import WrongNumbers
from ..codegen.faults import CompilerFault
from ..version import __version__

INPUT_FAULT = 1
COMPILER_FAULT = 70
INTERRUPTED = 130

_COLOURS = {"error": "red", "warning": "yellow"}
_HEAD = re.compile(r"(error|warning)\[([\w-]+)\](: .*)")
_KEPT_BYTES = 1 << 20


def colour(text: str) -> str:
    """A rendered diagnostic with its parts told apart; click drops the colours where the output is no terminal."""
    lines = []
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            severity, code, message = head.groups()
            line = click.style(f"{severity}[{code}]", fg=_COLOURS[severity], bold=True) + click.style(
                message, bold=True
            )
        elif re.match(r" *\| [ \t]*\^", line):
            bar, rest = line.split("|", 1)
            line = f"{bar}|{click.style(rest, fg='red')}"
        elif re.match(r" *= help:", line):
            line = click.style(line, fg="green")
        lines.append(line)
    return "\n".join(lines)


def tell(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]) -> None:
    """Writes diagnostics to standard error, and how many there are."""
    text = str(DiagnosticError(diagnostics, sources))
    click.echo(text if os.environ.get("NO_COLOR") else colour(text), err=True)
    errors = sum(d.severity == "error" for d in diagnostics)
    if errors > 1:
        click.echo(f"\n{errors} errors", err=True)


def keep_reproducer(arguments: Sequence[str]) -> Path:
    """A folder with the traceback of the fault that is being handled, the versions, the files that the command names
    where they are small, and a script that runs it again.
    """
    folder = Path(tempfile.mkdtemp(prefix="nacre-fault-"))
    command = [sys.executable, "-m", "nacre.compiler.cli.main", *arguments]
    texts = {
        "rerun.sh": f"#!/bin/sh\ncd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}\n",
        "versions.txt": f"nacre {__version__}\npython {sys.version}\n{platform.platform()}\n",
        "traceback.txt": traceback.format_exc(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    for path in map(Path, arguments):
        if path.is_file() and path.stat().st_size <= _KEPT_BYTES:
            shutil.copyfile(path, folder / path.name)
    return folder


def _tell_fault(error: Exception, arguments: Sequence[str]) -> None:
    what = (str(error).splitlines() or [""])[0]
    click.echo(f"nacre: a fault of the compiler: {type(error).__name__}: {what}"[:300], err=True)
    try:
        click.echo(f"what is needed to see it again is in {keep_reproducer(arguments)}", err=True)
    except OSError as reason:
        click.echo(f"what is needed to see it again cannot be kept: {reason.strerror}", err=True)


def contained(command: Callable[[], object], arguments: Sequence[str]) -> int:
    """Runs the command and gives its exit code."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except DiagnosticError as error:
        tell(error.diagnostics, error.sources)
        return INPUT_FAULT
    except NacreError as error:
        tell([Diagnostic("bad-call", str(error))], {})
        return INPUT_FAULT
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        tell([Diagnostic("file-error", f"`{error.filename}`: {reason}" if error.filename else reason)], {})
        return INPUT_FAULT
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except WrongNumbers as fault:
        tell([fault.diagnostic], fault.sources)
        click.echo(f"what is needed to see it again is in {fault.reproducer}", err=True)
        return COMPILER_FAULT
    except CompilerFault as fault:
        where = f" in `{fault.kernel}`" if fault.kernel else ""
        what = (fault.what.splitlines() or [""])[0]
        click.echo(f"nacre: code generation failed at stage {fault.stage}{where}: {what}"[:300], err=True)
        click.echo(f"what is needed to see it again is in {fault.reproducer}", err=True)
        return COMPILER_FAULT
    except Exception as error:
        _tell_fault(error, arguments)
        return COMPILER_FAULT
