"""Models of ONNX files: names, symbolic dims, shape arithmetic, and where the package is missing."""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.api import read_model
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter, load_parameter
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator


def model_of(text: str, **opsets: int) -> onnx.ModelProto:
    """Returns a model in the text syntax of the package."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opsets.get("main", 22)}]> {text}')


SHAPES = """
net (float[N, C, 4] x, float[4] bias) => (float[N, M] y)
<int64[1] zero = {0}, int64 one = {1}, int64[1] minus = {-1}>
{
  shape = Shape(x)
  count = Gather<axis = 0>(shape, zero)
  channels = Gather(shape, one)
  wide = Unsqueeze(channels, zero)
  four = Constant<value = int64[1] {4}>()
  columns = Mul(wide, four)
  target = Concat<axis = 0>(count, columns)
  sum = Add(x, bias)
  y = Reshape(sum, target)
}"""


def test_shape_arithmetic_leaves_no_node() -> None:
    (function,) = read_proto(model_of(SHAPES), "net", "net.onnx", None).module.functions
    assert [node.op for node in function.body] == ["add", "reshape"]
    assert str(function.results[0].type) == "f32[N, 4*C]"
    assert [v.name for v in function.arguments] == ["x", "bias"] and function.result_names == ("y",)


def test_a_file_is_compiled_and_called(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model_of(SHAPES), path)
    model = nacre.compile(path, tmp_path / "net.so")
    rng = np.random.default_rng(0)
    for n, c in ((1, 1), (3, 5)):
        x, bias = rng.standard_normal((n, c, 4), np.float32), rng.standard_normal(4, np.float32)
        np.testing.assert_array_equal(model(x, bias), (x + bias).reshape(n, 4 * c))


def test_diagnostics_name_the_node(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    model = model_of("net (float[3] x, float[4] z) => (float[3] y) { y = Add(x, z) }")
    model.graph.node[0].name = "sum of both"
    onnx.save(model, path)
    with pytest.raises(DiagnosticError) as error:
        read_model(path)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "shape-mismatch" and "sum of both" in diagnostic.message
    assert 'y = Add(x, z)  "sum of both"' in str(error.value)


def test_all_unknown_operators_are_listed_at_once() -> None:
    model = model_of("net (float[3] x) => (float[3] y) { a = Sigmod(x) b = Frobnicate(a) c = Sigmod(b) y = Add(x, c) }")
    with pytest.raises(DiagnosticError) as error:
        read_proto(model, "net", "net.onnx", None)
    first, second = error.value.diagnostics
    assert first.code == second.code == "unsupported-operator"
    assert "`Sigmod`" in first.message and "`a`" in first.message and "`c`" in first.message
    assert "`Sigmoid`" in first.help
    assert "`Frobnicate`" in second.message


def test_a_function_of_the_file_becomes_its_nodes() -> None:
    text = """net (float[3] x) => (float[3] y) { y = my.Scaled<factor = 2.0>(x) }
    <opset_import: ["" : 22], domain: "my"> Scaled <factor> (a) => (b) {
      f = Constant<value_float: float = @factor>()
      b = Mul(a, f)
    }"""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22, "my" : 1]> {text}')
    (function,) = read_proto(model, "net", "net.onnx", None).module.functions
    assert [node.op for node in function.body] == ["constant", "multiply"]


def test_an_axis_of_the_call_is_checked_by_the_call(tmp_path: Path) -> None:
    path = tmp_path / "sum.onnx"
    text = "net (float[2, 3] x, int64[1] axes) => (float[2, 1] y) { y = ReduceSum(x, axes) }"
    onnx.save(model_of(text), path)
    model = nacre.compile(path, tmp_path / "sum.so")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (1, -1):
        np.testing.assert_array_equal(model(x, np.array([axis])), x.sum(1, keepdims=True))
    with pytest.raises(nacre.NacreError):
        model(x, np.array([0]))


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model_of(SHAPES), path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DiagnosticError, match=r"nacre\[onnx\]"):
        read_model(path)


def test_a_newer_operator_set_is_refused() -> None:
    model = model_of("net (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    with pytest.raises(DiagnosticError, match="versions 1 to"):
        read_proto(model, "net", "net.onnx", None)


def test_initializers_are_parameters_by_name() -> None:
    weight = helper.make_tensor("layer.0.weight", 1, [5, 4], np.arange(20, dtype=np.float32))
    model = model_of("net (float[N, 5] x) => (float[N, 4] y) { y = MatMul(x, w) }")
    model.graph.node[0].input[1] = "layer.0.weight"
    model.graph.initializer.append(weight)
    module = read_proto(model, "net", "net.onnx", None).module
    assert [(p.name, str(p.type)) for p in module.parameters] == [("layer.0.weight", "f32[5, 4]")]


def results(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    module = read_proto(model, "net", "net.onnx", None).module
    return list(Interpreter(module, load_parameter).run(module.functions[0], arrays))


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_transforms_of_complex_numbers(axis: int, inverse: int) -> None:
    head = f"net (float[3, 5, 2] x) => (float[3, 5, 2] y) <int64 axis = {{{axis}}}>"
    text = f"{head} {{ y = DFT<inverse = {inverse}>(x, , axis) }}"
    x = np.random.default_rng(0).standard_normal((3, 5, 2), np.float32)
    (found,) = results(model_of(text), x)
    expected = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0] + 1j * x[..., 1], axis=axis)
    np.testing.assert_allclose(found, np.stack([expected.real, expected.imag], axis=-1), rtol=1e-5, atol=1e-5)


def test_frames_of_a_complex_signal() -> None:
    head = "net (float[2, 11, 2] x, float[4] w) => (float[2, 3, 4, 2] y) <int64 step = {3}>"
    rng = np.random.default_rng(0)
    x, window = rng.standard_normal((2, 11, 2), np.float32), rng.standard_normal(4, np.float32)
    (found,) = results(model_of(f"{head} {{ y = STFT<onesided = 0>(x, step, w) }}"), x, window)
    signal = x[..., 0] + 1j * x[..., 1]
    expected = np.fft.fft(np.stack([signal[:, at : at + 4] * window for at in (0, 3, 6)], axis=1), axis=2)
    np.testing.assert_allclose(found, np.stack([expected.real, expected.imag], axis=-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_gates_of_recurrent_layers_are_put_in_order(op: str) -> None:
    rng = np.random.default_rng(0)
    rows = {"LSTM": 4, "GRU": 3}[op] * 5
    operands = f"float[3, 2, 4] x, float[1, {rows}, 4] w, float[1, {rows}, 5] r"
    model = model_of(f"net ({operands}) => (float[3, 1, 2, 5] y) {{ y = {op}<hidden_size = 5>(x, w, r) }}")
    given = {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in (("x", (3, 2, 4)), ("w", (1, rows, 4)), ("r", (1, rows, 5)))
    }
    (expected,) = ReferenceEvaluator(model).run(None, given)
    np.testing.assert_allclose(results(model, *given.values())[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_with_the_batch_first(op: str) -> None:
    """Both directions, with as many of them as states of a batch and steps: only the numbers tell the axes apart."""
    rng = np.random.default_rng(0)
    rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * 2
    shapes = {"x": (2, 2, 4), "w": (2, rows, 4), "r": (2, rows, 2)}
    given = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    operands = ", ".join(f"float[{', '.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    found = []
    for layout, order in ((0, (0, 1, 2)), (1, (1, 0, 2))):
        attributes = f'hidden_size = 2, direction = "bidirectional", layout = {layout}'
        model = model_of(
            f"net ({operands}) => (float[2, 2, 2, 2] y, float[2, 2, 2] h) {{ y, h = {op}<{attributes}>(x, w, r) }}"
        )
        found.append(results(model, given["x"].transpose(order), given["w"], given["r"]))
    (time_first, state), (batch_first, turned) = found
    # [time, directions, batch, hidden] and [batch, time, directions, hidden]
    np.testing.assert_array_equal(batch_first, np.moveaxis(time_first, 2, 0))
    np.testing.assert_array_equal(turned, state.transpose(1, 0, 2))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_transposes_of_equal_sizes(order: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 3, 3), np.float32)
    text = f"net (float[3, 3, 3] x) => (float[3, 3, 3] y) {{ y = Transpose<perm = {list(order)}>(x) }}"
    np.testing.assert_array_equal(results(model_of(text), x)[0], x.transpose(order))


@pytest.mark.parametrize("axis", range(3))
def test_a_scan_stacks_its_outputs_along_any_axis(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 3, 3), np.float32)
    body = "body = inside (float[3, 3] a) => (float[3, 3] b) { b = Neg(a) }"
    attributes = f"num_scan_inputs = 1, scan_output_axes = [{axis}], {body}"
    text = f"net (float[3, 3, 3] x) => (float[3, 3, 3] y) {{ y = Scan<{attributes}>(x) }}"
    np.testing.assert_array_equal(results(model_of(text), x)[0], np.stack(-x, axis=axis))


@pytest.mark.parametrize("axis", range(3))
def test_unique_slices_along_any_axis(axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 9, (6, 6, 6))
    text = f"net (int64[6, 6, 6] x) => (int64[A, B, C] y) {{ y = Unique<axis = {axis}>(x) }}"
    np.testing.assert_array_equal(results(model_of(text), x)[0], np.unique(x, axis=axis))


def test_boxes_of_several_images_and_classes() -> None:
    """Two images, each with two classes and six boxes. The limits are operands of the call."""
    rng = np.random.default_rng(0)
    head = "net (float[2, 6, 4] b, float[2, 2, 6] s, int64[1] most, float[1] overlap) => (int64[8, 3] y)"
    model = model_of(f"{head} {{ y = NonMaxSuppression(b, s, most, overlap) }}")
    corners = np.sort(rng.uniform(0, 1, (2, 6, 2, 2)), axis=2).reshape(2, 6, 4).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 2, 6)).astype(np.float32)
    given = {"b": corners, "s": scores, "most": np.array([2]), "overlap": np.array([0.3], np.float32)}
    (expected,) = ReferenceEvaluator(model).run(None, given)
    np.testing.assert_array_equal(results(model, *given.values())[0], expected)


def test_a_step_of_adam() -> None:
    names = ["rate", "step", "x", "gradient", "first", "second"]
    attributes = {"alpha": 0.8, "beta": 0.75, "epsilon": 1e-3, "norm_coefficient": 0.25, "norm_coefficient_post": 0.125}
    node = helper.make_node("Adam", names, ["y", "v", "h"], domain="ai.onnx.preview.training", **attributes)
    rate, step = (helper.make_tensor_value_info(*each, []) for each in (("rate", 1), ("step", 7)))
    rest = [helper.make_tensor_value_info(name, 1, [5]) for name in names[2:]]
    outputs = [helper.make_tensor_value_info(name, 1, [5]) for name in "yvh"]
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("ai.onnx.preview.training", 1)]
    graph = helper.make_graph([node], "net", [rate, step, *rest], outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    given = np.random.default_rng(0).uniform(0.5, 2, (4, 5)).astype(np.float32)
    arrays = [np.float32(0.1), np.int64(3), *given]
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    for found, wanted in zip(results(model, *map(np.asarray, arrays)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
