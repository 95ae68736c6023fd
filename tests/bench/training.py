"""Compares training steps with PyTorch's eager mode: `python tests/bench/training.py`.

Both run on one thread of one process, in turns, and the least thread CPU time of a step counts: the other work of the
machine then shows least. The steps compute the same: forward, backward, and an update by AdamW.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
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


def nacre_step(text: str, inputs: list[Any]) -> Callable[[], object]:
    model = nacre.compile(HEAD + text)
    session = nacre.load(model.path, threads=1).session()
    return lambda: session.step(*inputs, np.float32(1e-3))


def torch_step(module: Any, inputs: list[Any]) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=True)
    x, label = map(torch.tensor, inputs)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(module(x), label)
        loss.backward()
        optimizer.step()
        return loss

    return step


def measure(name: str, steps: dict[str, Callable[[], object]], rounds: int = 60) -> None:
    """Prints the least time of a step, in milliseconds, and the ratio to Nacre's."""
    least = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for key, step in steps.items():
            start = time.thread_time()
            step()
            least[key] = min(least[key], time.thread_time() - start)
    ratios = ", ".join(f"{key} {value * 1e3:.3f} ms ({value / least['nacre']:.2f})" for key, value in least.items())
    print(f"{name}: {ratios}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 64)
    flat = rng.standard_normal((64, 784)).astype(np.float32)
    mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    images = flat.reshape(64, 1, 28, 28)
    convolutions = (nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    dense = (nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    lenet = nn.Sequential(*convolutions, nn.Flatten(), *dense)
    for name, text, module, x in (("mlp", MLP, mlp, flat), ("lenet", LENET, lenet, images)):
        if name in (sys.argv[1:] or [name]):
            steps = {"nacre": nacre_step(text, [x, labels]), "torch": torch_step(module, [x, labels])}
            measure(name, steps)


if __name__ == "__main__":
    main()
