"""Mutated ONNX files: every one is read, or refused by a diagnostic; nothing else may happen.

    python tests/onnx/fuzz.py --count 10000 --seed 1

A mutation changes bytes of the file (a flip, a cut, a copied or a removed part), or a field of the parsed message (a
name, a shape, an attribute, a type, the order of nodes). Files that can be read are verified; none is compiled.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.compiler.readers.onnx.proto import parse_model
from nacre.dialect.diagnostics import DiagnosticError
from onnx import helper, parser

SLOWEST = 20.0
"""The most seconds that reading a small file may take."""

_TEXTS = (
    """net (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b) => (float[N, K] y) {
      c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
      r = Relu(c)
      p = MaxPool<kernel_shape = [2, 2]>(r)
      s = Shape(p)
      zero = Constant<value = int64 {0}>()
      n = Gather(s, zero)
      axes = Constant<value = int64[1] {0}>()
      m = Unsqueeze(n, axes)
      rest = Constant<value = int64[1] {-1}>()
      t = Concat<axis = 0>(m, rest)
      f = Reshape(p, t)
      y = Softmax(f)
    }""",
    """net (float[T, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r, bool c) => (float[T, 1, 2, 4] y, float[T, 2, 3] z) {
      y, h, s = LSTM<hidden_size = 4>(x, w, r)
      z = If(c) <
        then_branch = then () => (float[T, 2, 3] a) { a = Exp(x) },
        else_branch = other () => (float[T, 2, 3] b) { b = Neg(x) }
      >
    }""",
    """net (float[3, 4] x, int64[2] i) => (float[2, 4] y, float[4] t) {
      g = Gather(x, i)
      three = Constant<value = int64 {3}>()
      go = Constant<value = bool {1}>()
      zero = ReduceSum<keepdims = 0>(g)
      t0, all = Loop(three, go, zero) <
        body = step (int64 n, bool c, float a) => (bool d, float e, float o) {
          d = Identity(c)
          e = Add(a, a)
          o = Exp(e)
        }
      >
      y = Add(g, t0)
      t = Gemm(all, x)
    }""",
)


def seeds() -> list[bytes]:
    """The files that are mutated."""
    models = [parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}') for text in _TEXTS]
    weight = helper.make_tensor("w", 1, [4, 3, 3, 3], np.linspace(-1, 1, 108, dtype=np.float32))
    del models[0].graph.input[1]
    models[0].graph.initializer.append(weight)
    return [model.SerializeToString() for model in models]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1) if changed else 0
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif kind == 2:
            del changed[at : at + rng.randrange(1, 40)]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.randrange(1, 40)]
        else:
            del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


_NUMBERS = (-1, 0, 1, 2, 7, 64, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))


def mutate_fields(data: bytes, rng: random.Random) -> bytes:
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    for _ in range(rng.choice((1, 1, 2, 4))):
        node = rng.choice(graph.node) if graph.node else onnx.NodeProto()
        names = [name for n in graph.node for name in (*n.input, *n.output)] + ["", "nothing", "x"]
        choices: list[Callable[[], object]] = [
            lambda node=node: setattr(
                node, "op_type", rng.choice(("Add", "Reshape", "Conv", "Nothing", "Loop", "LSTM"))
            ),
            lambda node=node, names=names: _replace(node.input, rng, names),
            lambda node=node, names=names: _replace(node.output, rng, names),
            lambda node=node: _change_attribute(node, rng),
            lambda: _change_type(rng.choice([*graph.input, *graph.output]), rng) if graph.input else None,
            lambda: _change_tensor(rng.choice(graph.initializer), rng) if graph.initializer else None,
            lambda: _shuffle(graph.node, rng),
            lambda: setattr(model.opset_import[0], "version", rng.choice((0, 1, 6, 9, 12, 17, 23, 1000, -5))),
        ]
        rng.choice(choices)()
    return model.SerializeToString()


def _replace(field: object, rng: random.Random, names: Sequence[str]) -> None:
    if len(field):  # type: ignore[arg-type]
        field[rng.randrange(len(field))] = rng.choice(names)  # type: ignore[arg-type, index]


def _change_attribute(node: onnx.NodeProto, rng: random.Random) -> None:
    if not node.attribute:
        node.attribute.append(helper.make_attribute(rng.choice(("axis", "to", "perm")), rng.choice((1, [1, 0], "x"))))
        return
    attribute = rng.choice(node.attribute)
    kind = rng.randrange(5)
    if kind == 0:
        attribute.i = rng.choice(_NUMBERS)
    elif kind == 1 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
    elif kind == 2:
        attribute.type = rng.randrange(1, 12)  # type: ignore[assignment]
    elif kind == 3:
        attribute.name = rng.choice(("axis", "kernel_shape", "nothing"))
    elif attribute.HasField("t"):
        _change_tensor(attribute.t, rng)


def _change_type(value: onnx.ValueInfoProto, rng: random.Random) -> None:
    type = value.type.tensor_type
    kind = rng.randrange(4)
    if kind == 0:
        type.elem_type = rng.randrange(0, 30)
    elif kind == 1 and type.shape.dim:
        rng.choice(type.shape.dim).dim_value = rng.choice(_NUMBERS)
    elif kind == 2:
        type.shape.dim.add().dim_param = rng.choice(("N", "T", "a b"))
    else:
        type.ClearField("shape")


def _change_tensor(tensor: onnx.TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        tensor.data_type = rng.randrange(0, 30)
    elif kind == 1 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 3:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", rng.choice(("../secret", "/etc/passwd", "weights.bin", "", "a\\..\\b"))
    else:
        tensor.dims.append(rng.choice(_NUMBERS))


def _shuffle(nodes: object, rng: random.Random) -> None:
    listed = list(nodes)  # type: ignore[call-overload]
    rng.shuffle(listed)
    del nodes[:]  # type: ignore[attr-defined]
    nodes.extend(listed)  # type: ignore[attr-defined]


def mutants(count: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    files = seeds()
    return [rng.choice((mutate_bytes, mutate_fields))(rng.choice(files), rng) for _ in range(count)]


def read_mutant(data: bytes) -> str:
    """Returns `read`, or the code of the first diagnostic. Any other exception is an error of the reader."""
    try:
        read_proto(parse_model(data, "mutant.onnx"), "mutant", "mutant.onnx", Path("/nonexistent"))
    except DiagnosticError as error:
        assert str(error)
        return error.diagnostics[0].code
    return "read"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    codes: Counter[str] = Counter()
    failed = 0
    for number, data in enumerate(mutants(chosen.count, chosen.seed)):
        start = time.thread_time()
        try:
            codes[read_mutant(data)] += 1
        except Exception:
            failed += 1
            print(f"mutant {number} of seed {chosen.seed}:\n{traceback.format_exc()}", flush=True)
        if time.thread_time() - start > SLOWEST:
            failed += 1
            print(f"mutant {number} of seed {chosen.seed} took more than {SLOWEST:g} s", flush=True)
    print(codes.most_common())
    print(f"{failed} of {chosen.count} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
