"""The chat sample: SmolLM2 knows the capital of France. It downloads the model once, and runs with --variants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "samples" / "chat" / "ask.py"


def test_a_question_is_answered(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("a model of 98 MB is compiled with --variants")
    command = [sys.executable, str(SAMPLE), "What is the capital of France?"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "The capital of France is Paris.\n", done.stderr


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, str(SAMPLE), "a", "--model", str(tmp_path / "no.gguf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no.gguf" in done.stderr and "Traceback" not in done.stderr
