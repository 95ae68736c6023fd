"""Children that `nacre bisect` starts leave no files, however they end."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from nacre.compiler.base.compiler_errors import CompilerError, new_reproducer
from nacre.compiler.options import Options
from nacre.compiler.readers.language import load_module
from nacre.compiler.tools.bisect import failures

TEXT = "language 1\n\ndim B in 1..8\n\nmodel f(x: f32[B, 3]) -> f32[B, 3] {\n  return relu(x)\n}\n"


def fail(build: object, path: Path) -> None:
    raise CompilerError("planted", "lower", "", new_reproducer())


def crash(build: object, path: Path) -> None:
    new_reproducer()
    tempfile.mkdtemp()
    path.write_bytes(b"half of a library")
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("end", [fail, crash], ids=["an error", "a signal"])
def test_a_build_at_many_sizes(end: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures.Build, "run", end)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert failures.Examiner(Options(), 60).failing_sizes(load_module(TEXT, text=True), "f") == []
    assert list(tmp_path.iterdir()) == []
