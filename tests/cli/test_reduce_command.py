"""`nacre reduce` on the command line: what it shows while it works, and that what it leaves can be used."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from cli_harness import Cli, nacre_process, on_terminal
from nacre.compiler.base.environment import BLAS_THREADS

MODEL = "model f(x: f32[2, 6]) -> f32[2, 6] {\n  y = softmax(exp(x))\n  return tanh(y) + 1\n}\n"


def test_progress_is_for_terminals_and_the_result_runs(cli: Cli, tmp_path: Path) -> None:
    model, small = tmp_path / "model.nacre", tmp_path / "small.nacre"
    model.write_text(MODEL)
    arguments = ("reduce", model, "--fails", "grep -q softmax", "--exits", "zero", "-o", small)
    shown = on_terminal(*arguments)
    assert shown.code == 0 and "nodes are left" in shown.out and "more tries" in shown.out, shown.out
    silent = cli(*arguments)
    assert silent.code == 0 and silent.err.startswith("wrote ") and silent.err.count("\n") == 1
    inputs = tmp_path / "small.inputs.npz"
    with np.load(inputs) as saved:
        (name,) = saved.files
    done = cli("run", "--json", small, "--input", f"{name}={inputs}:{name}")
    assert done.code == 0, done.err
    assert cli("test", small).code == 0


def test_a_command_of_the_user_has_the_environment_of_the_user(tmp_path: Path) -> None:
    """The program itself multiplies on one thread."""
    model, small = tmp_path / "model.nacre", tmp_path / "small.nacre"
    model.write_text(MODEL)
    environment = {name: value for name, value in os.environ.items() if name != BLAS_THREADS}
    command = f'grep -q softmax {{}} && test -z "${BLAS_THREADS}"'
    done = nacre_process("reduce", model, "--fails", command, "--exits", "zero", "-o", small, env=environment)
    assert done.code == 0 and "softmax" in small.read_text(), done.err
