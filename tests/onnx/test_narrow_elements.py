"""Element types without a dtype of the graph: every number of f16, and steps around limits, against `ml_dtypes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.readers.onnx.onnx_model import read_proto
from onnx import TensorProto, helper

FLOATS = {
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
INTEGERS = {"INT2": ml_dtypes.int2, "INT4": ml_dtypes.int4, "UINT2": ml_dtypes.uint2, "UINT4": ml_dtypes.uint4}


def model(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def declared(name: str, element: str, shape: list[int]) -> Any:
    return helper.make_tensor_value_info(name, getattr(TensorProto, element), shape)


@pytest.mark.usefixtures("unchecked")
def test_all_numbers_convert_as_those_of_the_reference(tmp_path: Path) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    whole = np.arange(-300, 300, dtype=np.int32)
    names = [*FLOATS, *INTEGERS]
    nodes = [
        helper.make_node("Cast", ["x" if n in FLOATS else "whole"], [n], to=getattr(TensorProto, n)) for n in names
    ]
    sizes = {n: [x.size if n in FLOATS else whole.size] for n in names}
    inputs = [declared("x", "FLOAT", [x.size]), declared("whole", "INT32", [whole.size])]
    proto = model(nodes, inputs, [declared(n, n, sizes[n]) for n in names])
    nacre.compile(read_proto(proto, "net", "net.onnx", None), tmp_path / "net.so")
    results = nacre.load(tmp_path / "net.so")(x, whole)
    for name, made in zip(names, results, strict=True):
        dtype = (FLOATS | INTEGERS)[name]
        with np.errstate(all="ignore"):
            limit = float(ml_dtypes.finfo(dtype).max) if name in FLOATS else 0.0
            given = np.clip(x, -limit, limit) if name in FLOATS else whole
            expected = given.astype(dtype).astype(np.float32)
        if name == "FLOAT4E2M1":
            expected[np.isnan(x)] = 0
        assert np.array_equal(np.asarray(made).astype(np.float32), expected, equal_nan=True), name


def test_an_element_type_passes_through_movement_to_the_conversion_that_needs_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["like", "shape"], ["flat"]),
        helper.make_node("Concat", ["flat", "flat"], ["both"], axis=0),
        helper.make_node("CastLike", ["x", "both"], ["y"]),
    ]
    proto = model(nodes, [declared("x", "FLOAT", [3]), declared("like", "INT4", [2, 2])], [declared("y", "INT4", [3])])
    proto.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [1], [4]))
    nacre.compile(read_proto(proto, "net", "net.onnx", None), tmp_path / "net.so")
    made = nacre.load(tmp_path / "net.so")(np.array([7, 8, -9], np.float32), np.zeros((2, 2), np.int8))
    assert np.asarray(made).tolist() == [7, -8, 7]
