"""Models of one operator of ai.onnx.ml, in Nacre and in ONNX Runtime.

They run in the interpreter, or are compiled. Scores agree within the rounding of f32 sums in another order; labels are
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.compiler.weights import Checkpoint
from nacre.dialect.graph import Parameter
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import Array
from onnx import TensorProto, helper

onnxruntime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

FEATURES = 4
TYPES = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "l": TensorProto.INT64}
Outputs = Mapping[str, int]
FLOAT: Outputs = {"y": TensorProto.FLOAT}
BOTH: Outputs = {"label": TensorProto.INT64, "y": TensorProto.FLOAT}


def model_of(op: str, rows: Sequence[Array], outputs: Outputs, version: int = 3, **attributes: Any) -> Any:
    names = [f"x{i}" for i in range(len(rows))]
    node = helper.make_node(op, names, list(outputs), domain="ai.onnx.ml", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TYPES[x.dtype.char], ["B", *x.shape[1:]] if x.ndim > 1 else list(x.shape))
        for name, x in zip(names, rows, strict=True)
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    return helper.make_model(helper.make_graph([node], "one", inputs, results), opset_imports=opsets, ir_version=9)


def ours(model: Any, rows: Sequence[Array], compiled: bool = False) -> list[Array]:
    source = read_proto(model, "entry", "model.onnx", None)
    if compiled:
        found = nacre.compile(source)(*rows)
        return list(found) if isinstance(found, tuple) else [found]
    weights = source.weights["entry"]

    def load(parameter: Parameter) -> Array:
        assert isinstance(weights, Checkpoint)
        read = weights.tensors[parameter.name].load
        assert read is not None
        return read()

    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in Interpreter(source.module, load).run("entry", list(rows))]


def theirs(model: Any, rows: Sequence[Array]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": x for i, x in enumerate(rows)}))


def compare(model: Any, rows: Sequence[Array], compiled: bool = False, atol: float = 2e-6) -> None:
    for actual, wanted in zip(ours(model, rows, compiled), theirs(model, rows), strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(actual, wanted, rtol=3e-6, atol=atol)
        else:
            np.testing.assert_array_equal(actual, wanted)
