"""Large data of initializers: mapped from the file, with the results and the diagnostics of parsed data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.readers.onnx import mapped_data
from nacre.compiler.readers.onnx.mapped_data import split_file
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError
from onnx import TensorProto, helper, numpy_helper

SIZE = 20_001
RNG = np.random.default_rng(0)
WEIGHTS = {
    "floats": RNG.standard_normal((3, SIZE)).astype(np.float32),
    "few": np.float32([2.0]),
    "wide": RNG.standard_normal((1, SIZE)),
}


def save(path: Path, **weights: Any) -> Path:
    """y = x @ floats * few + wide + (number of 4-bit integers above 0)"""
    stored = [numpy_helper.from_array(array, name) for name, array in (WEIGHTS | weights).items()]
    packed = TensorProto(name="narrow", data_type=TensorProto.INT4, dims=[1 << 18], raw_data=b"\x1f" * (1 << 17))
    nodes = [
        helper.make_node("MatMul", ["x", "floats"], ["a"]),
        helper.make_node("Mul", ["a", "few"], ["b"]),
        helper.make_node("Cast", ["wide"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Cast", ["narrow"], ["e"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["e"], ["f"], keepdims=0),
        helper.make_node("Add", ["d", "f"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", SIZE])
    graph = helper.make_graph(nodes, "net", [x], [y], [*stored, packed])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_mapped_data_equals_that_of_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "net.onnx")
    parsed, mapped = split_file(path)
    assert len(parsed) < 1000 and sorted(mapped) == [0, 2, 3]
    assert all(np.array_equal(mapped[n].view(WEIGHTS[name].dtype), WEIGHTS[name].reshape(-1)) for n, name in
               ((0, "floats"), (2, "wide")))  # fmt: skip
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    expected = x @ WEIGHTS["floats"] * 2 + WEIGHTS["wide"].astype(np.float32) + 1
    np.testing.assert_allclose(nacre.compile(path, tmp_path / "a.so")(x), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(mapped_data, "_LEAST", 1 << 40)
    assert split_file(path) == (path.read_bytes(), {})
    nacre.compile(path, tmp_path / "b.so")
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_unknown_fields_of_every_width_are_left_out(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx")
    expected = {number: np.array(data) for number, data in split_file(path)[1].items()}
    # Field 2,000 of the model: a fixed word of 8 bytes, one of 4, a number, and bytes.
    fields = b"\x81\x7d" + bytes(range(8)) + b"\x85\x7d" + bytes(range(4)) + b"\x80\x7d\x96\x01" + b"\x82\x7d\x02ab"
    path.write_bytes(fields + path.read_bytes())
    mapped = split_file(path)[1]
    assert sorted(mapped) == sorted(expected) == [0, 2, 3]
    assert all(np.array_equal(mapped[n], expected[n]) for n in mapped)


def test_damaged_files_are_diagnostics(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx")
    data = path.read_bytes()
    for damaged in (data[:-1], data[: len(data) // 2], data[: (1 << 17) + 5], data.replace(b"floats", b"fl\xffats")):
        path.write_bytes(damaged)
        with pytest.raises(DiagnosticError) as caught:
            read_file(path)
        assert caught.value.diagnostics[0].code == "bad-onnx"
    wrong = onnx.load_from_string(data)
    wrong.graph.initializer[0].dims[1] -= 1
    onnx.save(wrong, path)
    with pytest.raises(DiagnosticError, match="bytes, and has"):
        read_file(path)


def test_a_field_that_occurs_twice_is_parsed(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx")
    model = onnx.load(path)
    twice = model.graph.initializer[0].SerializeToString() + _field(9, bytes(1 << 17))
    del model.graph.initializer[0]
    graph = model.graph.SerializeToString() + _field(5, twice)
    model.ClearField("graph")
    path.write_bytes(model.SerializeToString() + _field(7, graph))
    assert split_file(path) == (path.read_bytes(), {})
    # The last of two fields counts, and has another size.
    with pytest.raises(DiagnosticError, match="bytes, and has 131072"):
        read_file(path)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])
