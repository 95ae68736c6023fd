"""Operators of one call in PyTorch, compiled, against PyTorch: in f32 and f64, with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def random(*shape: int, dtype: str = "f32", seed: int = 0) -> Any:
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return found.to({"f32": torch.float32, "f64": torch.float64}[dtype])


def check(found: Any, expected: Any, dtype: str) -> None:
    found = list(found) if isinstance(found, tuple) else [found]
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        tolerance = 2e-5 if dtype == "f32" else 1e-12
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=tolerance, atol=tolerance)


FOURIER: dict[str, Callable[[Any], Any]] = {
    "fft(x)": torch.fft.fft,
    "fft(x, axes=(0, 1))": torch.fft.fft2,
    "rfft(x)": torch.fft.rfft,
    'rfft(x, axes=0, norm="ortho")': lambda x: torch.fft.rfft(x, dim=0, norm="ortho"),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("size", [7, 80, 400, 1031])
def test_fourier_of_any_size(size: int, dtype: str) -> None:
    """7 and 80 are small, 400 = 20 * 20, and 1031 is a prime above the limit of one matrix."""
    names = list(FOURIER)
    calls = "\n".join(f"  r{i}, i{i} = {name}" for i, name in enumerate(names))
    results = ", ".join(f"r{i}, i{i}" for i in range(len(names)))
    half = size // 2 + 1
    shapes = [(3, size), (3, size), (3, half), (2, size)]
    types = ", ".join(f"{dtype}[{a}, {b}]" for a, b in shapes for _ in range(2))
    back = f"irfft(r2, i2, size={size})"
    text = (
        f"model m(x: {dtype}[3, {size}]) -> {types}, {dtype}[3, {size}] {{\n{calls}\n  return {results}, {back}\n}}\n"
    )
    x = random(3, size, dtype=dtype)
    found = nacre.compile(text)(x.numpy())
    expected = [part for name in names for z in [FOURIER[name](x)] for part in (z.real, z.imag)]
    scale = size**0.5
    check(tuple(np.asarray(f) / scale for f in found[:-1]), [e / scale for e in expected], dtype)
    check(found[-1], x, dtype)


@pytest.mark.parametrize("size", [5, 12])
def test_fourier_of_a_size_that_the_call_gives(size: int) -> None:
    text = "dim N in 1..64\nmodel m(x: f32[2, N]) -> f32[2, N], f32[2, N] {\n  return fft(x)\n}\n"
    x = random(2, size)
    z = torch.fft.fft(x)
    check(nacre.compile(text)(x.numpy()), [z.real, z.imag], "f32")


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("length", [400, 1001])
def test_spectrograms(length: int, dtype: str) -> None:
    window = torch.hann_window(400, dtype=random(1, dtype=dtype).dtype)
    given = "size=400, hop=160"
    text = f"dim T in 400..4000\nmodel m(x: {dtype}[2, T], w: {dtype}[400]) -> {dtype}[2, 201, T//160 + 1], "
    text += f"{dtype}[2, 201, T//160 + 1], {dtype}[2, T//160*160] {{\n"
    text += f"  re, im = stft(x, w, {given})\n  return re, im, istft(re, im, w, {given})\n}}\n"
    x = random(2, length, dtype=dtype)
    z = torch.stft(x, 400, 160, window=window, return_complex=True)
    back = torch.istft(z, 400, 160, window=window)
    real, imaginary, signal = nacre.compile(text)(x.numpy(), window.numpy())
    check((real / 20, imaginary / 20), [z.real / 20, z.imag / 20], dtype)
    check(signal, back, dtype)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    text = "dim H in 1..16\nmodel m(x: f32[2, 3, H, 5], g: f32[2, 4, 3, 2]) -> f32[2, 3, 4, 3], f32[2, 3, 4, 3] {\n"
    call = f'grid_sample(x, g, mode="{mode}", padding="{padding}"'
    text += f"  return {call}), {call}, align_corners=true)\n}}\n"
    x, grid = random(2, 3, 6, 5), random(2, 4, 3, 2, seed=1)
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    expected = [functional.grid_sample(x, grid, name, padding, align_corners=corners) for corners in (False, True)]
    check(nacre.compile(text)(x.numpy(), grid.numpy()), expected, "f32")


LOSSES = {
    "axis=1": {},
    'axis=1, reduction="sum", ignore_index=2': {"reduction": "sum", "ignore_index": 2},
    "axis=1, ignore_index=-100, label_smoothing=0.1": {"label_smoothing": 0.1},
}


@pytest.mark.parametrize("call", LOSSES)
@pytest.mark.parametrize("batch", [1, 5])
def test_cross_entropy(call: str, batch: int) -> None:
    text = "dim B in 1..8\nmodel m(x: f32[B, 7, 3], t: i64[B, 3], w: f32[7]) -> f32[], f32[] {\n"
    text += f"  return cross_entropy(x, t, w, {call}), cross_entropy(x, t, {call})\n}}\n"
    x, weight = random(batch, 7, 3), random(7, seed=2).abs()
    target = torch.randint(0, 7, (batch, 3), generator=torch.Generator().manual_seed(4))
    if "-100" in call:
        target[0, 0] = -100
    expected = [functional.cross_entropy(x, target, w, **LOSSES[call]) for w in (weight, None)]
    check(nacre.compile(text)(x.numpy(), target.numpy(), weight.numpy()), expected, "f32")


def test_a_class_out_of_range_fails_the_call() -> None:
    text = "model m(x: f32[2, 3], t: i64[2]) -> f32[] { return cross_entropy(x, t, ignore_index=-1) }"
    for level in (0, 2):
        model = nacre.compile(text, opt_level=level)
        assert np.isfinite(model(np.ones((2, 3), np.float32), np.array([-1, 2])))
        with pytest.raises(nacre.NacreError, match="index 3"):
            model(np.ones((2, 3), np.float32), np.array([0, 3]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_linear_algebra(dtype: str) -> None:
    text = f"dim N in 1..16\ndim B in 0..4\nmodel m(x: {dtype}[B, N, N]) -> {dtype}[B, N, N], {dtype}[B, N, N], "
    text += (
        f"{dtype}[B], {dtype}[B, N], {dtype}[B, N, N] {{\n  p = x @ x.mT + eye(N, dtype={dtype})\n  u, s, vh = svd(p)\n"
    )
    text += "  return cholesky(p), inverse(p), determinant(p), s, (u * s[:, None, :]) @ vh\n}\n"
    model = nacre.compile(text)
    for batch, size in ((0, 3), (1, 1), (3, 7)):
        x = random(batch, size, size, dtype=dtype) / 2
        p = x @ x.mT + torch.eye(size, dtype=x.dtype)
        expected = [torch.linalg.cholesky(p), torch.linalg.inv(p), torch.linalg.det(p), torch.linalg.svdvals(p), p]
        check(model(x.numpy()), expected, dtype)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("steps", [0, 1, 9])
def test_recurrent_layers_of_a_symbolic_length(kind: str, steps: int) -> None:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    states = "h=h, c=c" if kind == "lstm" else "h=h"
    text = "dim T in 0..16\ndim B in 1..4\nmodel m(x: f32[B, T, 6], "
    text += f"w: f32[{gates * 5}, 6], r: f32[{gates * 5}, 5], b: f32[{gates * 5}], rb: f32[{gates * 5}], "
    text += "h: f32[B, 5], c: f32[B, 5]) -> f32[B, T, 5], f32[B, 5] {\n"
    names = "y, last, cell" if kind == "lstm" else "y, last"
    text += f"  {names} = {kind}(x, w, r, bias=b, recurrent_bias=rb, {states}, batch_first=true)\n"
    text += "  return y, last\n}\n"
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[kind](6, 5, batch_first=True)
    x, h, c = random(2, steps, 6), random(2, 5, seed=1), random(2, 5, seed=2)
    weights = [p.detach().numpy() for p in layer.parameters()]
    found = nacre.compile(text)(x.numpy(), *weights, h.numpy(), c.numpy())
    if not steps:
        assert found[0].shape == (2, 0, 5)
        np.testing.assert_array_equal(found[1], h.numpy())
        return
    with torch.no_grad():
        y, state = layer(x, (h[None], c[None]) if kind == "lstm" else h[None])
    check(found, [y, (state[0] if kind == "lstm" else state)[0]], "f32")
