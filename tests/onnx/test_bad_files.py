"""Damaged and hostile ONNX files: a diagnostic that names the cause, and exit code 1."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fuzz
import numpy as np
import onnx
import pytest
from nacre.compiler.readers.onnx import limits
from nacre.compiler.readers.onnx.onnx_model import read_onnx
from nacre.dialect.diagnostics import Diagnostic, DiagnosticError
from onnx import TensorProto, helper

FLOATS = TensorProto.FLOAT


def net(*nodes: onnx.NodeProto, inputs: dict[str, list[int | str]] | None = None, version: int = 22) -> onnx.ModelProto:
    made = nodes or (helper.make_node("Relu", ["x"], ["y"], name="first"),)
    values = [helper.make_tensor_value_info(n, FLOATS, s) for n, s in (inputs or {"x": [2, 3]}).items()]
    result = helper.make_tensor_value_info("y", FLOATS, None)
    graph = helper.make_graph(list(made), "net", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def errors(model: onnx.ModelProto | bytes, folder: Path) -> tuple[Diagnostic, ...]:
    path = folder / "net.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    with pytest.raises(DiagnosticError) as error:
        read_onnx(path)
    return error.value.diagnostics


def test_a_truncated_file(tmp_path: Path) -> None:
    data = net().SerializeToString()
    for length in (len(data) - 1, len(data) // 2):
        assert errors(data[:length], tmp_path)[0].code == "bad-onnx"


@pytest.mark.parametrize("data", [b"", b"{}", b"\x00" * 64, "language 1".encode("utf-16")])
def test_a_file_of_another_format(data: bytes, tmp_path: Path) -> None:
    (diagnostic,) = errors(data, tmp_path)
    assert diagnostic.code == "bad-onnx" and "net.onnx" in diagnostic.message


def test_a_file_of_empty_nodes(tmp_path: Path) -> None:
    """Two bytes are a node, and a node takes hundreds of bytes once it is parsed."""
    (diagnostic,) = errors(b"\x3a\x80\x9b\xee\x02" + b"\x0a\x00" * 3_000_000, tmp_path)
    assert diagnostic.code == "too-large" and "1,500,000 fields" in diagnostic.message


def test_fields_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of all messages count, and neither the bytes of data nor those of strings do; damage ends the count."""
    attribute = helper.make_attribute("a", "text" * 9)
    node = helper.make_node("Relu", ["x", "x"], ["y"])
    node.attribute.append(attribute)
    graph = helper.make_graph([node], "", [], [], [helper.make_tensor("w", FLOATS, [500], bytes(2000), raw=True)])
    model = onnx.ModelProto(graph=graph, ir_version=8)
    # The model: 2, the graph: 2 (its name is empty), the node: 5, the attribute: 3, the tensor: 4.
    fields = 2 + len(graph.ListFields()) + 5 + 3 + 4
    data, schema = model.SerializeToString(), model.DESCRIPTOR
    for limit in (fields - 1, fields):
        monkeypatch.setattr(limits, "MOST_FIELDS", limit)
        assert limits.has_too_many_fields(data, schema) == (limit < fields)
    for length in range(len(data)):
        assert not limits.has_too_many_fields(data[:length], schema)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match=r"nothing\.onnx"):
        read_onnx(tmp_path / "nothing.onnx")


def test_a_cycle(tmp_path: Path) -> None:
    a = helper.make_node("Add", ["x", "b"], ["a"], name="one")
    b = helper.make_node("Relu", ["a"], ["b"], name="two")
    y = helper.make_node("Relu", ["a"], ["y"], name="three")
    (diagnostic,) = errors(net(a, b, y), tmp_path)
    assert diagnostic.code == "undefined-value" and "`b`" in diagnostic.message
    assert diagnostic.span is not None and diagnostic.span.line == 1


def test_a_function_that_uses_itself(tmp_path: Path) -> None:
    model = net(helper.make_node("Again", ["x"], ["y"], domain="my"))
    body = [helper.make_node("Again", ["a"], ["b"], domain="my")]
    model.functions.append(helper.make_function("my", "Again", ["a"], ["b"], body, [helper.make_opsetid("my", 1)]))
    model.opset_import.append(helper.make_opsetid("my", 1))
    (diagnostic,) = errors(model, tmp_path)
    assert diagnostic.code == "too-deep" and "my::Again" in diagnostic.message


def test_an_attribute_of_another_kind(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="last", axis=0.5)
    (diagnostic,) = errors(net(node), tmp_path)
    assert "`axis`" in diagnostic.message and "`last`" in diagnostic.message


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("kernel", [[1, 3], [3], [1 << 31, 3], [0, -1]])
def test_a_kernel_shape_that_differs_from_the_weights(operator: str, kernel: list[int], tmp_path: Path) -> None:
    node = helper.make_node(operator, ["x", "w"], ["y"], name="first", kernel_shape=kernel)
    (diagnostic,) = errors(net(node, inputs={"x": [1, 1, 8, 8], "w": [1, 1, 3, 3]}), tmp_path)
    assert diagnostic.code == "bad-attribute" and f"`kernel_shape` = {kernel}" in diagnostic.message


def test_a_wrong_number_of_operands(tmp_path: Path) -> None:
    (diagnostic,) = errors(net(helper.make_node("Add", ["x"], ["y"], name="sum")), tmp_path)
    assert diagnostic.code == "wrong-operands" and "`sum`" in diagnostic.message


def test_a_wrong_declared_result(tmp_path: Path) -> None:
    model = net()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    (diagnostic,) = errors(model, tmp_path)
    assert diagnostic.code == "type-mismatch" and "`y`" in diagnostic.message


@pytest.mark.parametrize(
    ("sizes", "code"), [([1 << 40, 1 << 40], "too-large"), ([(1 << 63) - 1], "too-large"), ([2, -5, 3], None)]
)
def test_huge_declared_shapes(sizes: list[int | str], code: str | None, tmp_path: Path) -> None:
    model = net(inputs={"x": sizes})
    if code is None:
        path = tmp_path / "net.onnx"
        onnx.save(model, path)
        assert str(read_onnx(path).module.functions[0].arguments[0].type) == "f32[2, x_1, 3]"
    else:
        (diagnostic,) = errors(model, tmp_path)
        assert diagnostic.code == code and "`x`" in diagnostic.message


def weighted(change: Callable[[TensorProto], object]) -> onnx.ModelProto:
    model = net(helper.make_node("Add", ["x", "w"], ["y"]))
    weight = helper.make_tensor("w", FLOATS, [2, 3], np.zeros(6, np.float32).tobytes(), raw=True)
    change(weight)
    model.graph.initializer.append(weight)
    return model


def external(**entries: str) -> Callable[[TensorProto], object]:
    def change(tensor: TensorProto) -> None:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)

    return change


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda w: w.dims.append(1 << 40), "bad-onnx"),
        (lambda w: setattr(w, "raw_data", b"\0" * 23), "bad-onnx"),
        (lambda w: setattr(w, "data_type", 99), "bad-onnx"),
        (lambda w: setattr(w, "data_type", 0), "bad-onnx"),
        (external(location="missing.bin"), "missing-data"),
        (external(location="short.bin"), "missing-data"),
        (external(location="short.bin", offset="-4"), "missing-data"),
        (external(location="short.bin", offset="four"), "bad-onnx"),
        (external(location="../secret.bin"), "bad-path"),
        (external(location="a/../../secret.bin"), "bad-path"),
        (external(location="..\\secret.bin"), "bad-path"),
        (external(location="C:\\secret.bin"), "bad-path"),
        (external(location="/etc/passwd"), "bad-path"),
        (external(location="link.bin"), "bad-path"),
        (external(), "bad-path"),
    ],
)
def test_bad_data_of_a_tensor(change: Callable[[TensorProto], object], code: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 24)
    (folder / "short.bin").write_bytes(b"\0" * 8)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    found = errors(weighted(change), folder)
    assert found[0].code == code
    assert "`w`" in found[0].message or "99" in found[0].message or code == "bad-onnx"


def test_external_data_is_read(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    path = tmp_path / "net.onnx"
    onnx.save(weighted(external(location="w.bin", offset="8", length="24")), path)
    source = read_onnx(path)
    (stored,) = source.weights.values()
    assert stored is not None and not isinstance(stored, Path)
    np.testing.assert_array_equal(stored.read("w"), values[2:].reshape(2, 3))


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    data = net().SerializeToString().replace(b"first", b"\xff\xfe\xff\xfe\xff")
    (diagnostic,) = errors(data, tmp_path)
    assert diagnostic.code == "bad-onnx"


def test_exit_code_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(net(helper.make_node("Rellu", ["x"], ["y"], name="first")).SerializeToString())
    command = [sys.executable, "-m", "nacre.compiler.cli.main", "compile", str(path), "-o", str(tmp_path / "bad.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "`first`" in done.stderr and "`Relu`" in done.stderr


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "code"),
    [
        ("LRN", [[1, 3, 4]], {"size": 0}, "bad-attribute"),
        ("GroupNormalization", [[1, 4, 2], [4], [4]], {"num_groups": 0}, "bad-attribute"),
        ("LpPool", [[1, 1, 4]], {"kernel_shape": [-1]}, "bad-attribute"),
        ("LpPool", [[1, 1, 4]], {"kernel_shape": [1 << 31]}, "bad-attribute"),
        ("Scan", [[2, 3]], {"num_scan_inputs": 1, "scan_input_axes": [0, 0]}, "bad-attribute"),
        ("Scan", [[2, 3]], {"num_scan_inputs": 1, "scan_input_axes": [7]}, "bad-axis"),
        ("Split", [[4]], {"num_outputs": 1 << 40}, "bad-attribute"),
        ("GRU", [[1, 2, 3], [1, 6, 3], [1, 6, 2]], {"hidden_size": 2, "layout": 3}, "bad-attribute"),
        ("Attention", [[1, 1, 2, 4]] * 3, {"is_causal": 3}, "bad-attribute"),
        ("Attention", [[1, 1, 2, 4]] * 3, {"qk_matmul_output_mode": 4}, "bad-attribute"),
        ("CastLike", [[3], [3]], {"round_mode": "odd"}, "bad-attribute"),
        ("LayerNormalization", [[2, 3], [3]], {"stash_type": 7}, "bad-attribute"),
        ("DequantizeLinear", [[2, 3], [2, 2]], {"block_size": 1 << 31}, "bad-attribute"),
        ("QuantizeLinear", [[2, 3], [2, 2]], {"block_size": 1 << 31}, "bad-attribute"),
    ],
)
def test_numbers_of_attributes_that_do_not_fit(
    op: str, shapes: list[list[int | str]], attributes: dict[str, object], code: str, tmp_path: Path
) -> None:
    """`fuzz_attributes.py` tries many more."""
    inputs = dict(zip(("x", "w", "b"), shapes, strict=False))
    body = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["c"])],
        "body",
        [helper.make_tensor_value_info("a", FLOATS, [3])],
        [helper.make_tensor_value_info("c", FLOATS, [3])],
    )
    node = helper.make_node(op, [*inputs], ["y"], **(attributes | ({"body": body} if op == "Scan" else {})))
    version = 24 if op in ("Attention", "CastLike") else 22
    assert errors(net(node, inputs=inputs, version=version), tmp_path)[0].code == code


def test_a_window_of_more_channels_than_there_are(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(net(helper.make_node("LRN", ["x"], ["y"], size=1 << 40)).SerializeToString())
    (function,) = read_onnx(path).module.functions
    assert len(function.body) < 50


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files_are_read_or_refused(seed: int) -> None:
    codes = {fuzz.read_mutant(data) for data in fuzz.mutants(150, seed)}
    assert {"read", "bad-onnx", "undefined-value"} <= codes
