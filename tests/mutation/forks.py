"""Runs pytest in forks of a process that has imported the packages that tests need, and nothing of the product.

A test of one second would otherwise cost three: the interpreter, NumPy, MLIR and pytest start with each mutant.

A run is ended when its processes have used more CPU time than it was given, or use none for a minute. Both say that a
test does not end, and neither depends on what else the machine does.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_IMPORTED = (
    *("numpy", "numpy.testing", "ml_dtypes", "lark", "safetensors.numpy", "click", "rich.console", "hypothesis"),
    *("onnx", "onnx.reference", "scipy.special", "scipy.signal", "json", "tempfile", "subprocess"),
    *("_pytest.tmpdir", "_pytest.capture", "ctypes", "unittest.mock", "multiprocessing", "concurrent.futures"),
)


IDLE = 60.0
"""Seconds in which processes that are at work use some CPU time, on a busy machine too."""
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run of pytest; `status` is None if it did not end by itself. `seconds` of CPU time were used."""

    status: int | None
    output: str
    seconds: float

    @property
    def failure(self) -> str:
        """The first test that fails, or how the run ended; "" if all tests passed."""
        if self.status in (0, 5):  # 5: no test was selected
            return ""
        lines = self.output.strip().splitlines()
        if self.status is None:
            return "time"
        if self.status == 4 and any(line.startswith(("ERROR: not found", "ERROR: file or dir")) for line in lines):
            return ""  # no test has run
        message = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return (message or lines[-1:] or ["it ended"])[0][:200]


def prepare() -> None:
    """Imports the packages of others that tests need. `sys.path` must not lead to the product yet."""
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def run_pytest(
    arguments: Sequence[str], root: Path, variables: Mapping[str, str], limit: float, output: Path
) -> Ending:
    """Runs pytest in a fork, in a session of its own that ends with it, for at most `limit` seconds of CPU time."""
    child = os.fork()
    if child == 0:
        _become(arguments, root, variables, output)
    status, seconds = wait(child, limit)
    if status is None:
        end_session(child)
        os.waitpid(child, 0)
    end_session(child)
    return Ending(status, output.read_text(errors="replace"), round(seconds, 1))


def wait(child: int, limit: float) -> tuple[int | None, float]:
    """Returns the exit code, None for a run that has to be ended, and the CPU time of the session."""
    used, progress, asked = 0.0, time.monotonic(), time.monotonic()
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), max(used, usage.ru_utime + usage.ru_stime)
        time.sleep(0.05)
        now = time.monotonic()
        if now - asked < 1:
            continue
        asked = now
        seconds = sum(times(child).values())
        if seconds > used + 0.1:
            used, progress = seconds, now
        if used > limit or now - progress > IDLE:
            return None, used


def times(session: int) -> dict[int, float]:
    """The processes of a session, with the CPU time of each and of its ended children."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found[int(folder.name)] = sum(map(int, fields[11:15])) * _TICK
    return found


def end_session(session: int) -> None:
    """Ends all processes of a session, also those in process groups of their own."""
    while processes := times(session):
        if set(processes) == {session}:
            os.kill(session, signal.SIGKILL)
            return  # it is waited for
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _become(arguments: Sequence[str], root: Path, variables: Mapping[str, str], output: Path) -> None:
    status = 99
    try:
        os.setsid()
        with output.open("wb") as file, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(root)
        os.environ.update(variables)
        # As if the interpreter had started with this PYTHONPATH.
        sys.path[:0] = variables["PYTHONPATH"].split(os.pathsep)
        status = int(pytest.main(list(arguments)))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
