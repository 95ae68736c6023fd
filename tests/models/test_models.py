"""Whole models, from their text to calls of the compiled library, against plain numpy in float64.

Each file is compiled once and called with several sizes, the least and the greatest that its dims admit among them. The
reference interpreter has to agree as well, and every pass and kernel on the way. Weights are made up here, under the
names that a checkpoint would give them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.readers.language.format import format_source
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import dtype_of
from numpy_layers import (
    Array,
    batch_norm,
    convolve,
    enlarge,
    gelu,
    gelu_by_tanh,
    group_norm,
    layer_norm,
    relu,
    rms_norm,
    sigmoid,
    silu,
    softmax,
)
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent
ROUNDINGS = 24
"""What the worst of these models may lose, in units of its dtype's epsilon and of the largest number of a result."""


class Weights:
    """Made-up tensors by name; `[name]` is one of them in float64."""

    def __init__(self) -> None:
        self.stored: dict[str, Array] = {}
        self._random = np.random.default_rng(7)

    def __getitem__(self, name: str) -> Array:
        return self.stored[name].astype(np.float64)

    def add(self, name: str, *shape: int, spread: float = 1.0, about: float = 0.0, dtype: Any = np.float32) -> None:
        self.stored[name] = (self._random.normal(size=shape) * spread + about).astype(dtype)

    def add_linear(self, name: str, inputs: int, outputs: int, *, bias: bool = True, dtype: Any = np.float32) -> None:
        self.add(f"{name}.weight", outputs, inputs, spread=inputs**-0.5, dtype=dtype)
        if bias:
            self.add(f"{name}.bias", outputs, spread=0.3, dtype=dtype)

    def add_norm(self, name: str, width: int) -> None:
        self.add(f"{name}.weight", width, spread=0.1, about=1)
        self.add(f"{name}.bias", width, spread=0.1)

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self.stored else y

    def norm(self, name: str, x: Array) -> Array:
        return layer_norm(x, self[f"{name}.weight"], self[f"{name}.bias"])


class Compiled:
    """A model file that is free of faults and canonical, compiled at the default level."""

    def __init__(self, name: str, weights: Weights, folder: Path) -> None:
        path = FOLDER / f"{name}.nacre"
        checkpoint = folder / f"{name}.safetensors"
        save_file(weights.stored, checkpoint)
        assert nacre.check(path, weights=checkpoint) == []
        text = path.read_text(encoding="utf-8")
        assert format_source(text, path.name) == text
        self.model = nacre.compile(path, folder / f"{name}.so", weights=checkpoint)
        source_model = read_model(path, checkpoint)
        self.interpreter = Interpreter(source_model.module, open_parameters(source_model))

    def compare(self, entry: str, inputs: tuple[Array, ...], *expected: Array) -> None:
        computed = self.model.entries[entry](*inputs)
        computed = computed if isinstance(computed, tuple) else (computed,)
        for results in (self.interpreter.run(entry, inputs), computed):
            for number, (actual, wanted) in enumerate(zip(results, expected, strict=True)):
                compare(actual, np.asarray(wanted), f"{entry}, result {number}, {[np.shape(x) for x in inputs]}")


def compare(actual: Array, expected: Array, place: str) -> None:
    assert actual.shape == expected.shape, place
    if not dtype_of(actual).is_float:
        assert np.array_equal(actual, expected), place
        return
    scale = np.abs(expected).max(initial=1e-30)
    error = np.abs(actual.astype(np.float64) - expected).max(initial=0.0)
    epsilon = float(ml_dtypes.finfo(actual.dtype).eps)
    assert error <= ROUNDINGS * epsilon * scale, (place, error / (epsilon * scale))


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(shape).integers(low, high, shape).astype(dtype)


# --- transformers ---


def attend(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of [batch, time, heads, width], without the heads in the result."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    past = np.tril(np.ones((q.shape[2], q.shape[2]), bool))
    score = np.where(past, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf)
    mixed = (softmax(score) @ v).transpose(0, 2, 1, 3)
    return mixed.reshape(*mixed.shape[:2], mixed.shape[2] * mixed.shape[3])


def test_gpt2(tmp_path: Path) -> None:
    words, width, heads, layers = 101, 24, 4, 3
    w = Weights()
    w.add("wte.weight", words, width, spread=0.3)
    w.add("wpe.weight", 32, width, spread=0.1)
    w.add_norm("ln_f", width)
    sizes = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    for i in range(layers):
        for name, (inputs, outputs) in sizes.items():
            w.add(f"h.{i}.{name}.weight", inputs * width, outputs * width, spread=(inputs * width) ** -0.5)
            w.add(f"h.{i}.{name}.bias", outputs * width, spread=0.1)
        w.add_norm(f"h.{i}.ln_1", width)
        w.add_norm(f"h.{i}.ln_2", width)
    model = Compiled("gpt2", w, tmp_path)

    def conv1d(name: str, x: Array) -> Array:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    for batch, time in ((1, 1), (0, 5), (2, 7), (4, 32)):
        ids = integers(0, words, batch, time)
        x = w["wte.weight"][ids] + w["wpe.weight"][:time]
        for i in range(layers):
            parts = np.split(conv1d(f"h.{i}.attn.c_attn", w.norm(f"h.{i}.ln_1", x)), 3, axis=-1)
            mixed = attend(*(p.reshape(batch, time, heads, width // heads) for p in parts))
            x = x + conv1d(f"h.{i}.attn.c_proj", mixed)
            inner = gelu_by_tanh(conv1d(f"h.{i}.mlp.c_fc", w.norm(f"h.{i}.ln_2", x)))
            x = x + conv1d(f"h.{i}.mlp.c_proj", inner)
        logits = w.norm("ln_f", x) @ w["wte.weight"].T
        model.compare("logits", (ids,), logits)
        model.compare("next", (ids,), logits[:, -1].argmax(axis=-1))


def test_llama(tmp_path: Path) -> None:
    width, heads, groups, head = 48, 6, 2, 8
    w = Weights()
    w.add("model.embed_tokens.weight", 90, width)
    w.add("model.norm.weight", width, spread=0.1, about=1)
    w.add_linear("lm_head", width, 90, bias=False)
    outputs = {"q_proj": width, "k_proj": groups * head, "v_proj": groups * head, "o_proj": width}
    for i in range(2):
        for name, size in outputs.items():
            w.add_linear(f"model.layers.{i}.self_attn.{name}", width, size, bias=False)
        for name, (a, b) in {"gate_proj": (width, 128), "up_proj": (width, 128), "down_proj": (128, width)}.items():
            w.add_linear(f"model.layers.{i}.mlp.{name}", a, b, bias=False)
        for name in ("input_layernorm", "post_attention_layernorm"):
            w.add(f"model.layers.{i}.{name}.weight", width, spread=0.1, about=1)
    model = Compiled("llama", w, tmp_path)

    for batch, time, start in ((1, 1, 0), (2, 7, 0), (4, 64, 5), (3, 16, 100)):
        ids = integers(0, 90, batch, time, dtype=np.int32)
        angle = (np.arange(time) + start)[:, None] * 10000.0 ** (-np.arange(head // 2) * 2 / head)
        turn = np.exp(1j * angle)[:, None, :]

        def rotated(x: Array, turn: Array = turn) -> Array:
            turned = (x[..., : head // 2] + 1j * x[..., head // 2 :]) * turn
            return np.concatenate([turned.real, turned.imag], axis=-1)

        x = w["model.embed_tokens.weight"][ids]
        for i in range(2):
            path = f"model.layers.{i}"
            y = rms_norm(x, w[f"{path}.input_layernorm.weight"])
            names = ("q_proj", "k_proj", "v_proj")
            q, k, v = (w.linear(f"{path}.self_attn.{n}", y).reshape(batch, time, -1, head) for n in names)
            k, v = (np.repeat(z, heads // groups, axis=2) for z in (rotated(k), v))
            x = x + w.linear(f"{path}.self_attn.o_proj", attend(rotated(q), k, v))
            y = rms_norm(x, w[f"{path}.post_attention_layernorm.weight"])
            gated = silu(w.linear(f"{path}.mlp.gate_proj", y)) * w.linear(f"{path}.mlp.up_proj", y)
            x = x + w.linear(f"{path}.mlp.down_proj", gated)
        logits = w.linear("lm_head", rms_norm(x, w["model.norm.weight"]))
        model.compare("main", (ids, np.int32(start)), logits)


# --- images ---


def test_vision(tmp_path: Path) -> None:
    w = Weights()
    groups: dict[str, int] = {}
    convolutions = {"stem": (3, 8, 3, 1), "down.conv1": (8, 12, 3, 1), "down.conv2": (12, 12, 3, 1)}
    convolutions |= {f"stage1.layer.{i}.conv{k}": (8, 8, 3, 1) for i in range(2) for k in (1, 2)}
    convolutions |= {"down.downsample": (8, 12, 1, 1), "last.grow": (12, 48, 1, 1)}
    convolutions |= {"last.depthwise": (48, 48, 5, 48), "last.project": (48, 12, 1, 1)}
    for name, (inputs, outputs, size, groups[name]) in convolutions.items():
        inputs //= groups[name]
        w.add(f"{name}.weight", outputs, inputs, size, size, spread=(inputs * size * size) ** -0.5)
        w.add_norm(f"{name}.norm", outputs)
        w.add(f"{name}.norm.running_mean", outputs, spread=0.1)
        w.add(f"{name}.norm.running_var", outputs, spread=0.05, about=0.7)
    for name, (outputs, inputs) in {"down": (12, 48), "up": (48, 12)}.items():
        w.add(f"last.excite.{name}", outputs, inputs, 1, 1, spread=inputs**-0.5)
        w.add(f"last.excite.{name}_bias", outputs, spread=0.1)
    w.add_linear("fc", 12, 10)
    model = Compiled("vision", w, tmp_path)

    def block(name: str, x: Array, stride: int = 1) -> Array:
        y = convolve(x, w[f"{name}.weight"], stride, groups[name])
        norm = (w[f"{name}.norm.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return batch_norm(y, *norm)

    def hard_sigmoid(x: Array) -> Array:
        return np.clip(x + 3, 0, 6) / 6

    for count, height, width in ((0, 8, 8), (1, 8, 8), (2, 16, 24), (4, 8, 64)):
        image = integers(0, 256, count, height, width, 3, dtype=np.uint8)
        x = relu(block("stem", image.transpose(0, 3, 1, 2) / 255.0))
        for i in range(2):
            x = relu(x + block(f"stage1.layer.{i}.conv2", relu(block(f"stage1.layer.{i}.conv1", x))))
        x = relu(block("down.conv2", relu(block("down.conv1", x, 2))) + block("down.downsample", x, 2))
        y = block("last.grow", x)
        y = block("last.depthwise", y * hard_sigmoid(y))
        y = y * hard_sigmoid(y)
        squeezed = y.mean(axis=(2, 3), keepdims=True)
        squeezed = relu(convolve(squeezed, w["last.excite.down"]) + w["last.excite.down_bias"][:, None, None])
        squeezed = convolve(squeezed, w["last.excite.up"]) + w["last.excite.up_bias"][:, None, None]
        x = x + block("last.project", y * hard_sigmoid(squeezed))
        model.compare("classify", (image,), w.linear("fc", x.mean(axis=(2, 3))))


def test_segment(tmp_path: Path) -> None:
    w = Weights()
    for name, (inputs, outputs) in {"enc1": (3, 8), "mid": (8, 12), "dec1": (20, 8)}.items():
        w.add(f"{name}.w1", outputs, inputs, 3, 3, spread=(inputs * 9) ** -0.5)
        w.add(f"{name}.w2", outputs, outputs, 3, 3, spread=(outputs * 9) ** -0.5)
        w.add(f"{name}.b1", outputs, spread=0.1)
        w.add(f"{name}.gain", outputs, spread=0.2, about=1)
        w.add(f"{name}.shift", outputs, spread=0.2)
    w.add("up", 12, 12, 2, 2, spread=0.3)
    w.add("up_bias", 12, spread=0.1)
    w.add("last", 1, 8, 1, 1)
    model = Compiled("segment", w, tmp_path)

    def double(name: str, x: Array) -> Array:
        y = silu(group_norm(convolve(x, w[f"{name}.w1"]) + w[f"{name}.b1"][:, None, None], 2))
        y = group_norm(convolve(y, w[f"{name}.w2"]), 2)
        return silu(y * w[f"{name}.gain"][:, None, None] + w[f"{name}.shift"][:, None, None])

    for count, height, width in ((1, 4, 4), (2, 8, 12), (1, 32, 16)):
        image = random(count, 3, height, width)
        a = double("enc1", image)
        b = double("mid", a.reshape(count, 8, height // 2, 2, width // 2, 2).max(axis=(3, 5)))
        up = np.einsum("nchw,coij->nohiwj", b, w["up"]).reshape(count, 12, height, width)
        c = up + w["up_bias"][:, None, None] + enlarge(b)
        logits = convolve(double("dec1", np.concatenate([a, c], axis=1)), w["last"])
        model.compare("segment", (image,), logits[:, 0] > 0, logits)

        heat, box = random(count, 3, height, width, seed=1), random(count, 4, height, width, seed=2)
        padded = np.pad(heat, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        near = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        score = sigmoid(np.where(heat == np.max(near, axis=0), heat, -np.inf).astype(np.float64)).reshape(count, -1)
        index = np.argsort(-score, axis=-1, kind="stable")[:, :5]
        label, cell = np.divmod(index, height * width)
        y, x = np.divmod(cell, width)
        chosen = np.take_along_axis(box.reshape(count, 4, -1), cell[:, None, :], axis=2).transpose(0, 2, 1)
        corners = np.stack([x, y, x, y], axis=-1) + 0.5 + chosen.astype(np.float64) * [-1, -1, 1, 1]
        model.compare("detect", (heat, box), np.take_along_axis(score, index, -1), label, corners)


# --- sequences ---


def test_recurrent(tmp_path: Path) -> None:
    steps, width = 6, 7
    w = Weights()
    for layer, inputs in (("l0", 5), ("l1", 2 * width)):
        for way in ("forward", "backward"):
            w.add(f"{layer}.{way}.weight_ih", 4 * width, inputs, spread=0.4)
            w.add(f"{layer}.{way}.weight_hh", 4 * width, width, spread=0.4)
            w.add(f"{layer}.{way}.bias_ih", 4 * width)
            w.add(f"{layer}.{way}.bias_hh", 4 * width)
    model = Compiled("recurrent", w, tmp_path)

    def run(path: str, x: Array) -> Array:
        h = c = np.zeros((len(x), width))
        hidden = []
        for t in range(steps):
            gates = x[:, t] @ w[f"{path}.weight_ih"].T + h @ w[f"{path}.weight_hh"].T
            i, f, g, o = np.split(gates + w[f"{path}.bias_ih"] + w[f"{path}.bias_hh"], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            hidden.append(h)
        return np.stack(hidden, axis=1)

    for batch in (0, 1, 8):
        x = random(batch, steps, 5)
        y = x.astype(np.float64)
        for layer in ("l0", "l1"):
            ways = run(f"{layer}.forward", y), run(f"{layer}.backward", y[:, ::-1])[:, ::-1]
            y = np.concatenate(ways, axis=-1)
        model.compare("lstm", (x,), y, y[:, -1])

        x = random(batch, 12, 9)
        z = x.astype(np.float64)
        sums = sum(z[:, i : i + 4] - z[:, 8 - i : 12 - i] * i for i in range(5))
        corner = sum(z[:, 2 * i + j, -1 - j] * (i - j) for i in range(5) for j in range(3))
        pair = sum(z[:, None, 2 * i : 2 * i + 3 : 2].sum(axis=0) for i in range(5))
        model.compare("windows", (x,), sums, corner, pair)


# --- numbers ---


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_numbers(tmp_path: Path) -> None:
    w = Weights()
    floats = {"half": ("a", np.float16), "brain": ("b", ml_dtypes.bfloat16), "double": ("c", np.float64)}
    for name, dtype in floats.values():
        w.add_linear(f"{name}.up", 24, 96, dtype=dtype)
        w.add_linear(f"{name}.down", 96, 24, dtype=dtype)
    model = Compiled("numbers", w, tmp_path)

    for batch in (0, 1, 20):
        for entry, (name, dtype) in floats.items():
            x = random(batch, 24).astype(dtype)
            y = layer_norm(w.linear(f"{name}.down", gelu(w.linear(f"{name}.up", x.astype(np.float64)))))
            model.compare(entry, (x,), *([y, np.exp(y).sum() / 3] if entry == "double" else [y]))
        n, a, b = integers(-40, 40, batch), integers(-128, 128, batch, dtype=np.int8), random(batch).astype(np.int8)
        three, five = n % 3 == 0, n % 5 == 0
        named = np.where(three & five, 15, np.where(three, 3, np.where(five, 5, n)))
        divided = a // np.maximum(np.abs(b), np.int8(1))
        model.compare("integers", (n, a, b), named, ~(three | five), a + b, a * b, divided, three.sum())

    for a, n, flag in ((1.5, 3, True), (-2.0, -1, False), (0.0, 5, False)):
        inputs = np.float32(a), np.int64(n), np.bool_(flag)
        model.compare("scalars", inputs, a * a + n, 2 * n + 1, not flag and n > 0)

    for b, i, j in ((2, 3, 4), (1, 1, 1), (0, 9, 9), (5, 7, 0)):
        inputs = random(b, i), random(4, i, j), random(b, j), random(i, i)
        x, v, y, square = (z.astype(np.float64) for z in inputs)
        row = square[0]
        mixed = np.einsum("bi,oij,bj->bo", x, v, y)
        model.compare("contractions", inputs, mixed, np.trace(square), row @ square, x @ row, row @ square, row @ row)

    for t, s in ((0, 1), (4, 2), (12, 7), (40, 30)):
        inputs = random(t), random(2 * t), random(s + 1)
        x, y, z = (v.astype(np.float64) for v in inputs)
        thirds = z[: s // 3 * 3].reshape(-1, 3)
        halves = z[: s // 2] + z[s + 1 - s // 2 :]
        joined = np.concatenate([x, x]) + y
        model.compare("sizes", inputs, joined, x[t // 2 :] - x[: t // 2], thirds, halves, t * s + 1)

    for j, s in ((0, 1), (1, 1), (9, 30)):
        inputs = random(j, s), random(s, j, seed=1)
        x, y = (v.astype(np.float64) for v in inputs)
        model.compare("edges", inputs, x @ y, y @ x, x.sum(), x.sum(axis=1), softmax(x))
