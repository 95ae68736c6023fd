"""Measures recurrent layers written with `scan` against those of ONNX Runtime: `python tests/bench/recurrent.py`.

Both run in one thread of this process with the same weights. Calls alternate, and each figure is the least thread time
of a call, so that interruptions are excluded. ONNX's graphs have one operator for the whole layer, so the workloads of
`compare.py`, whose twins are written operator by operator, do not cover it. `--write FILE` writes the table of
`recurrent.md`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import onnx
import onnxruntime
from measure import Contender, Plan, interleave
from nacre.compiler.tools.profile.machine import processor
from onnx import TensorProto, helper, numpy_helper

LSTM = """
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
GRU = """
dim B in 1..64
dim T in 0..512

block Cell<inner, n>(x: f32[B, inner], h: f32[B, n]) -> f32[B, n] {{
  param weight_ih: f32[3*n, inner]
  param weight_hh: f32[3*n, n]
  param bias: f32[3*n]
  param recurrent_bias: f32[3*n]
  xr, xz, xn = split(x @ weight_ih.T + bias, 3, axis=-1)
  hr, hz, hn = split(h @ weight_hh.T + recurrent_bias, 3, axis=-1)
  z = sigmoid(xz + hz)
  return (1.0 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h
}}

model gru(x: f32[T, B, {n}], h0: f32[B, {n}]) -> f32[T, B, {n}], f32[B, {n}] {{
  use cell = Cell<{n}, {n}>
  y = scan t in 0..T with h = h0 {{ h = cell(x[t], h) }} collect h
  return y, h
}}
"""
RNN = """
dim B in 1..64
dim T in 0..512

block Cell<inner, n>(x: f32[B, inner], h: f32[B, n]) -> f32[B, n] {{
  param weight_ih: f32[n, inner]
  param weight_hh: f32[n, n]
  param bias: f32[n]
  return tanh(x @ weight_ih.T + bias + h @ weight_hh.T)
}}

model rnn(x: f32[T, B, {n}], h0: f32[B, {n}]) -> f32[T, B, {n}], f32[B, {n}] {{
  use cell = Cell<{n}, {n}>
  y = scan t in 0..T with h = h0 {{ h = cell(x[t], h) }} collect h
  return y, h
}}
"""


@dataclass(frozen=True)
class Layer:
    """A layer: its text, and ONNX's operator, whose gates are in the order `gates` of those in the text."""

    source: str
    operator: str
    gates: tuple[int, ...]
    states: int = 1
    attributes: Mapping[str, int] | None = None

    def draw_weights(self, n: int) -> dict[str, Any]:
        r, rows = np.random.default_rng(0), len(self.gates) * n
        shapes = {"weight_ih": (rows, n), "weight_hh": (rows, n), "bias": (rows,)}
        if self.operator == "GRU":
            shapes["recurrent_bias"] = (rows,)
        return {f"cell.{name}": r.standard_normal(s).astype(np.float32) / n**0.5 for name, s in shapes.items()}


LAYERS = {
    # ONNX orders the gates i, o, f, c and z, r, h.
    "LSTM": Layer(LSTM, "LSTM", (0, 3, 1, 2), states=2),
    "GRU": Layer(GRU, "GRU", (1, 0, 2), attributes={"linear_before_reset": 1}),
    "RNN": Layer(RNN, "RNN", (0,)),
}
WIDTHS = (8, 16, 32, 64, 128, 256)
BATCHES = (1, 8)
STEPS = 100
PLAN = Plan(rounds=12, slot=0.05)


def onnx_session(layer: Layer, weights: Mapping[str, Any], n: int) -> onnxruntime.InferenceSession:
    """Returns a session of one thread."""

    def ordered(name: str) -> Any:
        zeros = np.zeros(len(layer.gates) * n, np.float32)
        parts = np.split(weights.get(f"cell.{name}", zeros), len(layer.gates))
        return np.concatenate([parts[gate] for gate in layer.gates])[None]

    bias = np.concatenate([ordered("bias"), ordered("recurrent_bias")], axis=1)
    stored = {"W": ordered("weight_ih"), "R": ordered("weight_hh"), "b": bias}
    states = ("h", "c")[: layer.states]

    def value(name: str, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = ["x", "W", "R", "b", "", *(f"{s}0" for s in states)]
    node = helper.make_node(layer.operator, inputs, ["y", *states], hidden_size=n, **(layer.attributes or {}))
    graph = helper.make_graph(
        [node],
        "layer",
        [value("x", "T", "B", n), *(value(f"{s}0", 1, "B", n) for s in states)],
        [value("y", "T", 1, "B", n), *(value(s, 1, "B", n) for s in states)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def measure_layer(layer: Layer, n: int) -> Iterator[tuple[int, float, float]]:
    """Yields a batch size, and the seconds of a call of Nacre and of ONNX Runtime."""
    weights = layer.draw_weights(n)
    session = onnx_session(layer, weights, n)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nacre.compile(layer.source.format(n=n), Path(folder) / "layer.so", weights=weights, threads=1)
        for batch in BATCHES:
            r = np.random.default_rng(1)
            x, *states = (
                r.standard_normal(s).astype(np.float32) for s in [(STEPS, batch, n)] + [(batch, n)] * layer.states
            )
            given = {"x": x, **{f"{name}0": state[None] for name, state in zip("hc", states, strict=False)}}
            right = session.run(None, given)[0][:, 0]
            assert np.abs(np.asarray(model(x, *states)[0]) - right).max() < 1e-4
            calls = {"ours": partial(model, x, *states), "theirs": partial(session.run, None, given)}
            contenders = [Contender(name, call, list).timed_by(time.thread_time) for name, call in calls.items()]
            least = interleave(contenders, PLAN).least()
            yield batch, least["ours"], least["theirs"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="file for the table in Markdown")
    parser.add_argument("--layers", default=",".join(LAYERS), help="layers, separated by commas")
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="units, separated by commas")
    given = parser.parse_args()
    lines = [
        f"| layer | units | batch | Nacre | ONNX Runtime {onnxruntime.__version__} | Nacre / ONNX Runtime |",
        "|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for name in given.layers.split(","):
        for n in map(int, given.widths.split(",")):
            for batch, ours, theirs in measure_layer(LAYERS[name], n):
                line = f"| {name} | {n} | {batch} | {ours * 1e6:.0f} us | {theirs * 1e6:.0f} us | {ours / theirs:.2f} |"
                print(line, flush=True)
                lines.append(line)
    if given.write is not None:
        about = f"Layers of {STEPS} steps written with `scan`, f32, in one thread of {processor()}: the least CPU"
        rest = "time of a call from Python, the two in turn. Below 1, Nacre is faster."
        command = "python tests/bench/recurrent.py --write tests/bench/recurrent.md"
        head = ["# Recurrent layers", "", about, rest, f"`{command}` writes this file.", ""]
        given.write.write_text("\n".join([*head, *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
