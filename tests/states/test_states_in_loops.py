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


CHANGED = """
dim T in 0..8
block Cell(x: f32[T, 3]) -> f32[T, 3] {
  state h: f32[3]
  state n: i64 = 1
  y = scan t in 0..T with h = h, n = n {
    h = tanh(h + x[t])
    n = n + 1
  } collect h
  return y + h
}
model step(x: f32[T, 3]) -> f32[T, 3] {
  use cell[2] = Cell
  state rounds: i64
  while max(abs(x)) > 1 and rounds < 100 with x = x, rounds = rounds { x = x / 2; rounds = rounds + 1 }
  return cell[1](cell[0](x))
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_a_state_that_a_loop_carries_is_changed(tmp_path: Path, level: int) -> None:
    session = nacre.compile(CHANGED, tmp_path / "m.so", opt_level=level).session()
    rng = np.random.default_rng(0)
    h, n, rounds = [np.zeros(3, np.float32)] * 2, 1, 0
    for length in (3, 0, 1, 8):
        x = rng.standard_normal((length, 3)).astype(np.float32) * 3
        y = x
        while np.abs(y).max(initial=-np.inf) > 1 and rounds < 100:
            y, rounds = y / 2, rounds + 1
        for number in range(2):
            rows = []
            for row in y:
                h[number] = np.tanh(h[number] + row)
                rows.append(h[number])
            y = np.reshape(rows, (length, 3)).astype(np.float32) + h[number]
        n += length
        np.testing.assert_allclose(session(x), y, rtol=1e-5, atol=1e-6)
        for number in range(2):
            np.testing.assert_allclose(session.states[f"cell.{number}.h"], h[number], rtol=1e-5, atol=1e-6)
            assert session.states[f"cell.{number}.n"] == n
        assert session.states["rounds"] == rounds


MISPLACED = "a state cannot be declared or assigned inside of a loop or branch"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "scan t in 0..3 with k = x { k = cell(k) }",
            "a state cannot be declared or assigned inside of a loop or branch",
        ),
        ("scan t in 0..3 with s = [1.0, 2.0] { s = s * 2 }", "the state `s` is f32[3], not f32[2]"),
        ("scan t in 0..3 with k = x { s = k }", "`s` is assigned inside `scan`, which does not change it outside"),
        ("y = if c { s[0] = 1; s } else { s }", MISPLACED),
    ],
)
def test_states_in_bodies_that_are_refused(body: str, message: str) -> None:
    text = f"""
block Cell(x: f32[3]) -> f32[3] {{
  state h: f32[3]
  h = h + x
  return h
}}
model f(x: f32[3], c: bool) -> f32[3] {{
  use cell = Cell
  state s: f32[3]
  {body}
  return cell(s)
}}
"""
    assert message in "\n".join(diagnostic.message for diagnostic in nacre.check(text))
