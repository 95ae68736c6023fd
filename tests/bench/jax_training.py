"""The training steps of `training.py` in JAX: forward, backward and update as one compiled function.

Parameters are a dictionary with the names and shapes of those of the PyTorch module. `SCORES` has the forward
computation of each workload.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

Weights = dict[str, Any]


def make_step(
    name: str, parameters: Mapping[str, Any], inputs: tuple[Any, ...], rate: float, *, momentum: bool, threads: int
) -> Callable[[], object]:
    """Returns a step of a workload from initial parameters, given as arrays by name. The update is that of SGD with
    momentum, or else of AdamW."""
    # XLA takes a text that does not begin with `--` for the name of a file.
    several = "false" if threads == 1 else "true"
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={several} intra_op_parallelism_threads={threads}"
    jax: Any = importlib.import_module("jax")
    # A step then runs in the thread that calls it.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jnp, tree = jax.numpy, jax.tree
    weights = {key: jnp.asarray(value) for key, value in parameters.items()}
    zeros = tree.map(jnp.zeros_like, weights)
    x, label = map(jnp.asarray, inputs)
    statistics = {key: (jnp.zeros(w.shape), jnp.ones(w.shape)) for key, w in weights.items() if momentum}

    def find_loss(weights: Weights) -> tuple[Any, Any]:
        model = _Model(jax, weights)
        scores = SCORES[name](model, x)
        shares = jax.nn.log_softmax(scores)
        return -jnp.mean(jnp.take_along_axis(shares, label[..., None], axis=-1)), model.seen

    def adamw(weights: Weights, gradients: Weights, state: Any) -> tuple[Weights, Any]:
        mean, square, count = state
        count = count + 1
        mean = tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
        square = tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradients)
        first, second = 1 - 0.9**count, 1 - 0.999**count
        weights = tree.map(
            lambda w, m, v: (1 - 0.01 * rate) * w - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8),
            weights,
            mean,
            square,
        )
        return weights, (mean, square, count)

    def sgd(weights: Weights, gradients: Weights, state: Any) -> tuple[Weights, Any]:
        state = tree.map(lambda m, g: 0.9 * m + g, state, gradients)
        return tree.map(lambda w, m: w - rate * m, weights, state), state

    @partial(jax.jit, donate_argnums=0)
    def advance(everything: Any) -> Any:
        weights, state, running = everything
        (loss, seen), gradients = jax.value_and_grad(find_loss, has_aux=True)(weights)
        weights, state = (sgd if momentum else adamw)(weights, gradients, state)
        running = {
            key: tuple(0.9 * old + 0.1 * new for old, new in zip(running[key], seen[key], strict=True)) for key in seen
        }
        return (weights, state, running), loss

    state = zeros if momentum else (zeros, tree.map(jnp.zeros_like, weights), jnp.zeros(()))
    norms = jax.eval_shape(find_loss, weights)[1]
    everything = [(weights, state, {key: statistics[key] for key in norms})]

    def step() -> object:
        everything[0], loss = advance(everything[0])
        return loss.block_until_ready()

    return step


class _Model:
    """The layers of a step, by the names of their parameters. `seen` holds the statistics of each norm's batch."""

    def __init__(self, jax: Any, weights: Weights) -> None:
        self.jax, self.jnp, self.weights = jax, jax.numpy, weights
        self.seen: dict[str, Any] = {}

    def linear(self, key: str, x: Any) -> Any:
        return x @ self.weights[f"{key}.weight"].T + self.weights[f"{key}.bias"]

    def conv(self, key: str, x: Any, stride: int = 1, padding: int = 0) -> Any:
        return self.jax.lax.conv_general_dilated(
            x, self.weights[f"{key}.weight"], (stride, stride), ((padding, padding),) * 2
        )

    def biased_conv(self, key: str, x: Any) -> Any:
        return self.conv(key, x) + self.weights[f"{key}.bias"][:, None, None]

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        return self.jax.lax.reduce_window(
            x, -self.jnp.inf, self.jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), sides
        )

    def batch_norm(self, key: str, x: Any) -> Any:
        center, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
        count = x.size // x.shape[1]
        self.seen[f"{key}.weight"] = (center, spread * (count / (count - 1)))
        scale = self.weights[f"{key}.weight"] * self.jax.lax.rsqrt(spread + 1e-5)
        return (x - center[:, None, None]) * scale[:, None, None] + self.weights[f"{key}.bias"][:, None, None]

    def layer_norm(self, key: str, x: Any) -> Any:
        moved = x - x.mean(-1, keepdims=True)
        scale = self.jax.lax.rsqrt((moved * moved).mean(-1, keepdims=True) + 1e-5)
        return moved * scale * self.weights[f"{key}.weight"] + self.weights[f"{key}.bias"]


def _mlp(m: _Model, x: Any) -> Any:
    relu = m.jax.nn.relu
    return m.linear("4", relu(m.linear("2", relu(m.linear("0", x)))))


def _lenet(m: _Model, x: Any) -> Any:
    relu = m.jax.nn.relu
    y = m.max_pool(relu(m.biased_conv("0", x)), 2, 2)
    y = m.max_pool(relu(m.biased_conv("3", y)), 2, 2).reshape(x.shape[0], -1)
    return m.linear("11", relu(m.linear("9", relu(m.linear("7", y)))))


def _gpt(m: _Model, ids: Any) -> Any:
    batch, length = ids.shape
    seen = m.jnp.tril(m.jnp.ones((length, length), bool))
    x = m.weights["table.weight"][ids] + m.weights["places"]
    for number in range(6):
        key = f"layers.{number}."
        y = m.layer_norm(key + "first", x)
        q, k, v = (
            m.linear(key + part, y).reshape(batch, length, 6, 64).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        shares = m.jax.nn.softmax(m.jnp.where(seen, q @ k.swapaxes(-1, -2) / 8, -m.jnp.inf))
        x = x + m.linear(key + "mixed", (shares @ v).transpose(0, 2, 1, 3).reshape(batch, length, 384))
        wide = m.jax.nn.gelu(m.linear(key + "wide", m.layer_norm(key + "second", x)), approximate=True)
        x = x + m.linear(key + "narrow", wide)
    return m.layer_norm("norm", x) @ m.weights["table.weight"].T


def _resnet(m: _Model, x: Any) -> Any:
    relu = m.jax.nn.relu
    y = m.max_pool(relu(m.batch_norm("norm", m.conv("conv", x, 2, 3))), 3, 2, 1)
    for number in range(8):
        key, stride = f"layer{number}.", 2 if number in (2, 4, 6) else 1
        beside = m.batch_norm(key + "shortcut.norm", m.conv(key + "shortcut.conv", y, stride)) if stride == 2 else y
        inner = relu(m.batch_norm(key + "norm1", m.conv(key + "conv1", y, stride, 1)))
        y = relu(m.batch_norm(key + "norm2", m.conv(key + "conv2", inner, 1, 1)) + beside)
    return m.linear("classes", y.mean((2, 3)))


SCORES: Mapping[str, Callable[[_Model, Any], Any]] = {"mlp": _mlp, "lenet": _lenet, "gpt": _gpt, "resnet": _resnet}
"""The scores of the classes, by workload."""
