"""Compares training steps with PyTorch, eager and compiled, and JAX: `python tests/bench/training.py [WORKLOAD ...]`.

All run on one thread of one process, in turns, and the least CPU time of a step counts, which shows the other work of
the machine least. It includes all threads of the process, since JAX has its own. The steps compute the same: forward,
backward, and an update by AdamW. `--compiled` adds torch.compile, which needs a C++ compiler; JAX takes part
in `mlp`, if it is installed. `training.md` has the figures.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import nacre
import numpy as np
import torch
from torch import nn
from torch.nn import functional

HEAD = """language 1
import "library/losses.nacre"
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed) / sqrt(inputs)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
block Conv<inputs, outputs, size>(x: f32[B, inputs, H, W]) -> f32[B, outputs, H - size + 1, W - size + 1] {
  param weight: f32[outputs, inputs, size, size] = random_normal((outputs, inputs, size, size), seed) / (5 * size)
  param bias: f32[outputs] = 0.0
  return conv2d(x, weight, bias)
}
"""
MLP = """
train step(x: f32[64, 784], label: i64[64], lr: f32) -> loss: f32 {
  use first = Linear<784, 256>
  use second = Linear<256, 128>
  use third = Linear<128, 10>
  loss = cross_entropy(x |> first |> relu |> second |> relu |> third, label)
  minimize loss with adamw(lr=lr)
}
"""
LENET = """
train step(x: f32[64, 1, 28, 28], label: i64[64], lr: f32) -> loss: f32 {
  use first = Conv<1, 6, 5>
  use second = Conv<6, 16, 5>
  use third = Linear<256, 120>
  use fourth = Linear<120, 84>
  use fifth = Linear<84, 10>
  y = x |> first |> relu |> max_pool2d(2) |> second |> relu |> max_pool2d(2) |> flatten(1)
  loss = cross_entropy(y |> third |> relu |> fourth |> relu |> fifth, label)
  minimize loss with adamw(lr=lr)
}
"""


GPT = """
block GptLayer(x: f32[8, 256, 384]) -> f32[8, 256, 384] {
  use first, second = Norm<384>
  use query, key, value, mixed = Linear<384, 384>
  use wide = Linear<384, 1536>
  use narrow = Linear<1536, 384>
  y = first(x)
  q = query(y) |> rearrange("b t (h d) -> b h t d", h=6)
  k = key(y) |> rearrange("b t (h d) -> b h t d", h=6)
  v = value(y) |> rearrange("b t (h d) -> b h t d", h=6)
  seen = iota((256,), dtype=i64)[None, :] <= iota((256,), dtype=i64)[:, None]
  shares = softmax(where(seen, q @ k.mT / sqrt(64), -inf))
  x = x + mixed(shares @ v |> rearrange("b h t d -> b t (h d)"))
  return x + narrow(gelu(wide(second(x)), approximate="tanh"))
}
block Norm<width>(x: f32[..., width]) -> f32[..., width] {
  param weight: f32[width] = 1.0
  param bias: f32[width] = 0.0
  return layer_norm(x, weight, bias)
}
train step(ids: i64[8, 256], label: i64[8, 256], lr: f32) -> loss: f32 {
  param table: f32[65, 384] = 0.02 * random_normal((65, 384), seed)
  param places: f32[256, 384] = 0.02 * random_normal((256, 384), seed)
  use layer[6] = GptLayer
  use norm = Norm<384>
  x = embedding(table, ids) + places
  repeat i in 0..6 { x = layer[i](x) }
  loss = cross_entropy(norm(x) @ table.T, label)
  minimize loss with adamw(lr=lr)
}
"""


class GptLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(384), nn.LayerNorm(384)
        self.query, self.key, self.value, self.mixed = (nn.Linear(384, 384) for _ in range(4))
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (part(y).view(8, 256, 6, 64).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(mixed.transpose(1, 2).reshape(8, 256, 384))
        return x + self.narrow(functional.gelu(self.wide(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(65, 384), nn.Parameter(0.02 * torch.randn(256, 384))
        self.layers = nn.Sequential(*(GptLayer() for _ in range(6)))
        self.norm = nn.LayerNorm(384)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layers(self.table(ids) + self.places))
        return (x @ self.table.weight.T).transpose(1, 2)


def nacre_step(text: str, inputs: list[Any]) -> Callable[[], object]:
    model = nacre.compile(HEAD + text)
    session = nacre.load(model.path, threads=1).session()
    return lambda: session.step(*inputs, np.float32(1e-3))


def torch_step(module: Any, inputs: list[Any], *, compiled: bool = False) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=True)
    x, label = map(torch.tensor, inputs)

    def find_loss() -> torch.Tensor:
        return functional.cross_entropy(module(x), label)

    forward = torch.compile(find_loss) if compiled else find_loss

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    return step


def jax_step(inputs: list[Any]) -> Callable[[], object] | None:
    """The step of `mlp`, as one compiled function; None without JAX."""
    if find_spec("jax") is None:
        return None
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    jax: Any = importlib.import_module("jax")
    # A step then runs in the thread that calls it.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jnp, rng = jax.numpy, np.random.default_rng(0)
    sizes = ((784, 256), (256, 128), (128, 10))
    weights = [(jnp.asarray(rng.standard_normal(s) / 28, jnp.float32), jnp.zeros(s[1])) for s in sizes]
    zeros = jax.tree.map(jnp.zeros_like, weights)
    x, label = map(jnp.asarray, inputs)

    def find_loss(weights: Any) -> Any:
        y = x
        for number, (weight, bias) in enumerate(weights):
            y = y @ weight + bias
            y = jax.nn.relu(y) if number < 2 else y
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(y), label[:, None], axis=1))

    @partial(jax.jit, donate_argnums=0)
    def advance(state: Any) -> Any:
        weights, mean, square, count = state
        loss, gradients = jax.value_and_grad(find_loss)(weights)
        count = count + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradients)
        first, second = 1 - 0.9**count, 1 - 0.999**count
        weights = jax.tree.map(
            lambda w, m, v: 0.99999 * w - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8), weights, mean, square
        )
        return (weights, mean, square, count), loss

    state = [(weights, zeros, jax.tree.map(jnp.zeros_like, weights), jnp.zeros(()))]

    def step() -> object:
        state[0], loss = advance(state[0])
        return loss.block_until_ready()

    return step


def measure(name: str, steps: dict[str, Callable[[], object]], rounds: int) -> None:
    """Prints the least time of a step, in milliseconds, and the ratio to Nacre's."""
    least = dict.fromkeys(steps, float("inf"))
    for number in range(rounds + 1):
        for key, step in steps.items():
            start = time.process_time()
            step()
            if number:  # the first call may compile
                least[key] = min(least[key], time.process_time() - start)
    ratios = " | ".join(f"{key} {value * 1e3:.3f} ms ({value / least['nacre']:.2f})" for key, value in least.items())
    print(f"{name}: {ratios}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    names, compiled = [n for n in sys.argv[1:] if n != "--compiled"], "--compiled" in sys.argv
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 64)
    flat = rng.standard_normal((64, 784)).astype(np.float32)
    mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    images = flat.reshape(64, 1, 28, 28)
    convolutions = (nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    dense = (nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    lenet = nn.Sequential(*convolutions, nn.Flatten(), *dense)
    ids, following = rng.integers(0, 65, (2, 8, 256))
    workloads = (
        ("mlp", MLP, mlp, [flat, labels], 60),
        ("lenet", LENET, lenet, [images, labels], 60),
        ("gpt", GPT, Gpt(), [ids, following], 3),
    )
    for name, text, module, inputs, rounds in workloads:
        if name in (names or [name]):
            steps = {"nacre": nacre_step(text, inputs), "torch": torch_step(module, inputs)}
            if compiled:
                steps["torch.compile"] = torch_step(copy.deepcopy(module), inputs, compiled=True)
            jax = jax_step(inputs) if name == "mlp" else None
            if jax is not None:
                steps["jax"] = jax
            measure(name, steps, rounds)


if __name__ == "__main__":
    main()
