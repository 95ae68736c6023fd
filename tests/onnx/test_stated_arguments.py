"""Arguments that decide shapes, and arguments that are no tensors: their values or contents are settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.loader import OutOfRangeError
from onnx import TensorProto, helper


def save(path: Path, nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.fixture
def expanding(tmp_path: Path) -> Path:
    """y = Expand(x, shape)"""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return save(tmp_path / "net.onnx", [helper.make_node("Expand", ["x", "shape"], ["y"])], [x, shape], [y])


@pytest.fixture
def sequences(tmp_path: Path) -> Path:
    """b = a with x inserted at the front"""
    a = helper.make_tensor_sequence_value_info("a", TensorProto.FLOAT, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    zero = helper.make_node("Constant", [], ["zero"], value_int=0)
    b = helper.make_tensor_sequence_value_info("b", TensorProto.FLOAT, None)
    return save(
        tmp_path / "net.onnx", [zero, helper.make_node("SequenceInsert", ["a", "x", "zero"], ["b"])], [a, x], [b]
    )


def test_a_stated_shape_is_known_and_every_call_must_give_it(expanding: Path, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="data-dependent"):
        nacre.compile(expanding, tmp_path / "net.so")
    nacre.compile(expanding, tmp_path / "net.so", settings={"shape": [4, 3]})
    model = nacre.load(tmp_path / "net.so")
    x = np.arange(3, dtype=np.float32)[None]
    assert np.array_equal(model(x, np.array([4, 3])), np.broadcast_to(x, (4, 3)))
    with pytest.raises(OutOfRangeError):
        model(x, np.array([4, 1]))


def test_a_sequence_is_stated_by_shapes_and_its_tensors_are_arguments(sequences: Path, tmp_path: Path) -> None:
    assert run(["compile", str(sequences), "--set", "a=[[1], [0, 3]]", "-o", str(tmp_path / "net.so")]) == 0
    entry = nacre.load(tmp_path / "net.so").entries["net"]
    first, second, x = np.ones(1, np.float32), np.ones((0, 3), np.float32), np.zeros(2, np.float32)
    made = entry(first, second, x)
    assert [each.shape for each in made] == [(2,), (1,), (0, 3)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": [4, 3]}, "`size` is set, but is neither an argument nor a size"),
        ({"shape": [4, 3, 1]}, "`shape` is i64"),
        ({"shape": [4.5, 3]}, "`shape` is i64"),
        ({"shape": "four"}, "`shape` is i64"),
    ],
)
def test_a_wrong_statement_is_a_diagnostic(expanding: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        nacre.compile(expanding, expanding.with_suffix(".so"), settings=settings)


def test_a_sequence_that_is_not_stated_by_shapes_is_a_diagnostic(sequences: Path) -> None:
    for settings in ({}, {"a": 3}, {"a": [[-1]]}):
        with pytest.raises(DiagnosticError, match="`a`"):
            nacre.compile(sequences, sequences.with_suffix(".so"), settings=settings)


def test_a_size_is_stated_by_its_name(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])
    path = save(tmp_path / "net.onnx", [helper.make_node("Add", ["x", "y"], ["z"])], [x, y], [y])
    with pytest.raises(DiagnosticError, match="cannot broadcast"):
        read_file(path)
    source = read_file(path, settings={"N": 4})
    assert [str(each.type) for each in source.module.functions[0].arguments] == ["f32[4, 3]", "f32[4, 3]"]
    for wrong in (-1, 2.0, [4], True):
        with pytest.raises(DiagnosticError, match="the size `N` is stated"):
            read_file(path, settings={"N": wrong})


def test_a_table_of_positions_bounds_a_size(tmp_path: Path) -> None:
    """y = x + table[:, : length of x]"""
    table = onnx.numpy_helper.from_array(np.zeros((1, 512, 2), np.float32), "table")
    nodes = [
        helper.make_node("Constant", [], ["table"], value=table),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "length", "one"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", "T", 2]) for name in "xy")
    source = read_file(save(tmp_path / "net.onnx", nodes, [x], [y]))
    assert {dim.name: dim.high for dim in source.module.dims}["T"] == 512
    assert str(source.module.functions[0].results[0].type) == "f32[B, T, 2]"
    # The same as an expansion of the part to the shape of x.
    nodes[-1:] = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Expand", ["part", "shape"], ["y"])]
    source = read_file(save(tmp_path / "expanded.onnx", nodes, [x], [y]))
    assert {dim.name: dim.high for dim in source.module.dims}["T"] == 512
    assert str(source.module.functions[0].results[0].type) == "f32[B, T, 2]"


def test_an_expansion_to_another_size_is_an_error(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["shape"], value_ints=[5, 4]),
        helper.make_node("Expand", ["x", "shape"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy")
    with pytest.raises(DiagnosticError, match="`Expand`: size 3 cannot be broadcast to 5"):
        read_file(save(tmp_path / "net.onnx", nodes, [x], [y]))
