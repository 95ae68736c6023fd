"""A budget of the memory of a training step: values are computed again, and the results have the same bits."""

from __future__ import annotations

import re
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language.elaborate import load_module

TEXT = """language 1
dim B in 1..512

block Layer<width>(x: f32[B, width]) -> f32[B, width] {
  param up: f32[4*width, width] = random_normal((4*width, width), seed) / sqrt(width)
  param down: f32[width, 4*width] = random_normal((width, 4*width), seed) / sqrt(4*width)
  param gain: f32[width] = 1.0
  y = layer_norm(x, gain, zeros((width,)))
  return x + tanh(y @ up.T) @ down.T
}

train step(x: f32[B, 32], y: f32[B, 32]) -> loss: f32 {
  use layer[6] = Layer<32>
  h = x
  repeat i in 0..6 { h = layer[i](h) }
  loss = mean((h - y) ** 2)
  minimize loss with sgd<momentum=0.9>(lr=0.1)
}
"""


@pytest.mark.parametrize(("level", "limit"), [(0, 1300), (2, 900)])
def test_results_have_the_same_bits(level: int, limit: int, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if level == 0 and not pytestconfig.getoption("--variants"):
        pytest.skip("level 0 is run with --variants")
    states, losses, needs = [], [], []
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 256, 32)).astype(np.float32)
    for number, budget in enumerate(("", f"budget step {{ memory(B=256) <= {limit} KiB }}")):
        session = nacre.compile(TEXT + budget, tmp_path / f"{number}.so", opt_level=level).session()
        needs.append(session.entries["step"].workspace_bytes(B=256))
        losses.append([float(session.step(x, y)) for _ in range(3)])
        states.append({name: np.asarray(value).copy() for name, value in session.states.items()})
    assert needs[0] > 1024 * limit >= needs[1]
    assert losses[0] == losses[1] and losses[0][2] < losses[0][0]
    for name, value in states[0].items():
        np.testing.assert_array_equal(states[1][name], value, err_msg=name)


def test_a_budget_that_copies_cannot_meet_is_an_error() -> None:
    text = TEXT.replace("layer[6]", "layer[2]").replace("0..6", "0..2") + "budget step { memory(B=256) <= 100 KiB }"
    with pytest.raises(nacre.DiagnosticError, match=r"the budget is <= 100 KiB"):
        nacre.compile(text, opt_level=0)


def test_the_cost_is_a_note_of_the_build() -> None:
    text = TEXT + "budget step { memory(B=256) <= 900 KiB }"
    build = Build(load_module(text, text=True))
    build.make("optimized")
    (note,) = build.recomputed
    found = re.search(r"computes (\d+) nodes again to need less memory: ([\d.]+) MFLOP more \(([\d.]+)%\)", note)
    assert found is not None and int(found[1]) > 10 and 5 < float(found[3]) < 35, note


def test_an_update_in_a_products_epilogue_keeps_no_activations() -> None:
    text = """language 1
block Layer(x: f32[64, 8]) -> f32[64, 8] {
  param w: f32[8, 8] = random_normal((8, 8), seed)
  return tanh(x @ w)
}
train step(x: f32[64, 8]) -> loss: f32 {
  use layer[4] = Layer
  repeat i in 0..4 { x = layer[i](x) }
  loss = mean(x * x)
  minimize loss with sgd<momentum=0.9>(lr=0.1)
}
"""
    fused = [
        [inner.op for inner in node.regions[0].body]
        for node in Build(load_module(text, text=True)).optimize().function("step").body
        if node.op == "fusion"
    ]
    updates = [turn for turn, ops in enumerate(fused) if "einsum" in ops and "add" in ops]
    products = [turn for turn, ops in enumerate(fused) if "matmul" in ops]
    # Only the update of the first layer stands behind the last product of the backward computation.
    assert len(updates) == 4 and sum(turn > max(products) for turn in updates) == 1
