"""Forks of the process of the tests, in place of new processes in which readers parse files.

A new process imports packages for 20 times as long as it reads a small file. A fork has them, and runs the same main
program, with the same limits and streams.
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import IO, Any, NoReturn


class ForkedReaders:
    """Takes the place of the module `subprocess` in a reader, for commands of the form `python -m MODULE ...`."""

    TimeoutExpired = subprocess.TimeoutExpired

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert command[:2] == [sys.executable, "-m"] and options["capture_output"], command
        import_module(command[2])  # before the fork: the next one has it too
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with warnings.catch_warnings():
                # Python 3.12 warns where a process has threads. None of those of the tests holds what a child needs.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                _run_module(command[2:], out, err)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())


def _run_module(command: Sequence[str], out: IO[str], err: IO[str]) -> NoReturn:
    """Ends the process as `python -m` does."""
    code = 70
    try:
        faulthandler.disable()
        for stream, number in ((out, 1), (err, 2)):
            os.dup2(stream.fileno(), number)
        sys.stdout, sys.stderr, sys.argv = out, err, list(command)
        try:
            runpy.run_module(command[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=err)
        except BaseException as error:
            code = 1
            print(f"{type(error).__name__}: {error}", file=err)
        out.flush()
        err.flush()
    finally:
        os._exit(code)
