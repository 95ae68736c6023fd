"""Training steps: updates against numpy, trained parameters as states, initial values, groups, frozen parameters.

Steps run in the interpreter, in float64; one test compiles a step at -O0 and -O2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language.elaborate import load_module
from nacre.dialect.graph import Module, Parameter
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.states import used_states
from nacre.dialect.types import F64, Array

STEPS = 5
HEAD = """language 1
import "library/losses.nacre"
import "library/layers.nacre"
dim B in 1..64
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
"""


def read(text: str) -> Module:
    return load_module(HEAD + text, text=True).module


class Session:
    """Runs entries of a module with the interpreter, and keeps the states between calls."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.states: dict[str, Array] = {}
        for state in module.states:
            if state.initial is None:
                self.states[state.name] = np.zeros(state.type.concrete({}), state.type.dtype.numpy)
            else:
                data = load_parameter(module.parameter_index[state.initial], self.load)
                self.states[state.name] = np.broadcast_to(data, state.type.concrete({}))

    def load(self, parameter: Parameter) -> Array:
        return load_parameter(parameter, self.load)

    def __call__(self, entry: str, *arguments: object) -> Array:
        function = self.module.function(entry)
        names = [state.name for state in used_states(self.module, function)]
        given = [np.asarray(a) for a in arguments] + [self.states[n] for n in names]
        results = Interpreter(self.module, self.load, precision=F64).run(function, given)
        self.states |= dict(zip(names, results[len(function.outputs) :], strict=True))
        return results[0]


# --- updates ---

Update = Callable[[Array, Array, dict[str, Array]], Array]
"""`update(parameter, gradient, states)` with numpy, for the rate 0.1."""
LR = 0.1


def _sgd(momentum: float, nesterov: bool, decay: float) -> Update:
    def update(p: Array, g: Array, s: dict[str, Array]) -> Array:
        g = g + decay * p
        s["v"] = momentum * s.get("v", 0.0) + g
        return p - LR * (g + momentum * s["v"] if nesterov else s["v"])

    return update


def _adam(decay: float, decoupled: bool) -> Update:
    def update(p: Array, g: Array, s: dict[str, Array]) -> Array:
        p, g = (p * (1 - LR * decay), g) if decoupled else (p, g + decay * p)
        s["t"] = s.get("t", 0) + 1
        s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g * g
        return p - LR * (s["m"] / (1 - 0.9 ** s["t"])) / (np.sqrt(s["v"] / (1 - 0.999 ** s["t"])) + 1e-8)

    return update


def _lion(p: Array, g: Array, s: dict[str, Array]) -> Array:
    mean = s.get("m", 0.0)
    s["m"] = 0.99 * mean + 0.01 * g
    return p - LR * (np.sign(0.9 * mean + 0.1 * g) + 0.01 * p)


def _adafactor(p: Array, g: Array, s: dict[str, Array]) -> Array:
    s["t"] = s.get("t", 0) + 1
    kept, squares = 1 - s["t"] ** -0.8, g * g + 1e-30
    if p.ndim == 1:
        s["v"] = kept * s.get("v", 0.0) + (1 - kept) * squares
        u = g / np.sqrt(s["v"])
    else:
        s["r"] = kept * s.get("r", 0.0) + (1 - kept) * squares.mean(1)
        s["c"] = kept * s.get("c", 0.0) + (1 - kept) * squares.mean(0)
        u = g / np.sqrt(np.outer(s["r"], s["c"]) / s["r"].mean())
    return p - LR * u / max(1.0, float(np.sqrt((u * u).mean())))


def _muon(p: Array, g: Array, s: dict[str, Array]) -> Array:
    if p.ndim != 2:
        return _adam(0.01, True)(p, g, s)
    s["v"] = 0.95 * s.get("v", 0.0) + g
    x = g + 0.95 * s["v"]
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return p - LR * np.sqrt(max(1, p.shape[0] / p.shape[1])) * x


UPDATES: Mapping[str, Update] = {
    "sgd(lr=0.1)": _sgd(0.0, False, 0.0),
    "sgd<momentum=0.9>(lr=0.1)": _sgd(0.9, False, 0.0),
    "sgd<momentum=0.9, nesterov=true, weight_decay=0.1>(lr=0.1)": _sgd(0.9, True, 0.1),
    "adam(lr=0.1)": _adam(0.0, False),
    "adam<weight_decay=0.1>(lr=0.1)": _adam(0.1, False),
    "adamw(lr=0.1)": _adam(0.01, True),
    "lion(lr=0.1)": _lion,
    "adafactor(lr=0.1)": _adafactor,
    "muon(lr=0.1, other=0.1)": _muon,
}


@pytest.mark.parametrize("update", UPDATES)
def test_updates(update: str) -> None:
    text = f"""train step(x: f32[B, 3], y: f32[B, 5]) -> loss: f32 {{
      use net = Linear<3, 5>
      loss = mse(net(x), y)
      minimize loss with {update}
    }}"""
    session = Session(read(text))
    rng = np.random.default_rng(0)
    w, b = (np.asarray(session.states[n], np.float64) for n in ("net.weight", "net.bias"))
    kept: list[dict[str, Array]] = [{}, {}]
    for _ in range(STEPS):
        x, y = rng.standard_normal((7, 3)), rng.standard_normal((7, 5))
        error = x @ w.T + b - y
        assert float(session("step", x, y)) == pytest.approx(float((error**2).mean()), rel=1e-6)
        gradients = 2 * error.T @ x / error.size, 2 * error.sum(0) / error.size
        w, b = (UPDATES[update](p, g, s) for p, g, s in zip((w, b), gradients, kept, strict=True))
        # Hyper-parameters such as 0.9 are rounded to f32 in the graph.
        np.testing.assert_allclose(session.states["net.weight"], w, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(session.states["net.bias"], b, rtol=2e-5, atol=1e-6)


# --- losses ---


def loss_of(expression: str, **arrays: Array) -> float:
    types = {"f": "f32", "i": "i64"}
    shapes = {n: f"{types[a.dtype.kind]}[{', '.join(map(str, a.shape))}]" for n, a in arrays.items()}
    text = f"model m({', '.join(f'{n}: {t}' for n, t in shapes.items())}) -> f32 {{ return {expression} }}"
    return float(Session(read(text))("m", *arrays.values()))


def test_losses() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((6, 4)), np.array([0, 3, 1, -100, 2, 2])
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    rows = labels >= 0
    right = logs[rows, labels[rows]]
    assert loss_of("cross_entropy(x, labels)", x=x, labels=labels) == pytest.approx(-right.mean(), rel=1e-6)
    smooth = 0.9 * right + 0.1 * logs[rows].mean(1)
    found = loss_of("cross_entropy<smoothing=0.1>(x, labels)", x=x, labels=labels)
    assert found == pytest.approx(-smooth.mean(), rel=1e-6)
    target = rng.random((6, 4))
    sigmoid = 1 / (1 + np.exp(-x))
    expected = -(target * np.log(sigmoid) + (1 - target) * np.log(1 - sigmoid)).mean()
    assert loss_of("bce(x, y)", x=x, y=target) == pytest.approx(expected, rel=1e-6)
    target /= target.sum(1, keepdims=True)
    target[0, 0] = 0
    with np.errstate(all="ignore"):
        expected = np.where(target > 0, target * (np.log(target) - logs), 0).sum(1).mean()
    assert loss_of("kl(log_softmax(x), y)", x=x, y=target) == pytest.approx(expected, rel=1e-6)
    assert loss_of("mse(x, y)", x=x, y=target) == pytest.approx(((x - target) ** 2).mean(), rel=1e-6)


# --- states ---

NET = """
block Net<rate=0.0>(x: f32[B, 4]) -> f32[B, 2] {
  use layer[3] = Linear<4, 4>
  use dropped = Dropout<rate>
  use answer = Linear<4, 2>
  repeat i in 0..3 { x = tanh(layer[i](x)) }
  return x |> dropped |> answer
}
train step(x: f32[B, 4], y: f32[B, 2]) -> loss: f32 {
  use net = Net<RATE>
  loss = mse(net(x), y)
  minimize loss with adamw(lr=0.01) {
    group "*.bias" with sgd<momentum=0.5>(lr=0.1)
    freeze "net.layer.1"
    clip 0.5
  }
}
model predict(x: f32[B, 4]) -> f32[B, 2] {
  use net = Net
  return net(x)
}
"""


def test_parameters_are_states_of_every_model_and_frozen_ones_are_not() -> None:
    module = read(NET.replace("RATE", "0"))
    trained = {f"net.{n}.{w}" for n in ("layer.0", "layer.2", "answer") for w in ("weight", "bias")}
    assert {s.name for s in module.states if s.initial == s.name} == trained
    assert set(module.function("predict").states) - {"net.dropped.calls"} == trained
    assert {"net.layer.1.weight", "net.layer.1.bias"} <= set(module.parameter_index)
    states = {s.name for s in module.states}
    assert "sgd.net.answer.bias.direction.velocity" in states and "adamw.net.answer.weight.direction.mean" in states
    assert not any("layer.1" in name for name in states)


def test_clipping_scales_all_gradients_by_one_factor() -> None:
    text = """train step(x: f32[B, 3], y: f32[B, 5]) -> loss: f32 {
      use net = Linear<3, 5>
      loss = mse(net(x), y)
      minimize loss with sgd(lr=1.0) CLIP
    }"""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 3)), 100 * rng.standard_normal((7, 5))
    moved = []
    for clip in ("", "{ clip 0.25 }", "{ clip 1e9 }"):
        session = Session(read(text.replace("CLIP", clip)))
        before = {n: np.asarray(a, np.float64) for n, a in session.states.items()}
        session("step", x, y)
        moved.append(np.concatenate([(session.states[n] - before[n]).reshape(-1) for n in before]))
    assert np.linalg.norm(moved[1]) == pytest.approx(0.25, rel=1e-5)
    np.testing.assert_allclose(moved[1] / 0.25, moved[0] / np.linalg.norm(moved[0]), rtol=1e-4)
    np.testing.assert_allclose(moved[2], moved[0], rtol=1e-6)


def test_initial_values_differ_by_path_and_a_checkpoint_replaces_them(tmp_path: Path) -> None:
    module = read(NET.replace("RATE", "0"))
    session = Session(module)
    first, second = session.states["net.layer.0.weight"], session.states["net.layer.2.weight"]
    assert not np.array_equal(first, second) and 0.3 < np.std(first) < 3
    given = {p.name: np.full(p.type.concrete({}), 0.5, np.float32) for p in module.parameters if p.formula is not None}
    given.pop("net.dropped.calls.initial", None)
    np.savez(tmp_path / "w.npz", **given)
    stored = load_module(HEAD + NET.replace("RATE", "0"), text=True, weights=tmp_path / "w.npz").module
    assert all(p.formula is None for p in stored.parameters if p.name in given)


@pytest.mark.parametrize("level", [0, 2])
def test_a_compiled_step_follows_the_interpreter(level: int, tmp_path: Path) -> None:
    text = HEAD + NET.replace("RATE", "0.25")
    model = nacre.compile(text, tmp_path / "m.so", opt_level=level)
    reference = Session(load_module(text, text=True).module)
    rng = np.random.default_rng(0)
    session = model.session()
    for _ in range(3):
        x, y = rng.standard_normal((7, 4)).astype(np.float32), rng.standard_normal((7, 2)).astype(np.float32)
        found = session.entries["step"](x, y)
        assert float(found) == pytest.approx(float(reference("step", x, y)), rel=1e-5)
    for name, value in reference.states.items():
        np.testing.assert_allclose(session.states[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(session.entries["predict"](x), reference("predict", x), rtol=1e-4, atol=1e-5)
    assert int(session.states["net.dropped.calls"]) == int(reference.states["net.dropped.calls"])
