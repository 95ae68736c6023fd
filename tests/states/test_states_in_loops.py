"""States whose values come from loops and branches: carried by a `scan`, read behind it, kept by one side."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest

CARRIED = """dim T in 0..16
model step(x: f32[T, 4]) -> f32[T, 4] {
  state h: f32[4]
  y = scan t in 0..T with a = h { a = a * 0.5 + x[t] } collect a
  h = a
  return y
}
"""
READ_LATER = """dim T in 0..16
model step(x: f32[T, 4], w: f32[4, 4]) -> f32[4] {
  state h: f32[4]
  scan t in 0..T with a = h { a = tanh(a @ w) + x[t] }
  old = h
  h = a
  return old * 2
}
"""
CHOSEN = """model step(x: f32[4], c: bool[]) -> f32[4] {
  state h: f32[4]
  h = if c { h + x } else { h }
  return h * 1
}
"""
LENGTHS = (3, 0, 1, 5)

with_level = pytest.mark.parametrize("level", [0, 2])


def compile_at(text: str, level: int, folder: Path) -> nacre.Model:
    return nacre.compile(text, folder / "model.so", opt_level=level)


@with_level
def test_a_carried_value_becomes_the_state(level: int, tmp_path: Path) -> None:
    session, rng = compile_at(CARRIED, level, tmp_path).session(), np.random.default_rng(0)
    h = np.zeros(4, np.float32)
    for length in LENGTHS:
        x = rng.standard_normal((length, 4)).astype(np.float32)
        result = session(x)
        for row, values in zip(x, result, strict=True):
            h = h * np.float32(0.5) + row
            np.testing.assert_allclose(values, h, atol=1e-6)
        np.testing.assert_allclose(session.states["h"], h, atol=1e-6)


@with_level
def test_the_old_value_is_read_after_the_loop(level: int, tmp_path: Path) -> None:
    session, rng = compile_at(READ_LATER, level, tmp_path).session(), np.random.default_rng(1)
    h, w = np.zeros(4, np.float32), rng.standard_normal((4, 4)).astype(np.float32)
    for length in LENGTHS:
        x = rng.standard_normal((length, 4)).astype(np.float32)
        np.testing.assert_allclose(session(x, w), h * 2, atol=1e-5)
        for row in x:
            h = np.tanh(h @ w) + row
        np.testing.assert_allclose(session.states["h"], h, atol=1e-5)


@with_level
def test_a_branch_keeps_the_state(level: int, tmp_path: Path) -> None:
    session, rng = compile_at(CHOSEN, level, tmp_path).session(), np.random.default_rng(2)
    h = np.zeros(4, np.float32)
    for changes in (True, False, True):
        x = rng.standard_normal(4).astype(np.float32)
        result = session(x, np.array(changes))
        h = h + x if changes else h
        np.testing.assert_array_equal(result, h)
        np.testing.assert_array_equal(session.states["h"], h)
