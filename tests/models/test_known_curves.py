"""Training steps reproduce the published losses of a small network: micrograd's demo on two moons."""

from __future__ import annotations

import os
from pathlib import Path

import nacre
import numpy as np
import pytest

DATA = Path(os.environ.get("NACRE_TEST_DATA", "")) / "training" / "micrograd_moons.npz"

MOONS = """language 1
block Layer<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]
  param bias: f32[outputs]
  return x @ weight.T + bias
}

block Net(x: f32[100, 2]) -> f32[100] {
  use first = Layer<2, 16>
  use second = Layer<16, 16>
  use third = Layer<16, 1>
  return (x |> first |> relu |> second |> relu |> third)[:, 0]
}

train step(x: f32[100, 2], y: f32[100], lr: f32) -> loss: f32, accuracy: f32 {
  use net = Net
  scores = net(x)
  squares = 0.0
  repeat layer in [net.first, net.second, net.third] {
    squares = squares + sum(layer.weight * layer.weight) + sum(layer.bias * layer.bias)
  }
  loss = mean(relu(1 - y * scores)) + 1e-4 * squares
  accuracy = mean(cast((scores > 0) == (y > 0), f32))
  minimize loss with sgd(lr=lr)
}
"""


@pytest.mark.skipif(not DATA.is_file(), reason="NACRE_TEST_DATA has no micrograd_moons.npz")
@pytest.mark.parametrize("level", [0, 2])
def test_two_moons(level: int, tmp_path: Path) -> None:
    data = np.load(DATA)
    names = {"W1": "net.first.weight", "W2": "net.second.weight", "W3": "net.third.weight"}
    names |= {"b1": "net.first.bias", "b2": "net.second.bias", "b3": "net.third.bias"}
    weights = {path: data[key].astype(np.float32) for key, path in names.items()}
    model = nacre.compile(MOONS, tmp_path / "moons.so", weights=weights, opt_level=level)
    session = model.session()
    step = session.entries["step"]
    x, y = data["X"].astype(np.float32), data["y"].astype(np.float32)
    results = np.array([[float(r) for r in step(x, y, np.float32(rate))] for rate in data["learning_rates"]])
    np.testing.assert_allclose(results[:, 0], data["losses"], rtol=0, atol=1e-6)
    accuracies = data["accuracies"] / (100 if data["accuracies"].max() > 1 else 1)
    np.testing.assert_allclose(results[:, 1], accuracies, rtol=0, atol=1e-6)
    for key, path in names.items():
        np.testing.assert_allclose(session.states[path], data[f"{key}_after"], rtol=0, atol=2e-6)
