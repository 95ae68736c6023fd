"""Ranges that start at run time, of tensors and of states: the compiled code agrees with numpy at all levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.api import compile as compile_model
from nacre.compiler.readers.language import load_module
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.library import ArgumentError, OutOfRangeError

TEXT = """
dim S in 0..64
dim T in 0..8

model read(x: f32[2, S, 3], y: f32[T], at: i32) -> f32[2, T, 3], f32[T, 2], f32 {
  scan t in 0..2 with total = 0.0 { total = total + sum(x[t, at:at+T, 1:]) }
  return x[:, at:at+T], x[1, at:T+at, :2] + y[:, None], total
}

model keep(x: f32[T, 3], to: i64, at: i64) -> before: f32[T, 3], after: f32[T, 3] {
  state rows: f32[S, 3]
  before = rows[at:at+T]
  rows[to:to+T] = x
  return before, rows[at:at+T]
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_windows_of_tensors(tmp_path: Path, level: int) -> None:
    read = compile_model(TEXT, tmp_path / "m.so", opt_level=level).entries["read"]
    rng = np.random.default_rng(0)
    for size, length, starts in ((0, 0, (0,)), (1, 1, (0, -1)), (7, 3, (0, 4, -3, -7)), (64, 8, (5, 56)), (5, 0, (5,))):
        x, y = rng.standard_normal((2, size, 3)).astype(np.float32), rng.standard_normal(length).astype(np.float32)
        for at in starts:
            first = at + size if at < 0 else at
            part = x[:, first : first + length]
            window, added, total = read(x, y, np.int32(at))
            assert np.array_equal(window, part) and np.array_equal(added, part[1, :, :2] + y[:, None])
            np.testing.assert_allclose(total, part[..., 1:].sum(), rtol=1e-5, atol=1e-5)
    x, y = np.zeros((2, 7, 3), np.float32), np.zeros(3, np.float32)
    for at in (5, 7, -8):
        with pytest.raises(OutOfRangeError, match=f"a window of 3 that starts at {at} is out of range"):
            read(x, y, np.int32(at))
    with pytest.raises(ArgumentError, match="S - T >= 0"):
        read(np.zeros((2, 2, 3), np.float32), y, np.int32(0))


@pytest.mark.parametrize("level", [0, 2])
def test_windows_of_states(tmp_path: Path, level: int) -> None:
    model = compile_model(TEXT, tmp_path / "m.so", opt_level=level)
    for size, length in ((0, 0), (1, 1), (7, 3)):
        session, rows = model.session(S=size), np.zeros((size, 3), np.float32)
        keep = session.entries["keep"]
        for to in range(size - length + 1):
            for at in range(size - length + 1):
                x = np.full((length, 3), 1 + to + 10 * at, np.float32)
                before, after = keep(x, np.int64(to), np.int64(at))
                assert np.array_equal(before, rows[at : at + length])
                rows[to : to + length] = x
                assert np.array_equal(after, rows[at : at + length])
                assert np.array_equal(session.states["rows"], rows)
        with pytest.raises(OutOfRangeError):
            keep(np.ones((length, 3), np.float32), np.int64(0), np.int64(size + 1))
        assert np.array_equal(session.states["rows"], rows)  # a call that fails changes nothing


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("at:T", "a range that starts at a tensor needs a length that is known from the dims"),
        ("at:at+T:2", "a range that starts at a tensor needs a length that is known from the dims"),
        ("at:", "a range that starts at a tensor needs a length that is known from the dims"),
        ("x:x+T", "the start of a range is an integer scalar, not f32"),
        ("at:at+9", "a window of 9 elements never fits into axis 0, which has 8"),
    ],
)
def test_windows_that_are_refused(index: str, message: str) -> None:
    text = f"dim T in 1..4\nmodel f(v: f32[8], y: f32[T], x: f32, at: i64) -> f32[T] {{ return v[{index}] }}"
    with pytest.raises(DiagnosticError, match="error") as raised:
        load_module(text, text=True)
    assert message in str(raised.value)
