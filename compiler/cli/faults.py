"""What ends a command: a fault of the input is told and exits with 1, a wrong command line with 2, a fault of the
compiler with 70 and a folder from which it can be run again. No command ends in a traceback.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ...runtime.loader import NacreError
from ..checking.faults import WrongNumbers
from ..codegen.child import NO_ANSWER
from ..faults import RERUN, CompilerFault, new_reproducer, write_reproducer
from ..stage_faults import NACRE

INPUT_FAULT = 1
COMPILER_FAULT = 70
INTERRUPTED = 130

_COLOURS = {"error": "red", "warning": "yellow"}
_HEAD = re.compile(r"(error|warning)\[([\w-]+)\](: .*)")
_KEPT_BYTES = 1 << 20
_QUOTED = re.compile(r'"([^"\n]+)"')
_AGAIN = f"`sh {RERUN}` shows it again in"


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
    with those that they name, and a script that runs the command on them. Raises OSError.
    """
    folder = new_reproducer()
    kept = [_keep_argument(argument, folder) for argument in arguments]
    write_reproducer(folder, {"traceback.txt": traceback.format_exc()}, [*NACRE, *kept])
    return folder


def _keep_argument(argument: str, folder: Path) -> str:
    """What stands for an argument in the folder: the name of a file there; the whole path of what is no file."""
    name, equals, value = argument.rpartition("=")
    path = Path(value)
    if value.startswith("-") or not path.exists():
        return argument
    if not path.is_file():
        return f"{name}{equals}{path.absolute()}"
    place = Path(path.name)
    while (folder / place).exists():
        place = Path(f"other-{place}")
    _keep_file(path, folder / place)
    return f"{name}{equals}{place}"


def _keep_file(path: Path, place: Path) -> None:
    """Copies a file, and what a model names that lies below its folder; what is large stays where it is."""
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size > _KEPT_BYTES:
        place.symlink_to(path.absolute())
        return
    shutil.copyfile(path, place)
    if path.suffix == ".nacre":
        for name in _QUOTED.findall(path.read_text(encoding="utf-8", errors="replace")):
            named = Path(name)
            if not named.is_absolute() and ".." not in named.parts and (path.parent / named).is_file():
                _keep_file(path.parent / named, place.parent / named)


def _tell_fault(error: Exception, arguments: Sequence[str]) -> None:
    what = (str(error).splitlines() or [""])[0]
    click.echo(f"nacre: a fault of the compiler: {type(error).__name__}: {what}"[:300], err=True)
    try:
        click.echo(f"{_AGAIN} {keep_reproducer(arguments)}", err=True)
    except OSError as reason:
        click.echo(f"what is needed to see it again cannot be kept: {reason.strerror}", err=True)


def _too_slow(fault: CompilerFault) -> Diagnostic:
    """The limit is the user's, and whether the code generator hangs or is merely slow is not known."""
    subject = f"kernel `{fault.kernel}`" if fault.kernel else "the entries"
    seconds = fault.what.removeprefix(NO_ANSWER).strip()
    notes = tuple(map(Note, fault.nodes[:1]))
    message = f"code generation of {subject} took longer than {seconds}, in the stage `{fault.stage}`"
    return Diagnostic("timeout", message, notes=notes, help="--timeout allows more")


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
        click.echo(f"{_AGAIN} {fault.reproducer}", err=True)
        return COMPILER_FAULT
    except CompilerFault as fault:
        if fault.what.startswith(NO_ANSWER):
            tell([_too_slow(fault)], {})
            click.echo(f"{_AGAIN} {fault.reproducer}", err=True)
            return INPUT_FAULT
        what = (fault.what.splitlines() or [""])[0]
        click.echo(f"nacre: {fault.headline}: {what}"[:300], err=True)
        if fault.nodes:
            more = f", and {len(fault.nodes) - 1} more" if len(fault.nodes) > 1 else ""
            click.echo(f"it computes {fault.nodes[0]}{more}", err=True)
        click.echo(f"{_AGAIN} {fault.reproducer}", err=True)
        return COMPILER_FAULT
    except Exception as error:
        _tell_fault(error, arguments)
        return COMPILER_FAULT
