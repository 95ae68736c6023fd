"""Measures an LSTM written with `scan` against the LSTM of ONNX Runtime: `python tests/bench/recurrent.py`.

Both run in one thread of this process with the same weights. Calls alternate, and each figure is the least thread time
of a call, so that interruptions are excluded. ONNX's graphs have one operator for the whole layer, so the workloads of
`compare.py`, whose twins are written operator by operator, do not cover it.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SOURCE = """
dim B in 1..64
dim T in 0..512

block Cell<inner, n>(x: f32[B, inner], h: f32[B, n], c: f32[B, n]) -> f32[B, n], f32[B, n] {{
  param weight_ih: f32[4*n, inner]
  param weight_hh: f32[4*n, n]
  param bias: f32[4*n]
  i, f, g, o = split(x @ weight_ih.T + bias + h @ weight_hh.T, 4, axis=-1)
  c = sigmoid(f) * c + sigmoid(i) * tanh(g)
  return sigmoid(o) * tanh(c), c
}}

model lstm(x: f32[T, B, {n}], h0: f32[B, {n}], c0: f32[B, {n}]) -> f32[T, B, {n}], f32[B, {n}], f32[B, {n}] {{
  use cell = Cell<{n}, {n}>
  y = scan t in 0..T with h = h0, c = c0 {{ h, c = cell(x[t], h, c) }} collect h
  return y, h, c
}}
"""
WIDTHS = (64, 256, 512)
SIZES = ((1, 1), (128, 1), (64, 8), (32, 32))
"""The steps and the batch sizes of the calls."""
ROUNDS = 12
Call = Callable[[], Any]


def draw_weights(n: int) -> dict[str, Any]:
    r = np.random.default_rng(0)
    shapes = {"weight_ih": (4 * n, n), "weight_hh": (4 * n, n), "bias": (4 * n,)}
    return {f"cell.{name}": r.standard_normal(s).astype(np.float32) / n**0.5 for name, s in shapes.items()}


def onnx_session(weights: Mapping[str, Any], n: int) -> onnxruntime.InferenceSession:
    """Returns a session of one thread. ONNX orders the gates i, o, f, c."""

    def ordered(name: str) -> Any:
        i, f, g, o = np.split(weights[f"cell.{name}"], 4)
        return np.concatenate([i, o, f, g])[None]

    bias = np.concatenate([ordered("bias"), np.zeros((1, 4 * n), np.float32)], axis=1)
    stored = {"W": ordered("weight_ih"), "R": ordered("weight_hh"), "b": bias}

    def value(name: str, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node("LSTM", ["x", "W", "R", "b", "", "h0", "c0"], ["y", "h", "c"], hidden_size=n)
    graph = helper.make_graph(
        [node],
        "lstm",
        [value("x", "T", "B", n), value("h0", 1, "B", n), value("c0", 1, "B", n)],
        [value("y", "T", 1, "B", n), value("h", 1, "B", n), value("c", 1, "B", n)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def least_times(calls: tuple[Call, Call], repeats: int) -> list[float]:
    """Returns the least thread time of a call of each, measured in turn."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            began = time.thread_time()
            for _ in range(repeats):
                call()
            least[number] = min(least[number], (time.thread_time() - began) / repeats)
    return least


def main() -> int:
    print(f"{'width':>5} {'steps':>5} {'batch':>5}  {'nacre':>9}  {'onnx':>9}  ratio")
    for n in WIDTHS:
        weights = draw_weights(n)
        session = onnx_session(weights, n)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nacre.compile(SOURCE.format(n=n), Path(folder) / "lstm.so", weights=weights, threads=1)
            for steps, batch in SIZES:
                r = np.random.default_rng(1)
                x, h, c = (r.standard_normal(s).astype(np.float32) for s in ((steps, batch, n), *[(batch, n)] * 2))
                given = {"x": x, "h0": h[None], "c0": c[None]}
                right = session.run(None, given)[0][:, 0]
                assert np.abs(np.asarray(model(x, h, c)[0]) - right).max() < 1e-4
                repeats = max(2, min(50, 10**9 // (steps * batch * n * n * 16)))
                calls = partial(model, x, h, c), partial(session.run, None, given)
                ours, theirs = least_times(calls, repeats)
                print(
                    f"{n:>5} {steps:>5} {batch:>5}  {ours * 1e6:>6.0f} us  {theirs * 1e6:>6.0f} us  {theirs / ours:.2f}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
