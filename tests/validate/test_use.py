"""Sizes that a dim does not allow must be refused, and sessions begin with the initial values of their states. A check
that expects other sizes or values names what it finds."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language import load_module
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.stateful import check_session
from nacre.compiler.validate.usage import check_use

MODEL = """language 1
dim B in 4..40 multiple 4
dim T in 0..9
model f(x: f32[B, T], y: f32[T]) -> f32[B, T] {
  return x + y
}
model g(x: f32[B, 3]) -> f32[B, 3] {
  state c: f32[B, 3] = 2.5
  state n: i64
  c = c + x
  n = n + 1
  return c
}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("refusals") / "model.so"
    nacre.compile(MODEL, path, opt_level=0)
    return path


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("dim B in 4..40 multiple 4\ndim T in 0..9", None),
        ("dim B in 8..40 multiple 4\ndim T in 0..9", "a call with B=4 is accepted: dim B in 8..40 multiple 4"),
        ("dim B in 4..32 multiple 4\ndim T in 0..9", "a call with B=36 is accepted: dim B in 4..32 multiple 4"),
        ("dim B in 4..40 multiple 4\ndim T in 2..9", "a call with T=1 is accepted: dim T in 2..9"),
        (
            "dim B in 4..40 multiple 4\ndim T in 0..8 multiple 2",
            "a call with T=1 is accepted: dim T in 0..8 multiple 2",
        ),
    ],
)
def test_a_size_that_should_be_refused(dims: str, expected: str | None, artifact: Path) -> None:
    body = MODEL[MODEL.index("model f") : MODEL.index("model g")]
    function = load_module(f"language 1\n{dims}\n{body}", text=True).module.function("f")
    trial = random_trial(function, {"B": 8, "T": 4})
    assert check_use(artifact, function, trial, lambda _: None) == expected


def test_the_states_of_a_new_session(artifact: Path) -> None:
    def check(c: float, n: int) -> str | None:
        initial = [np.full((8, 3), c, np.float32), np.full((), n, np.int64)]
        return check_session(artifact, "g", {"B": 8}, initial, lambda _: None)

    assert check(2.5, 0) is None
    assert check(2.6, 0) == "a new session does not begin with the initial value of `c`"
    assert check(2.5, 1) == "a new session does not begin with the initial value of `n`"
