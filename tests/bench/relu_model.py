"""Times a step of a model with ReLU, with and without the rows that are multiplied by 0:
`python tests/bench/relu_model.py`, with the package torch.

One token passes through the matrices of the 12 layers of GPT-2 124M, with random weights, ReLU, and without attention.
A bias makes a part of the activations 0. `--strict` compiles the same model to products that read all rows. Each figure
is the median CPU time of a call on one thread; the contenders take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nacre
import numpy as np
import torch
from measure import Contender, Plan, interleave

LAYERS, WIDTH, HIDDEN = 12, 768, 3072
SOURCE = f"""
block Layer(x: f32[1, {WIDTH}]) -> f32[1, {WIDTH}] {{
  param first: f32[{4 * WIDTH}, {WIDTH}]  # queries, keys, values and the output of attention
  param up: f32[{HIDDEN}, {WIDTH}]
  param bias: f32[{HIDDEN}]
  param down: f32[{WIDTH}, {HIDDEN}]
  x = x + (x @ first.T)[:, :{WIDTH}] + (x @ first.T)[:, {3 * WIDTH}:]
  y = x / sqrt(mean(x * x, axis=-1, keepdims=true) + 0.00001)
  return x + relu(y @ up.T + bias) @ down.T
}}

model step(x: f32[1, {WIDTH}]) -> f32[1, {WIDTH}] {{
  use layer[{LAYERS}] = Layer
  repeat i in 0..{LAYERS} {{
    x = layer[i](x)
  }}
  return x
}}
"""
Weights = dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]


def make_weights(zeros: float) -> Weights:
    """Returns weights for which a part of the activations is 0: these are normal numbers plus the bias."""
    random = np.random.default_rng(0)
    weights: Weights = {}
    bias = -statistics.NormalDist().inv_cdf(zeros)
    for i in range(LAYERS):
        for name, rows, columns in (("first", 4 * WIDTH, WIDTH), ("up", HIDDEN, WIDTH), ("down", WIDTH, HIDDEN)):
            matrix = random.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
            weights[f"layer.{i}.{name}"] = matrix
        weights[f"layer.{i}.bias"] = np.full(HIDDEN, bias, np.float32)
    return weights


def in_torch(weights: Weights) -> Callable[[torch.Tensor], torch.Tensor]:
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            for i in range(LAYERS):
                first, up, bias, down = (tensors[f"layer.{i}.{name}"] for name in ("first", "up", "bias", "down"))
                z = torch.nn.functional.linear(x, first)
                x = x + z[:, :WIDTH] + z[:, 3 * WIDTH :]
                y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 0.00001)
                x = x + torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(y, up, bias)), down)
        return x

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for zeros in (0.5, 0.7, 0.9):
            weights = make_weights(zeros)
            contenders = []
            for name, strict in (("sparse", False), ("dense", True)):
                model = nacre.compile(SOURCE, Path(folder) / f"{name}.so", weights=weights, strict=strict, threads=1)
                contenders.append(Contender(name, partial(model, x), lambda result: [result]))
            step = partial(in_torch(weights), torch.from_numpy(x))
            contenders.append(Contender("torch", step, lambda result: [result.numpy()]))
            first, *others = (contender.results()[0] for contender in contenders)
            for other in others:
                np.testing.assert_allclose(first, other, rtol=0, atol=1e-4 * np.abs(other).max())
            timed = [contender.timed_by(time.thread_time) for contender in contenders]
            times = interleave(timed, Plan(rounds, 0)).seconds
            shown = ", ".join(f"{name} {statistics.median(each) * 1e3:.2f} ms" for name, each in times.items())
            print(f"{zeros:.0%} zeros: {shown}", flush=True)


if __name__ == "__main__":
    main()
