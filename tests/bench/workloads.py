"""What is compared: each workload as a Nacre model and as the same model in ONNX, with inputs and their weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Workload:
    """`source` is a path or a text; `operations` are those of one call on floats, 0 where they do not matter."""

    name: str
    source: str | Path
    onnx: bytes
    inputs: Mapping[str, Array]
    operations: float
    checkpoint: Path | None = None


class _Graph:
    """Writes an ONNX graph, one node after another."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def model(
        self, inputs: Mapping[str, tuple[int, Sequence[int | str]]], result: str, shape: Sequence[int | str]
    ) -> bytes:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(n, t, list(s)) for n, (t, s) in inputs.items()],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, list(shape))],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def softmax(rows: int, columns: int) -> Workload:
    g = _Graph()
    result = g.node("Softmax", "x", axis=-1)
    return Workload(
        f"softmax-{rows}x{columns}",
        f"model m(x: f32[{rows}, {columns}]) -> f32[{rows}, {columns}] {{ return softmax(x) }}",
        g.model({"x": (TensorProto.FLOAT, (rows, columns))}, result, (rows, columns)),
        {"x": _random(rows, columns)},
        0,
    )


def layernorm(rows: int, columns: int) -> Workload:
    """Residual and layer norm, with a constant scale and shift."""
    g = _Graph()
    one, zero = np.ones(columns, np.float32), np.zeros(columns, np.float32)
    total = g.node("Add", "x", "skip")
    result = g.node("LayerNormalization", total, g.weight(one), g.weight(zero), axis=-1, epsilon=1e-5)
    shape = f"f32[{rows}, {columns}]"
    return Workload(
        f"layernorm-{rows}x{columns}",
        f"model m(x: {shape}, skip: {shape}) -> {shape} {{\n"
        f"  return layer_norm(x + skip, ones([{columns}], f32), zeros([{columns}], f32), eps=1e-5)\n}}",
        g.model({n: (TensorProto.FLOAT, (rows, columns)) for n in ("x", "skip")}, result, (rows, columns)),
        {"x": _random(rows, columns), "skip": _random(rows, columns) * 2},
        0,
    )


def minilm(batch: int, length: int, folder: Path) -> Workload:
    """all-MiniLM-L6-v2 from a checkpoint folder."""
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 20000, (batch, length))
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    per_token = layers * (2 * (4 * width * width + 2 * width * inner) + 4 * length * width)
    return Workload(
        f"minilm-b{batch}-t{length}",
        ROOT / "samples" / "minilm" / "minilm.nacre",
        _minilm_onnx(weights, config),
        {"ids": ids, "attention_mask": np.ones_like(ids)},
        float(batch * length * per_token),
        folder,
    )


def _minilm_onnx(weights: Mapping[str, Array], config: Mapping[str, Any]) -> bytes:
    g = _Graph()
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = width // heads

    def linear(x: str, name: str) -> str:
        product = g.node("MatMul", x, g.weight(weights[f"{name}.weight"].T))
        return g.node("Add", product, g.weight(weights[f"{name}.bias"]))

    def normalize(x: str, name: str) -> str:
        scale, shift = (g.weight(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return g.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=config["layer_norm_eps"])

    def scalar(value: float) -> str:
        return g.weight(np.float32(value))

    def integers(*values: int) -> str:
        return g.weight(np.array(values, np.int64))

    table = weights["embeddings.word_embeddings.weight"]
    x = g.node("Gather", g.weight(table), "ids", axis=0)
    places = g.weight(weights["embeddings.position_embeddings.weight"])
    length = g.node("Shape", "ids", start=1, end=2)
    x = g.node("Add", x, g.node("Slice", places, integers(0), length, integers(0)))
    x = g.node("Add", x, g.weight(weights["embeddings.token_type_embeddings.weight"][0]))
    x = normalize(x, "embeddings.LayerNorm")
    keep = g.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = g.node("Mul", g.node("Sub", scalar(1), g.node("Unsqueeze", keep, integers(1, 2))), scalar(-1e9))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"

        def split(part: str, axes: Sequence[int], x: str = x, name: str = name) -> str:
            y = g.node("Reshape", linear(x, f"{name}.attention.self.{part}"), integers(0, 0, heads, head))
            return g.node("Transpose", y, perm=list(axes))

        query, key, value = split("query", (0, 2, 1, 3)), split("key", (0, 2, 3, 1)), split("value", (0, 2, 1, 3))
        score = g.node("Add", g.node("Div", g.node("MatMul", query, key), scalar(head**0.5)), mask)
        mixed = g.node("MatMul", g.node("Softmax", score, axis=-1), value)
        mixed = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), integers(0, 0, width))
        mixed = g.node("Add", linear(mixed, f"{name}.attention.output.dense"), x)
        x = normalize(mixed, f"{name}.attention.output.LayerNorm")
        h = linear(x, f"{name}.intermediate.dense")
        bent = g.node("Add", g.node("Erf", g.node("Div", h, scalar(2**0.5))), scalar(1))
        h = g.node("Mul", g.node("Mul", h, bent), scalar(0.5))
        x = normalize(g.node("Add", linear(h, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")
    counted = g.node("Unsqueeze", keep, integers(2))
    total = g.node("ReduceSum", g.node("Mul", x, counted), integers(1), keepdims=0)
    pooled = g.node("Div", total, g.node("ReduceSum", keep, integers(1), keepdims=1))
    result = g.node("Div", pooled, g.node("ReduceL2", pooled, axes=[-1], keepdims=1))
    return g.model({n: (TensorProto.INT64, ("B", "T")) for n in ("ids", "attention_mask")}, result, ("B", width))


def workloads(checkpoint: Path | None) -> dict[str, Callable[[], Workload]]:
    """Every workload by name; those of a real model only where its checkpoint is given."""
    made: dict[str, Callable[[], Workload]] = {
        "softmax-1536x128": lambda: softmax(1536, 128),
        "softmax-128x4096": lambda: softmax(128, 4096),
        "layernorm-128x384": lambda: layernorm(128, 384),
    }
    if checkpoint is not None:
        for batch, length in ((1, 1), (1, 16), (1, 128), (8, 128)):
            made[f"minilm-b{batch}-t{length}"] = partial(minilm, batch, length, checkpoint)
    return made
