"""An operator that needs an element of an axis refuses a call in which the axis has none."""

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.api import read_model
from nacre.dialect.dims import DimError
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import Array
from nacre.runtime.loader import ArgumentError

TEXT = """language 1
dim B in 0..4
dim N in 0..9
model best(x: f32[B, N]) -> i64[B] {
  y = x * 2.0
  return argmax(y, axis=1)
}
model first(x: f32[B, N]) -> i64[1, N] { return argmin(x, axis=0, keepdims=true, empty="zero") }
model picked(boxes: f32[N, 4], scores: f32[N]) -> i64[2], i64[] {
  i, count = nms(boxes, scores, size=2, iou_threshold=0.5, score_threshold=0.1)
  return i, count
}
"""
MESSAGE = r"needs N >= 1 for `argmax` at .*:6:10, which does not hold for `B` = 2, `N` = 0"


def empty(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def test_call_without_elements_is_refused(tmp_path: Path) -> None:
    nacre.compile(TEXT, tmp_path / "m.so", opt_level=0)
    entries = nacre.load(tmp_path / "m.so").entries
    with pytest.raises(ArgumentError, match=MESSAGE):
        entries["best"](empty(2, 0))
    assert entries["best"](empty(0, 3)).shape == (0,)
    assert entries["best"](np.eye(3, 4, dtype=np.float32)).tolist() == [0, 1, 2]
    assert entries["first"](empty(0, 3)).tolist() == [[0, 0, 0]]
    assert [a.tolist() for a in entries["picked"](empty(0, 4), empty(0))] == [[0, 0], 0]


def test_interpreter_refuses_it_as_well() -> None:
    module = read_model(TEXT).module
    interpreter = Interpreter(module, lambda parameter: empty(0))
    with pytest.raises(DimError, match=MESSAGE):
        interpreter.run("best", [empty(2, 0)])
    assert interpreter.run("first", [empty(0, 3)])[0].tolist() == [[0, 0, 0]]
