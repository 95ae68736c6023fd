"""Fixtures of the tests of the command line: models, artifacts, and `nacre` run in this process."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import DIGITS, DOUBLE, SCALED, Cli, Done
from nacre.compiler.cli.main import run
from safetensors.numpy import save_file


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command line in this process, where standard streams are no terminal."""

    def call(*arguments: str | Path, stdin: bytes = b"") -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err, *map(str, arguments[:1]))

    return call


@pytest.fixture(autouse=True)
def cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NACRE_CACHE", str(empty_cache))
    return empty_cache


@pytest.fixture
def double(tmp_path: Path) -> Path:
    path = tmp_path / "double.nacre"
    path.write_text(DOUBLE)
    return path


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """A model with a parameter, and its checkpoint beside it."""
    path = tmp_path / "scaled.nacre"
    path.write_text(SCALED)
    save_file({"scale": np.array([2, 3], np.float32)}, tmp_path / "scale.safetensors")
    return path


@pytest.fixture(scope="session")
def double_so(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("double") / "double.so"
    nacre.compile(DOUBLE, path)
    return path


@pytest.fixture(scope="session")
def digits_so(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    nacre.compile(DIGITS / "digits.nacre", path)
    return path
