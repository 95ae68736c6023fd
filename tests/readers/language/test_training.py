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
from nacre.compiler.readers.language.imports import LIBRARY, OPTIMIZERS
from nacre.dialect.types import BF16, F16, Array, DType
from training_session import HEAD, Session, read

STEPS = 5

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


def _adam(decay: float, decoupled: bool, beta: float = 0.9) -> Update:
    def update(p: Array, g: Array, s: dict[str, Array]) -> Array:
        p, g = (p * (1 - LR * decay), g) if decoupled else (p, g + decay * p)
        s["t"] = s.get("t", 0) + 1
        s["m"] = beta * s.get("m", 0.0) + (1 - beta) * g
        s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g * g
        return p - LR * (s["m"] / (1 - beta ** s["t"])) / (np.sqrt(s["v"] / (1 - 0.999 ** s["t"])) + 1e-8)

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
    "adam<beta1=0.0>(lr=0.1)": _adam(0.0, False, beta=0.0),
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


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lion", "adafactor", "muon"])
def test_a_copied_update_can_be_changed(name: str) -> None:
    """The copy of one block finds the others, under its name and under another one."""
    library = (LIBRARY / OPTIMIZERS).read_text()
    copy = library[library.index(f"block {name}<") :].partition("\n}\n")[0] + "\n}\n"
    step = f"""train step(x: f32[B, 3]) -> loss: f32 {{
      use net = Linear<3, 2>
      loss = mean(net(x) ** 2)
      minimize loss with {name}(lr=0.1{", other=0.1" if name == "muon" else ""})
    }}
    """
    renamed = copy.replace(f"block {name}<", "block mine<") + step.replace(f"with {name}(", "with mine(")
    changed = copy.replace("return parameter", "return 0.5 * parameter").replace("return decayed", "return 0 * decayed")
    changed = changed.replace("return update(", "return 0.5 * update(") + step
    found = []
    for text in (step, copy + step, renamed, changed):
        session = Session(read(text))
        session("step", np.ones((4, 3)))
        found.append(session.states["net.weight"])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[3])


EXTREMES: Mapping[str, Array] = {
    "overflowing squares": np.linspace(-1e20, 1e20, 12),
    "overflowing norms": np.full(12, 1e38),
    "squares that vanish": np.linspace(-1e-30, 1e-30, 12),
    "zeros": np.zeros(12),
    "rows of zeros": np.repeat([0.0, 1e12, 0.0, -1e20], 3),
    "one number": np.eye(12)[5] * 1e25,
}


@pytest.mark.parametrize("update", UPDATES)
def test_updates_by_extreme_gradients_are_finite(update: str) -> None:
    """In f32: parameters and the direction of the next ordinary step are numbers, and states are no NaN."""
    text = f"""train step(x: f32[4, 3], y: f32[5]) -> loss: f32 {{
      param w: f32[4, 3] = 1.0
      param b: f32[5] = 1.0
      loss = sum(w * x) + sum(b * y)
      minimize loss with {update}
    }}"""
    module, ordinary = read(text), np.linspace(0.5, 1.0, 12)
    for name, numbers in EXTREMES.items():
        session = Session(module, precision=None)
        for gradient in (numbers, numbers, ordinary):
            x = gradient.astype(np.float32)
            session("step", x.reshape(4, 3), x[:5])
            assert not any(np.isnan(a).any() for a in session.states.values()), name
            assert all(np.isfinite(session.states[n]).all() for n in "wb"), name


# --- accumulation, adapters, straight-through gradients ---


def test_accumulated_steps_are_one_step_of_the_whole_batch() -> None:
    text = """train step(x: f32[B, 3], y: f32[B, 5]) -> loss: f32 {
      use net = Linear<3, 5>
      loss = mse(net(x), y)
      minimize loss with adamw(lr=0.1) { clip 0.5 LINE }
    }"""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 12, 3)), rng.standard_normal((2, 12, 5))
    whole = Session(read(text.replace("LINE", "")))
    parts = Session(read(text.replace("LINE", "; accumulate 3")))
    for epoch in range(2):
        whole("step", x[epoch], y[epoch])
        for number, part in enumerate(np.split(np.arange(12), 3)):
            before = dict(parts.states)
            parts("step", x[epoch][part], y[epoch][part])
            changed = [n for n in whole.states if not np.array_equal(before[n], parts.states[n])]
            assert len(changed) == (len(whole.states) if number == 2 else 0)
        for name, state in whole.states.items():
            np.testing.assert_allclose(parts.states[name], state, rtol=1e-9, atol=1e-12, err_msg=name)
    assert int(parts.states["accumulated.calls"]) == 0


LOW_RANK = """
train step(x: f32[B, 6], y: f32[B, 4]) -> loss: f32 {
  use net = LowRank<6, 4, rank=2, alpha=4>
  loss = mse(net(x), y)
  minimize loss with sgd(lr=0.1) { freeze "*.weight", "*.bias" }
}
model predict(x: f32[B, 6]) -> f32[B, 4] {
  use net = LowRank<6, 4, rank=2, alpha=4>
  return net(x)
}
"""


def test_adapters_begin_with_their_values_beside_a_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored = {"net.weight": rng.standard_normal((4, 6)), "net.bias": rng.standard_normal(4)}
    np.savez(tmp_path / "base.npz", **{name: a.astype(np.float32) for name, a in stored.items()})
    x, y = rng.standard_normal((9, 6)).astype(np.float32), rng.standard_normal((9, 4)).astype(np.float32)
    with pytest.warns(nacre.NacreWarning, match="no checkpoint holds 2 tensors.*: net.down, net.up"):
        session = nacre.compile(HEAD + LOW_RANK, tmp_path / "m.so", weights=tmp_path / "base.npz").session()
    plain = x @ stored["net.weight"].T + stored["net.bias"]
    np.testing.assert_allclose(session.predict(x), plain, rtol=1e-5, atol=1e-5)
    assert set(session.states) == {"net.down", "net.up"}
    losses = [float(session.step(x, y)) for _ in range(60)]
    assert losses[0] == pytest.approx(((plain - y) ** 2).mean(), rel=1e-5) and losses[-1] < 0.8 * losses[0]
    added = 2 * np.asarray(session.states["net.up"]) @ np.asarray(session.states["net.down"])
    expected = plain + x @ added.T
    np.testing.assert_allclose(session.predict(x), expected, rtol=1e-4, atol=1e-4)
    # A checkpoint that has the adapter replaces its first value.
    whole = {
        **stored,
        "net.down": np.asarray(session.states["net.down"]),
        "net.up": np.asarray(session.states["net.up"]),
    }
    np.savez(tmp_path / "whole.npz", **{name: a.astype(np.float32) for name, a in whole.items()})
    again = nacre.compile(HEAD + LOW_RANK, tmp_path / "n.so", weights=tmp_path / "whole.npz")
    np.testing.assert_allclose(again.session().predict(x), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(nacre.DiagnosticError, match=r"net\.bias"):
        np.savez(tmp_path / "part.npz", **{"net.weight": whole["net.weight"].astype(np.float32)})
        nacre.compile(HEAD + LOW_RANK, tmp_path / "o.so", weights=tmp_path / "part.npz")


@pytest.mark.parametrize("level", [0, 2])
def test_gradients_pass_straight_through_quantization(level: int, tmp_path: Path) -> None:
    text = """train step(x: f32[6]) -> loss: f32 {
      param weight: f32[6] = [0.3, -0.26, 0.0, 5.0, -20.0, 0.11]
      loss = sum(FakeQuantize(weight, 0.1) * x)
      minimize loss with sgd(lr=1.0)
    }"""
    session = nacre.compile(HEAD + text, tmp_path / "m.so", opt_level=level).session()
    x = np.float32([1, 2, 3, 4, 5, 6])
    first = np.asarray(session.states["weight"]).copy()
    rounded = np.clip(np.round(first * 10), -128, 127) / 10
    assert float(session.step(x)) == pytest.approx(float((rounded * x).sum()), rel=1e-5)
    np.testing.assert_allclose(session.states["weight"], first - x * (np.abs(first) < 12.75), rtol=1e-6)


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


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_clipping_of_extreme_gradients(dtype: str) -> None:
    """A norm of 0 clips nothing; NaN, and infinities beside numbers, stay visible."""
    text = f"""train step(x: {dtype}[3]) -> loss: {dtype} {{
      param weight: {dtype}[3] = 0.0
      loss = sum(weight * x)
      minimize loss with move() {{ clip 1.0 }}
    }}
    block move(parameter: {dtype}[...], gradient: {dtype}[...]) -> {dtype}[...] {{ return parameter + gradient }}"""
    module = read(text)

    def clipped(*numbers: float) -> Array:
        session = Session(module, precision=None)
        session("step", np.asarray(numbers, dtype.replace("f", "float")))
        return session.states["weight"]

    assert clipped(0.0, 0.0, 0.0).tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(clipped(1e-30, 0.0, 0.0), [1e-30, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(clipped(3e18, 0.0, -4e18), [0.6, 0, -0.8], rtol=1e-6)
    assert np.isnan(clipped(np.nan, 1.0, 0.0)).all() and np.isnan(clipped(np.inf, 1.0, 0.0)).any()
    if dtype == "f64":
        np.testing.assert_allclose(clipped(3e100, 0.0, -4e100), [0.6, 0, -0.8], rtol=1e-12)


@pytest.mark.parametrize(("rate", "kept"), [(0.0, 2000), (0.25, 1500), (1.0, 0)])
def test_the_gradient_of_dropout_has_the_mask_of_its_call(rate: float, kept: int) -> None:
    text = f"""train step(x: f32[2000]) -> y: f32[2000], loss: f32 {{
      param weight: f32[2000] = 1.0
      use dropped = Dropout<{rate}>
      y = dropped(x * weight)
      loss = sum(y)
      minimize loss with sgd(lr=0.25)
    }}"""
    session = Session(read(text))
    masks = []
    for _ in range(2):
        before = session.states["weight"]
        masks.append(session("step", np.ones(2000)) / before)
        np.testing.assert_allclose(4 * (before - session.states["weight"]), masks[-1], atol=1e-6)
        assert abs(np.count_nonzero(masks[-1]) - kept) < 100
    assert not 0 < rate < 1 or not np.array_equal(*masks)


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


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("level", [0, 2])
def test_an_update_in_f32_rounds_a_parameter_of_16_bits(dtype: DType, level: int, tmp_path: Path) -> None:
    """The states of the update are in f32, and only the new value of the parameter is rounded."""
    text = f"""language 1
    train step(x: {dtype}[4], lr: f32) -> loss: f32 {{
      param weight: {dtype}[4] = cast(1.0, {dtype})
      loss = cast(sum(x * weight), f32)
      minimize loss with sgd<momentum=0.9>(lr=lr)
    }}"""
    session = nacre.compile(text, tmp_path / "m.so", opt_level=level).session()
    x, rate = np.array([0.3, -1.7, 2e-3, 5.1], dtype.numpy), np.float32(0.1)
    weight, velocity = np.ones(4, dtype.numpy), np.zeros(4, np.float32)
    for _ in range(STEPS):
        session.step(x, rate)
        velocity = np.float32(0.9) * velocity + x.astype(np.float32)
        exact = weight.astype(np.float64) - rate.astype(np.float64) * velocity
        weight = session.states["weight"]
        step = np.spacing(np.abs(exact).astype(dtype.numpy)).astype(np.float64)
        assert weight.dtype == dtype.numpy and np.all(np.abs(weight - exact) <= 0.501 * step)
    assert session.states["sgd.weight.direction.velocity"].dtype == np.float32


def test_a_state_with_an_initial_value_leaves_the_parameters_of_its_block_alone() -> None:
    norm = (
        "block Norm(x: f32[4, 3]) -> f32[4, 3] {\n  param weight: f32[3] = 2.0\n  state center: f32[3] = 1.0\n"
        "  center = 0.5 * center + 0.5 * mean(x, axis=0)\n  return x * weight\n}\n"
    )
    step = (
        "train step(x: f32[4, 3], lr: f32) -> loss: f32 {\n  use norm = Norm\n  loss = mean(norm(x))\n"
        "  minimize loss with sgd(lr=lr)\n}\n"
    )
    session = nacre.compile("language 1\n" + norm + step).session()
    assert session.step(np.full((4, 3), 3.0, np.float32), np.float32(0.0)) == 6.0
    np.testing.assert_array_equal(session.states["norm.center"], [2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("loss", "lines", "help_text"),
    [
        ("sum(x * weight)", '{ freeze "*" }', "except for those that `freeze` selects"),
        ("sum(round(x * weight))", "", "gradients do not pass through integers, comparisons, `round`"),
    ],
)
def test_a_loss_without_gradients(loss: str, lines: str, help_text: str) -> None:
    text = f"""language 1
train step(x: f32[2]) -> loss: f32 {{
  param weight: f32[2] = 1.0
  loss = {loss}
  minimize loss with sgd(lr=0.1) {lines}
}}
"""
    (found,) = nacre.check(text)
    assert found.code == "bad-loss" and help_text in found.help
