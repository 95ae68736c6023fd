"""The magic `%%nacre`, in a shell of IPython."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

CELL = """\
model double<width>(x: f32[width]) -> f32[width] {
  param scale: f32[width]
  return x * scale
}
"""


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "nacre")
    yield made
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


def test_a_cell_becomes_a_model(shell: Any) -> None:
    shell.user_ns["arrays"] = {"scale": np.full(3, 2, "f4")}
    shell.run_cell_magic("nacre", "double --set width=3 --weights arrays", CELL)
    assert shell.user_ns["double"](np.arange(3, dtype="f4")).tolist() == [0, 2, 4]
    shell.run_cell_magic("nacre", "", "model f(x: f32) -> f32 { return x }")
    assert shell.user_ns["model"](np.float32(7)) == 7


def test_errors_are_printed(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["kept"] = 5
    for line, cell, said in (
        ("kept", "model f(x: f32) -> f32 {\n  return y\n}", "there is no name `y`"),
        ("kept --precison int8", "model f(x: f32) -> f32 { return x }", "No such option"),
        ("kept --weights nowhere", CELL, "no such file or folder"),
        ("'kept", CELL, "No closing quotation"),
    ):
        shell.run_cell_magic("nacre", line, cell)
        assert said in capsys.readouterr().err
    assert shell.user_ns["kept"] == 5
