"""LSTM and GRU written with `scan` agree with those of PyTorch that have the same weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.api import compile as compile_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

INPUTS, WIDTH = 12, 20
LSTM = f"""
dim B in 1..9
dim T in 0..40

block Cell<inputs, width>(x: f32[B, inputs], h: f32[B, width], c: f32[B, width]) -> f32[B, width], f32[B, width] {{
  param weight_ih: f32[4 * width, inputs]
  param weight_hh: f32[4 * width, width]
  param bias_ih: f32[4 * width]
  param bias_hh: f32[4 * width]
  i, f, g, o = split(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh, 4, axis=-1)
  c = sigmoid(f) * c + sigmoid(i) * tanh(g)
  return sigmoid(o) * tanh(c), c
}}

block Layer<inputs, width>(x: f32[B, T, inputs]) -> f32[B, T, width], f32[B, width], f32[B, width] {{
  use cell = Cell<inputs, width>
  y = scan t in 0..T with h = zeros([B, width], f32), c = zeros([B, width], f32) {{
    h, c = cell(x[:, t], h, c)
  }} collect h
  return transpose(y, (1, 0, 2)), h, c
}}

model lstm(x: f32[B, T, {WIDTH}]) -> f32[B, T, {WIDTH}], f32[B, {WIDTH}], f32[B, {WIDTH}] {{
  use layer[2] = Layer<{WIDTH}, {WIDTH}>
  h, c = zeros([B, {WIDTH}], f32), zeros([B, {WIDTH}], f32)
  repeat i in 0..2 {{ x, h, c = layer[i](x) }}
  return x, h, c
}}
"""
GRU = f"""
dim B in 1..9
dim T in 0..40

block Cell<inputs, width>(x: f32[B, inputs], h: f32[B, width]) -> f32[B, width] {{
  param weight_ih: f32[3 * width, inputs]
  param weight_hh: f32[3 * width, width]
  param bias_ih: f32[3 * width]
  param bias_hh: f32[3 * width]
  xr, xz, xn = split(x @ weight_ih.T + bias_ih, 3, axis=-1)
  hr, hz, hn = split(h @ weight_hh.T + bias_hh, 3, axis=-1)
  z = sigmoid(xz + hz)
  return (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h
}}

model gru(x: f32[B, T, {INPUTS}], h0: f32[B, {WIDTH}]) -> f32[T, B, {WIDTH}], f32[B, {WIDTH}] {{
  use cell = Cell<{INPUTS}, {WIDTH}>
  y = scan t in 0..T with h = h0 {{ h = cell(x[:, t], h) }} collect h
  return y, h
}}
"""
SIZES = [(b, t) for b in (1, 2, 9) for t in (0, 1, 2, 13, 40)]


def compiled(text: str, level: int, weights: dict[str, Any], folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are plain loops
        return compile_model(text, folder / f"{level}.so", opt_level=level, weights=weights)


def parameters(module: Any, names: dict[str, str]) -> dict[str, Any]:
    """The parameters of a module by the keys of the model: `names` maps the suffix of a layer to its path."""
    found = {}
    for key, value in module.state_dict().items():
        stem, _, layer = key.rpartition("_")
        found[f"{names[layer]}.{stem}"] = value.numpy()
    return found


@pytest.mark.parametrize("level", [0, 2])
def test_two_layers_of_lstm(level: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = torch.nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
    weights = parameters(reference, {"l0": "layer.0.cell", "l1": "layer.1.cell"})
    model = compiled(LSTM, level, weights, tmp_path)
    for batch, steps in SIZES:
        x = np.random.default_rng(steps).standard_normal((batch, steps, WIDTH)).astype(np.float32)
        y, h, c = model(x)
        assert y.shape == (batch, steps, WIDTH)
        if steps == 0:
            assert not h.any() and not c.any()
            continue
        with torch.no_grad():
            right, (last, cell) = reference(torch.tensor(x))
        for found, expected in ((y, right), (h, last[1]), (c, cell[1])):
            np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("level", [0, 2])
def test_gru(level: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = torch.nn.GRU(INPUTS, WIDTH)
    model = compiled(GRU, level, parameters(reference, {"l0": "cell"}), tmp_path)
    for batch, steps in SIZES:
        r = np.random.default_rng(steps)
        x = r.standard_normal((batch, steps, INPUTS)).astype(np.float32)
        h0 = r.standard_normal((batch, WIDTH)).astype(np.float32)
        y, h = model(x, h0)
        assert y.shape == (steps, batch, WIDTH)
        if steps == 0:
            np.testing.assert_array_equal(h, h0)
            continue
        with torch.no_grad():
            right, last = reference(torch.tensor(x.transpose(1, 0, 2).copy()), torch.tensor(h0)[None])
        np.testing.assert_allclose(y, right.numpy(), rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(h, last[0].numpy(), rtol=2e-5, atol=2e-6)
