"""What ends a command: a fault of the input is told and exits with 1, a wrong command line with 2, a fault of the
compiler with 70 and a folder from which it can be run again. No command ends in a traceback.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...runtime.loader import NacreError
from ..codegen.child import CompilerFault
from ..version import __version__

INPUT_FAULT = 1
COMPILER_FAULT = 70

_COLOURS = {"error": "red", "warning": "yellow"}
_HEAD = re.compile(r"(error|warning)\[([\w-]+)\](: .*)")


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
        elif line.startswith("   = help:"):
            line = click.style(line, fg="green")
        lines.append(line)
    return "\n".join(lines)


def tell(diagnostics: Sequence[Diagnostic], sources: dict[str, str]) -> None:
    """Writes diagnostics to standard error, and how many there are."""
    click.echo(colour(str(DiagnosticError(diagnostics, sources))), err=True)
    errors = sum(d.severity == "error" for d in diagnostics)
    if errors > 1:
        click.echo(f"\n{errors} errors", err=True)


def keep_reproducer(arguments: Sequence[str]) -> Path:
    """A folder with the command, the versions and the traceback of the fault that is being handled."""
    folder = Path(tempfile.mkdtemp(prefix="nacre-fault-"))
    (folder / "command.txt").write_text(f"nacre {' '.join(arguments)}\ncwd {Path.cwd()}\n")
    (folder / "versions.txt").write_text(f"nacre {__version__}\npython {sys.version}\n{platform.platform()}\n")
    (folder / "traceback.txt").write_text(traceback.format_exc())
    return folder


def contained(command: Callable[[], object], arguments: Sequence[str]) -> int:
    """Runs the command and gives its exit code."""
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except DiagnosticError as error:
        tell(error.diagnostics, error.sources)
        return INPUT_FAULT
    except NacreError as error:
        tell([Diagnostic("bad-call", str(error))], {})
        return INPUT_FAULT
    except OSError as error:
        tell([Diagnostic("file-error", f"{error.filename or 'a file'}: {error.strerror or error}")], {})
        return INPUT_FAULT
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except CompilerFault as fault:
        click.echo(str(fault), err=True)
        return COMPILER_FAULT
    except Exception as error:
        folder = keep_reproducer(arguments)
        click.echo(f"nacre: a fault of the compiler: {type(error).__name__}: {error}", err=True)
        click.echo(f"what is needed to see it again is in {folder}", err=True)
        return COMPILER_FAULT
