"""Models of `tests/files/run`, elaborated, verified, and run by the reference interpreter, against plain numpy."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.readers import language as frontend
from nacre.dialect.graph import Module, Parameter
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import print_module
from nacre.dialect.verifier import verify

FILES = Path(__file__).parents[2] / "files" / "run"
SOURCES = sorted(FILES.glob("*.nacre"))
EPSILON = 2.0**-23
Weights = dict[str, np.ndarray[Any, Any]]


@cache
def load(name: str) -> Module:
    module = frontend.load_module(FILES / f"{name}.nacre").module
    verify(module)
    return module


class SourceModel:
    """A file, and made-up weights for its parameters, by their keys in the checkpoint."""

    def __init__(self, name: str) -> None:
        self.module = load(name)
        self.weights: Weights = {}

    def load(self, parameter: Parameter) -> Any:
        seed = sum(ord(c) * (n + 1) for n, c in enumerate(parameter.key))
        shape = parameter.type.shape
        stored = np.random.default_rng(seed).normal(size=shape, scale=0.5).astype(np.float32)
        self.weights[parameter.key] = stored
        return stored

    def run(self, function: str, *arguments: Any) -> Any:
        results = Interpreter(self.module, self.load).run(function, arguments)
        return results[0] if len(results) == 1 else results


def assert_close(actual: Any, expected: Any, terms: int = 64) -> None:
    """Within the rounding of a few sums of `terms` numbers."""
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    scale = np.abs(expected).max(initial=1.0)
    assert np.abs(actual - expected).max(initial=0.0) <= 4 * EPSILON * terms * scale


def random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_graphs_are_valid_and_their_text_parses_to_them(path: Path) -> None:
    module = load(path.stem)
    assert parse_module(print_module(module)) == module


def _gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("batch", [1, 5])
def test_mlp(batch: int) -> None:
    model = SourceModel("mlp")
    x = random(batch, 8)
    once, twice = model.run("mlp", x)
    w = {key: value.astype(np.float64) for key, value in model.weights.items()}
    assert set(w) == {"32.w", "8.w", "up.shift.b"}

    def layer(x: Any) -> Any:
        return _gelu(x @ w["32.w"] + w["up.shift.b"]) @ w["8.w"]

    assert_close(once, layer(x))
    assert_close(twice, layer(layer(x)))
    parameters = {p.name: p for p in model.module.parameters}
    assert parameters["up.weight"].transpose == (1, 0)
    assert parameters["up.shift.b"].source is None


def _convolve(x: Any, weight: Any, bias: Any, padding: int, groups: int) -> Any:
    batch, _, height, width = x.shape
    outputs, inputs, size, _ = weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    result = np.zeros((batch, outputs, height, width))
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        for dy in range(size):
            for dx in range(size):
                window = padded[:, first : first + inputs, dy : dy + height, dx : dx + width]
                result[:, output] += np.einsum("bchw,c->bhw", window, weight[output, :, dy, dx])
    return result + bias[:, None, None]


@pytest.mark.parametrize(("batch", "height", "width"), [(1, 8, 8), (2, 12, 8)])
def test_convolutions(batch: int, height: int, width: int) -> None:
    model = SourceModel("convolutions")
    image = random(batch, 1, height, width)
    result = model.run("classify", image)
    w = {key: value.astype(np.float64) for key, value in model.weights.items()}
    x = np.maximum(_convolve(image, w["stem.weight"], w["stem.bias"], 1, 1), 0)
    x = x.reshape(batch, 4, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    first = np.maximum(_convolve(x, w["body.first.weight"], w["body.first.bias"], 1, 2), 0)
    x = x + _convolve(first, w["body.second.weight"], w["body.second.bias"], 0, 1)
    assert_close(result, _softmax(x.mean(axis=(2, 3)) @ w["head"].T))


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7)])
def test_attention_in_loops(batch: int, length: int) -> None:
    model = SourceModel("attention")
    x = random(batch, length, 8)
    hidden, similar, count = model.run("decode", x)
    w = {key: value.astype(np.float64) for key, value in model.weights.items()}
    assert len(w) == 3 * (4 + 2 + 1)

    def attention(x: Any, layer: int) -> Any:
        def project(x: Any, name: str) -> Any:
            return x @ w[f"layer.{layer}.attention.{name}.weight"].T

        parts = [project(x, n).reshape(batch, length, 2, 4).swapaxes(1, 2) for n in ("query", "key", "value")]
        query, key, value = parts
        score = query @ key.swapaxes(-1, -2) / 2
        score[:, :, ~np.tri(length, dtype=bool)] = -np.inf
        return project((_softmax(score) @ value).swapaxes(1, 2).reshape(batch, length, 8), "output")

    expected = x.astype(np.float64)
    for layer in range(3):
        expected = expected + attention(expected * w[f"h.{layer}.gain"], layer)
        for expert in range(2):
            y = expected @ w[f"layer.{layer}.expert.{expert}.weight"].T
            expected = expected + y / (1 + np.exp(-y))
    assert_close(hidden, expected, 256)
    assert_close(similar, expected @ expected.swapaxes(-1, -2) / length, 256)
    assert count == 1 + 2 + 2 * length
    # The layer that is called by its number and those of the loop are one array.
    counts = {p.name: p.counts for p in model.module.parameters}
    assert counts["layer.{}.gain"] == (3,)
    assert counts["layer.{}.expert.{}.weight"] == (3, 2)
    assert all("{}" in name for name in counts)


SLICES: dict[str, Callable[[Any, Any], Any]] = {
    "first": lambda x, ids: x[0],
    "last": lambda x, ids: x[:, -1],
    "corner": lambda x, ids: x[-1, 0, 5],
    "head": lambda x, ids: x[:, :2],
    "tail": lambda x, ids: x[:, 1:],
    "inner": lambda x, ids: x[..., 1:-1],
    "odd": lambda x, ids: x[:, 1::2, ::2],
    "backwards": lambda x, ids: x[:, ::-1],
    "backwards_in_steps": lambda x, ids: x[:, :, 4:0:-2],
    "cut": lambda x, ids: x[:100, -100:, 0:1000],
    "empty": lambda x, ids: x[:, 3:2],
    "half": lambda x, ids: x[:, : x.shape[1] // 2],
    "new_axes": lambda x, ids: x[None, :, None, ..., None],
    "dots": lambda x, ids: x[..., 0],
    "mixed": lambda x, ids: x[None, 1, ..., 2:4],
    "gathered": lambda x, ids: x[:, :, ids],
    "rows": lambda x, ids: x[1, ids],
    "running": lambda x, ids: sum(x[0, i] + x[-1, 3 - i] * i for i in range(4)),
    "pieces": lambda x, ids: x[:, 3],
}


@pytest.mark.parametrize("name", SLICES)
def test_slicing(name: str) -> None:
    model = SourceModel("slicing")
    assert {f.name for f in model.module.functions} == set(SLICES)
    x, ids = random(3, 8, 6), np.array([3, 0, 2])
    assert_close(model.run(name, x, ids), SLICES[name](x, ids), 1)


REARRANGEMENTS: dict[str, Callable[[Any], Any]] = {
    "swap": lambda x: x.transpose(1, 0, 2),
    "split": lambda x: x.reshape(*x.shape[:2], 2, 3).transpose(0, 2, 1, 3),
    "merge": lambda x: x.transpose(2, 0, 1).reshape(-1, x.shape[1]),
    "flat": lambda x: x.reshape(-1),
    "windows": lambda x: x.reshape(x.shape[0], -1, 24),
    "unit": lambda x: x[:, None, :, :, None],
    "drop": lambda x: x,
    "dots": lambda x: x.transpose(2, 0, 1),
    "dots_in_front": lambda x: x.reshape(*x.shape[:2], 3, 2),
    "same": lambda x: x,
}


@pytest.mark.parametrize("name", REARRANGEMENTS)
def test_rearranging(name: str) -> None:
    model = SourceModel("rearranging")
    assert {f.name for f in model.module.functions} == set(REARRANGEMENTS)
    x = random(3, 8, 6)
    np.testing.assert_array_equal(model.run(name, x), REARRANGEMENTS[name](x))


BUILTINS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "color": lambda x, ids, flag, table: (x - np.array([0.5, 0.25, 0.125])) / 255,
    "logits": lambda x, ids, flag, table: table[ids] @ table.T,
    "joined": lambda x, ids, flag, table: np.concatenate([x, np.ones_like(x)]),
    "stacked": lambda x, ids, flag, table: np.stack([x, 5 * x], axis=1),
    "least": lambda x, ids, flag, table: np.minimum(x, 0.5),
    "greatest": lambda x, ids, flag, table: x.max(axis=-1),
    "product": lambda x, ids, flag, table: x @ x.T,
    "chosen": lambda x, ids, flag, table: np.where((flag & (x > 0)) | ~flag, x, -(x**2)),
    "truth": lambda x, ids, flag, table: (x != 0) & flag,
    "sizes": lambda x, ids, flag, table: ids.sum() % 7 + len(ids),
    "constant": lambda x, ids, flag, table: np.array([[1, 2], [3, 4]]),
    "third": lambda x, ids, flag, table: x[:, :1] / 2,
    "clipped": lambda x, ids, flag, table: x.clip(0, 1),
    "reshaped": lambda x, ids, flag, table: 5 * x,
    "averaged": lambda x, ids, flag, table: x.sum(axis=1) / 3 + 0.5 * len(x),
    "arithmetic": lambda x, ids, flag, table: 2**x - x // 0.5 + x % 0.75 - x @ x.T @ x / len(x),
}


@pytest.mark.parametrize("name", BUILTINS)
def test_builtins(name: str) -> None:
    model = SourceModel("builtins")
    assert {f.name for f in model.module.functions} == set(BUILTINS)
    x, ids = random(4, 3), np.array([4, 0, 1, 1])
    flag = x > 0.25
    actual = model.run(name, x, ids, flag)
    expected = BUILTINS[name](x.astype(np.float64), ids, flag, model.weights.get("words.table", np.zeros(())))
    if np.asarray(expected).dtype.kind == "f":
        assert_close(actual, expected, 8)
    else:
        np.testing.assert_array_equal(actual, expected)
