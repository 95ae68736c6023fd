"""The C sample builds from the emitted header, without a warning, and names the digits; nothing of Python is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    nacre = folder / "nacre"
    nacre.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nacre.compiler.cli.main "$@"\n')
    nacre.chmod(0o755)
    done = subprocess.run(
        ["sh", str(SAMPLES / "c" / "build.sh"), str(folder / "out")],
        cwd=folder,
        env={**os.environ, "NACRE": str(nacre)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out" / "classify"


def run(program: Path, text: str) -> subprocess.CompletedProcess[str]:
    """With an empty environment, in another folder."""
    return subprocess.run([program], input=text, cwd="/", env={}, capture_output=True, text=True)


def test_digits(program: Path) -> None:
    done = run(program, (SAMPLES / "c" / "digits.txt").read_text())
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["6", "2", "9"]


def test_whole_batch(program: Path) -> None:
    with np.load(SAMPLES / "digits" / "test_images.npz") as file:
        images, labels = file["images"][:256], file["labels"][:256]
    done = run(program, " ".join(map(str, images.reshape(-1).tolist())))
    assert done.returncode == 0, done.stderr
    answers = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert np.mean(answers == labels) >= 0.98


@pytest.mark.parametrize("text", ["", "1 2 3", "six", "0 " * 64 * 257])
def test_wrong_input(program: Path, text: str) -> None:
    done = run(program, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "input: expected 1 to 256 images of 64 numbers\n"
