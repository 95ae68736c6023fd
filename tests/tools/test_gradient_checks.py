"""`nacre test --gradients`: right gradients pass, and a wrong rule is named with its line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nacre.compiler.readers.language.elaborate import load_module
from nacre.compiler.tools.gradients import test_gradients as check_gradients
from nacre.dialect.interpreter import load_parameter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import Array

MODEL = """language 1
dim T in 1..9
train step(x: f32[T, 3], c: bool) -> loss: f32 {
  param weight: f32[3] = [0.5, -1.0, 2.0]
  scan t in 0..T with h = zeros((3,)) {
    h = tanh(h * weight + x[t])
  }
  loss = if c { sum(h * h) } else { mean(exp(h)) }
  minimize loss with sgd(lr=0.1)
}

model predict(x: f32[T, 3]) -> f32[T] {
  repeat i in 0..2 { x = softmax(x @ ones((3, 3))) }
  return max(x, axis=1)
}
"""


def outcomes(text: str = MODEL) -> dict[str, list[str]]:
    def load(parameter: object) -> Array:
        return load_parameter(parameter, lambda _: np.zeros(0))  # type: ignore[arg-type]

    found: dict[str, list[str]] = {"passed": [], "failed": []}
    for outcome in check_gradients(load_module(text, text=True, name="m").module, load):
        found["passed" if outcome.passed else "failed"].append(f"{outcome.model}: {outcome.title}: {outcome.detail}")
    return found


def test_right_gradients_pass() -> None:
    found = outcomes()
    assert not found["failed"]
    assert [text.split(":")[0] for text in found["passed"]] == ["step", "predict"]
    assert all("agree with finite differences" in text for text in found["passed"])


MASKED = """language 1
model masked(x: f32[9]) -> f32 { return sum(softmax(where(iota((9,)) < 2, x, -inf)) * x) }
"""


@pytest.mark.filterwarnings("error")
def test_infinite_values_cause_no_warning() -> None:
    assert not outcomes(MASKED)["failed"]


def plant(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives an operator a wrong gradient."""
    record = OPERATORS[operator]

    def wrong(b, use):  # type: ignore[no-untyped-def]
        return [None if part is None else b.multiply(part, b.like(1.01, part)) for part in record.gradient(b, use)]

    monkeypatch.setitem(OPERATORS, operator, replace(record, gradient=wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "line"), [("tanh", 6), ("exp", 8), ("softmax", 13)])
def test_a_wrong_rule_is_named(operator: str, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(operator, monkeypatch)
    assert any(f"gradient of `{operator}` at m.nacre:{line}:" in text for text in outcomes()["failed"])


UNDEFINED = """language 1
model f(x: f32[5], mask: bool[5]) -> f32[5] {
  y = log(x) + where(mask, 0.0, -inf)
  y = softmax(y)
  h = zeros((5,))
  repeat i in 0..2 { h = relu(h) + 1.0 }
  return sqrt(zeros((5,)) * x) * y + h
}
"""


@pytest.mark.parametrize(("operator", "line"), [("log", 3), ("softmax", 4), ("relu", 6), ("sqrt", 7), ("multiply", 7)])
def test_nodes_without_a_derivative_are_checked_elsewhere(
    operator: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operands of the nodes are NaN, infinite, or at kinks."""
    found = outcomes(UNDEFINED)
    assert not found["failed"] and "not checked" not in found["passed"][0]
    plant(operator, monkeypatch)
    assert any(f"gradient of `{operator}` at m.nacre:{line}:" in text for text in outcomes(UNDEFINED)["failed"])


def test_an_infinite_slope_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def infinite(b, use):  # type: ignore[no-untyped-def]  # as a rule of any operator
        (part,) = OPERATORS["exp"].gradient(b, use)
        return [b.multiply(part, b.like(float("inf"), part))]

    monkeypatch.setitem(OPERATORS, "tanh", replace(OPERATORS["tanh"], gradient=infinite))  # type: ignore[arg-type]  # read-only
    assert any("gradient of `tanh`" in text for text in outcomes()["failed"])


def test_indices_that_are_computed() -> None:
    """Random integers may be outside of the axis, so that the entry runs with zeros."""
    text = "language 1\nmodel f(x: f32[2], ids: i64[9]) -> f32[9] { y[t] = exp(x[2 * ids[t] + 1]); return y }"
    assert not outcomes(text)["failed"]
