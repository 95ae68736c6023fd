"""Failures defined by a user's command: it receives the case as a model file, and its exit code decides."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...base.environment import users_environment
from .case import Case
from .failures import KINDS
from .storage import write_case

NONZERO, ZERO = "nonzero", "zero"
EXITS = (NONZERO, ZERO)
_NOT_RUN: Mapping[int, str] = {126: "it is not executable", 127: "there is no such command"}
"""The exit codes with which a shell reports that it could not run a command."""


def _not_run(command: str, code: int) -> DiagnosticError:
    near = get_close_matches(command, KINDS, n=1)
    help_text = f"did you mean `{near[0]}`?" if near else f"the failure kinds are {', '.join(KINDS)}"
    message = f"the shell cannot run `{command}`: {_NOT_RUN[code]} (exit code {code})"
    return DiagnosticError([Diagnostic("bad-command", message, help=help_text)])


@dataclass(frozen=True, slots=True)
class CommandFinder:
    """Finds cases on which the shell command `command` fails. `{}` in it denotes the model file, which otherwise is the
    last argument. A case fails if the exit code matches `exits`, within the time limit in seconds. Raises
    DiagnosticError if the shell cannot run the command."""

    command: str
    exits: str
    seconds: float

    def fails(self, case: Case) -> bool:
        with TemporaryDirectory(prefix="nacre-bisect-") as name:
            path = Path(name) / "model.nacre"
            try:
                write_case(case, path)
            except DiagnosticError:
                return False
            code = self._run(path)
            if code is not None and code in _NOT_RUN:
                raise _not_run(self.command, code)
            return code is not None and (code != 0) == (self.exits == NONZERO)

    def find(self, cases: Sequence[Case]) -> Case | None:
        return next((case for case in cases if self.fails(case)), None)

    def _run(self, path: Path) -> int | None:
        """Returns the exit code; None after a timeout."""
        file = shlex.quote(os.fspath(path))
        text = self.command.replace("{}", file) if "{}" in self.command else f"{self.command} {file}"
        process = subprocess.Popen(
            text,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=users_environment(),
            start_new_session=True,
        )
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
