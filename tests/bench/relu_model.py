"""Times a step of a model with ReLU, with and without the rows that are multiplied by 0:
`python tests/bench/relu_model.py [--weights q8]`, with the package torch.

One token passes through the matrices of the 12 layers of GPT-2 124M, with random weights, ReLU, and without attention.
A bias makes a part of the activations 0. `--strict` compiles the same model to products that read all rows. `--weights`
stores the matrices in blocks of 32, without torch as a contender. `--a8` also rounds activations to 8 bits, and
`--rows` sets the number of tokens of a call; in both cases, products read all rows. Each figure is the median CPU time
of a call on one thread; the contenders take turns. The bytes are those of the matrices, without the rows that are left
out.
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
import numpy.typing as npt
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
FORMATS = {
    "f32": ("", 4.0, 1, 3 / 4),
    "q8": ("q8[block 32]", 34 / 32, 1, 3 / 8),
    "q4": ("q4[block 32]", 18 / 32, 2, 3 / 8),
}
"""The dtype of the matrices, the bytes of a number, the rows that share bytes, and the greatest part of rows that a
product reads if it leaves out others."""
Row = npt.NDArray[np.float32]
Weights = dict[str, Row]


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


def share_left_out(weights: Weights, x: Row, sharing: int, most: float) -> float:
    """Returns the part of the rows of all layers that one token leaves out, from the last two numbers of `FORMATS`."""
    shares = []
    for i in range(LAYERS):
        z = x @ weights[f"layer.{i}.first"].T
        x = x + z[:, :WIDTH] + z[:, 3 * WIDTH :]
        y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(0.00001))
        h = np.maximum(y @ weights[f"layer.{i}.up"].T + weights[f"layer.{i}.bias"], 0)
        # Rows of a block that share bytes are half a block apart.
        read = float(np.mean((h != 0).reshape(-1, sharing, 32 // sharing).any(1)))
        shares.append(1 - read if read <= most else 0.0)
        x = x + h @ weights[f"layer.{i}.down"].T
    return statistics.mean(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--weights", choices=FORMATS, default="f32")
    parser.add_argument("--a8", action="store_true", help="round activations to 8 bits")
    parser.add_argument("--rows", type=int, default=1, help="tokens of a call")
    options = parser.parse_args()
    dtype, size, sharing, most = FORMATS[options.weights]
    rules = [f'weights "*" to {dtype}'] * bool(dtype) + ["activations matmul to i8 dynamic"] * options.a8
    source = SOURCE.replace("[1,", f"[{options.rows},") + (f"quantize step {{ {'; '.join(rules)} }}" if rules else "")
    torch.set_num_threads(1)
    x = np.random.default_rng(1).standard_normal((options.rows, WIDTH)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for zeros in (0.5, 0.7, 0.9):
            weights = make_weights(zeros)
            contenders = []
            for name, strict in (("sparse", False), ("dense", True)):
                model = nacre.compile(source, Path(folder) / f"{name}.so", weights=weights, strict=strict, threads=1)
                contenders.append(Contender(name, partial(model, x), lambda result: [result]))
            if not rules:
                step = partial(in_torch(weights), torch.from_numpy(x))
                contenders.append(Contender("torch", step, lambda result: [result.numpy()]))
            first, *others = (contender.results()[0] for contender in contenders)
            for other in others:
                np.testing.assert_allclose(first, other, rtol=0, atol=1e-4 * np.abs(other).max())
            timed = [contender.timed_by(time.thread_time) for contender in contenders]
            times = interleave(timed, Plan(options.rounds, 0)).seconds
            shown = ", ".join(f"{name} {statistics.median(each) * 1e3:.2f} ms" for name, each in times.items())
            whole = size * LAYERS * WIDTH * (4 * WIDTH + 2 * HIDDEN) / 1e6
            left_out = 0.0 if options.a8 or options.rows > 1 else share_left_out(weights, x, sharing, most)
            read = whole - left_out * size * LAYERS * WIDTH * HIDDEN / 1e6
            print(f"{zeros:.0%} zeros: {shown}; {read:.0f} MB of {whole:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
