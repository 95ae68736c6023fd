"""Runs pytest in forks of a process that has imported the packages that tests need, and nothing of the product.

A test of one second would otherwise cost three: the interpreter, NumPy, MLIR and pytest start with each mutant.
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


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run of pytest; `status` is None if it exceeded its limit."""

    status: int | None
    output: str
    seconds: float

    @property
    def failure(self) -> str:
        """The first test that fails, or how the run ended; "" if all tests passed that ran within the limit."""
        if self.status in (0, 5):  # 5: no test was selected
            return ""
        lines = self.output.strip().splitlines()
        if self.status is None:
            # Dots say that tests went on passing; without one, the first test does not end.
            return "" if any(set(line.split(" ")[0]) <= set(".sx") and "." in line for line in lines) else "time"
        if self.status == 4 and any(line.startswith(("ERROR: not found", "ERROR: file or dir")) for line in lines):
            return ""  # no test has run
        told = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return (told or lines[-1:] or ["it ended"])[0][:200]


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
    """Runs pytest in a fork, in a session of its own that ends with it."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(arguments, root, variables, output)
    status = _wait(child, begin + limit)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return Ending(status, output.read_text(errors="replace"), round(time.monotonic() - begin, 1))


def _wait(child: int, end: float) -> int | None:
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return None


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
