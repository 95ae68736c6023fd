"""Blocks with a gradient of their own: what flows through them, in the interpreter and compiled."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language.elaborate import load_module
from nacre.compiler.tools.gradients import test_gradients as check_gradients
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F64, Array
from nacre.passes.autodiff.differentiate import with_gradients

TEXT = """language 1
dim N in 0..64

# The gradient is 3 times the true one, and the second argument receives none.
block Scaled(x: f32[...], w: f32[...], ids: i64) -> y: f32[...], n: i64 {
  y = x * w
  grad {
    dx = 3 * dy * w
    dw = 0
  }
  return y, ids + 1
}

block Twice(x: f32[...], w: f32[...]) -> f32[...] {
  y, _n = Scaled(x, w, 0)
  return y * y
}

model f(x: f32[N], w: f32[N], flag: bool) -> f32 {
  scan t in 0..N with total = 0.0 {
    y, _n = Scaled(x[t], w[t], t)
    total = total + y * exp(total)
  }
  y = if flag { sum(Twice(x, w)) } else { sum(x) }
  repeat i in 0..2 { y = y + sum(Twice(x, w)) }
  return y + total
}

train step(x: f32[N]) -> loss: f32 {
  param scale: f32 = 2.0
  y, _n = Scaled(x, broadcast_to(scale, x.shape), 1)
  loss = sum(Twice(y * scale, y))
  minimize loss with sgd(lr=0.001)
}
"""


def no_weights(_: object) -> Array:
    raise AssertionError("the model has no parameters")


@pytest.mark.parametrize("flag", [False, True])
def test_the_stated_gradient_flows(flag: bool) -> None:
    module = with_gradients(load_module(TEXT, text=True).module, "f", ["x", "w"])
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 5))
    result, dx, dw = Interpreter(module, no_weights, precision=F64).run("f", [x, w, np.asarray(flag)])
    total, factors = 0.0, []
    for p in x * w:
        factors.append((np.exp(total), 1 + p * np.exp(total)))
        total += p * np.exp(total)
    after = np.cumprod([1.0, *[f for _, f in factors[:0:-1]]])[::-1]
    expected = 3 * w * after * [e for e, _ in factors] + (2 + flag) * 3 * w * 2 * x * w + (not flag)
    np.testing.assert_allclose(dx, expected, rtol=1e-9)
    np.testing.assert_array_equal(dw, 0)
    assert float(result) == pytest.approx(total + ((x * w) ** 2).sum() * (2 + flag) + (0 if flag else x.sum()))


def test_a_gradient_that_is_not_the_slope_is_named() -> None:
    outcomes = check_gradients(load_module(TEXT, text=True, name="m").module, no_weights)
    failed = {(outcome.model, outcome.title) for outcome in outcomes if not outcome.passed}
    assert ("f", "gradient of `Scaled` at m.nacre:7:3") in failed
    right = TEXT.replace("3 * dy * w", "dy * w").replace("dw = 0", "dw = dy * x")
    outcomes = check_gradients(load_module(right, text=True, name="m").module, no_weights)
    assert [outcome.passed for outcome in outcomes] == [True, True]


@pytest.mark.parametrize("level", [0, 2])
def test_compiled(level: int, tmp_path: Path) -> None:
    model = nacre.compile(TEXT, tmp_path / "m.so", opt_level=level)
    module = load_module(TEXT, text=True).module
    for count in (0, 1, 7):
        x, w = np.random.default_rng(count).standard_normal((2, count)).astype(np.float32)
        for flag in (False, True):
            (expected,) = Interpreter(module, no_weights).run("f", [x, w, np.asarray(flag)])
            np.testing.assert_allclose(model.f(x, w, flag), expected, rtol=1e-5, atol=1e-6)
    session = model.session()
    x = np.float32([0.5, -1.0, 2.0])
    scale = 2.0
    # loss = sum((y s)^2 y^2), y = x s. Gradients reach `scale` through the product alone, three times the true one.
    session.entries["step"](x)
    y = x * scale
    slope = (3 * 2 * (y * scale) * y * y * y).sum()
    assert float(session.states["scale"]) == pytest.approx(scale - 0.001 * slope, rel=1e-5)
