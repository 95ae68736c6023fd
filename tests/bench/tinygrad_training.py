"""The training steps of `training.py` in tinygrad, on its CPU device: forward, backward and update under `TinyJit`.

Parameters are a dictionary with the names and shapes of those of the PyTorch module. `SCORES` has the forward
computation of each workload.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any


def reason_of_absence() -> str | None:
    """Returns the reason why tinygrad cannot take part on this machine, or None."""
    if find_spec("tinygrad") is None:
        return "the package tinygrad is not installed"
    if shutil.which("clang") is None:
        return "its CPU device needs clang, which is not on PATH"
    return None


def make_step(
    name: str, parameters: Mapping[str, Any], inputs: tuple[Any, ...], rate: float, *, momentum: bool, threads: int
) -> Callable[[], object]:
    """Returns a step of a workload from initial parameters, given as arrays by name. The update is that of SGD with
    momentum, or else of AdamW."""
    os.environ.update(DEV="CPU", NUM_CPU_THREADS=str(threads))
    tinygrad: Any = importlib.import_module("tinygrad")
    optimizers: Any = importlib.import_module("tinygrad.nn.optim")
    x, label = (tinygrad.Tensor(_narrow(array)).is_param_(False).realize() for array in inputs)
    weights = {key: tinygrad.Tensor(value).realize() for key, value in parameters.items()}
    if momentum:
        optimizer = optimizers.SGD(list(weights.values()), lr=rate, momentum=0.9)
    else:
        optimizer = optimizers.AdamW(list(weights.values()), lr=rate)
    norms = {
        f"{key.removesuffix('.weight')}.{part}": tinygrad.Tensor.full(value.shape, start).is_param_(False).realize()
        for key, value in parameters.items()
        for part, start in (("mean", 0.0), ("variance", 1.0))
        if value.ndim == 1 and key.endswith(".weight")
    }

    @tinygrad.TinyJit
    def advance() -> Any:
        with tinygrad.Context(TRAINING=1):
            optimizer.zero_grad()
            scores = SCORES[name](_Model(weights, norms), x)
            loss = scores.sparse_categorical_crossentropy(label).backward()
            return loss.realize(*optimizer.schedule_step(), *norms.values())

    def step() -> object:
        return advance().item()

    return step


def _narrow(array: Any) -> Any:
    """Returns indices as int32, which all accept; other arrays as they are."""
    return array.astype("int32") if array.dtype == "int64" else array


class _Model:
    """The layers of a step, by the names of their parameters. `norms` holds the running mean and variance of each
    batch norm, by its name and the name of the statistic."""

    def __init__(self, weights: Mapping[str, Any], norms: dict[str, Any]) -> None:
        self.weights, self.norms = weights, norms

    def linear(self, key: str, x: Any) -> Any:
        return x.linear(self.weights[f"{key}.weight"].T, self.weights[f"{key}.bias"])

    def conv(self, key: str, x: Any, stride: int = 1, padding: int = 0) -> Any:
        return x.conv2d(self.weights[f"{key}.weight"], stride=stride, padding=padding)

    def biased_conv(self, key: str, x: Any) -> Any:
        return x.conv2d(self.weights[f"{key}.weight"], self.weights[f"{key}.bias"])

    def batch_norm(self, key: str, x: Any) -> Any:
        center, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        count = x.numel() // x.shape[1]
        for part, new in (("mean", center), ("variance", spread * (count / (count - 1)))):
            running = self.norms[f"{key}.{part}"]
            running.assign(0.9 * running + 0.1 * new.detach())
        weight, bias = self.weights[f"{key}.weight"], self.weights[f"{key}.bias"]
        return x.batchnorm(weight, bias, center, (spread + 1e-5).rsqrt())

    def layer_norm(self, key: str, x: Any) -> Any:
        return x.layernorm(eps=1e-5) * self.weights[f"{key}.weight"] + self.weights[f"{key}.bias"]

    def embedding(self, key: str, ids: Any) -> Any:
        table = self.weights[f"{key}.weight"]
        layer = importlib.import_module("tinygrad.nn").Embedding(*table.shape)
        layer.weight = table
        return layer(ids)


def _mlp(m: _Model, x: Any) -> Any:
    return m.linear("4", m.linear("2", m.linear("0", x).relu()).relu())


def _lenet(m: _Model, x: Any) -> Any:
    y = m.biased_conv("0", x).relu().max_pool2d((2, 2))
    y = m.biased_conv("3", y).relu().max_pool2d((2, 2)).flatten(1)
    return m.linear("11", m.linear("9", m.linear("7", y).relu()).relu())


def _gpt(m: _Model, ids: Any) -> Any:
    batch, length = ids.shape
    x = m.embedding("table", ids) + m.weights["places"]
    for number in range(6):
        key = f"layers.{number}."
        y = m.layer_norm(key + "first", x)
        q, k, v = (
            m.linear(key + part, y).reshape(batch, length, 6, 64).transpose(1, 2) for part in ("query", "key", "value")
        )
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, length, 384)
        x = x + m.linear(key + "mixed", mixed)
        x = x + m.linear(key + "narrow", m.linear(key + "wide", m.layer_norm(key + "second", x)).gelu())
    return m.layer_norm("norm", x) @ m.weights["table.weight"].T


def _resnet(m: _Model, x: Any) -> Any:
    y = m.batch_norm("norm", m.conv("conv", x, 2, 3)).relu().max_pool2d((3, 3), stride=2, padding=1)
    for number in range(8):
        key, stride = f"layer{number}.", 2 if number in (2, 4, 6) else 1
        beside = m.batch_norm(key + "shortcut.norm", m.conv(key + "shortcut.conv", y, stride)) if stride == 2 else y
        inner = m.batch_norm(key + "norm1", m.conv(key + "conv1", y, stride, 1)).relu()
        y = (m.batch_norm(key + "norm2", m.conv(key + "conv2", inner, 1, 1)) + beside).relu()
    return m.linear("classes", y.mean((2, 3)))


SCORES: Mapping[str, Callable[[_Model, Any], Any]] = {"mlp": _mlp, "lenet": _lenet, "gpt": _gpt, "resnet": _resnet}
"""The scores of the classes, by workload."""
