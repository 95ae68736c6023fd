"""Operands and attributes that few files have: the least integers, empty sequences, positions, sizes and axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import IndexRangeError, Interpreter, load_parameter
from onnx import parser
from onnx.reference import ReferenceEvaluator

Arrays = tuple[Any, ...]


def model_of(text: str, version: int = 22) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {version}]> {text}')


def results(model: onnx.ModelProto, *arrays: Any) -> list[Any]:
    module = read_proto(model, "net", "net.onnx", None).module
    return list(Interpreter(module, load_parameter).run(module.functions[0], [np.asarray(a) for a in arrays]))


def expected(model: onnx.ModelProto, *arrays: Any) -> list[Any]:
    names = [value.name for value in model.graph.input]
    return list(ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True))))


def agree(text: str, *arrays: Any) -> None:
    model = model_of(text)
    for found, right in zip(results(model, *arrays), expected(model, *arrays), strict=True):
        assert found.dtype == right.dtype and found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-6)


def code_of(text: str, version: int = 22) -> str:
    with pytest.raises(DiagnosticError) as error:
        read_proto(model_of(text, version), "net", "net.onnx", None)
    return error.value.diagnostics[0].code


X = np.array([-128, -128, -128, -127, 127, 127, -7, 7, -7, 7, -8, 0], np.int8)
Y = np.array([3, -3, 127, 2, -128, -2, 2, -2, -2, 2, 4, -5], np.int8)


def test_the_least_integer_is_divided() -> None:
    (found,) = results(model_of("net (int8[12] x, int8[12] y) => (int8[12] z) { z = Div(x, y) }"), X, Y)
    np.testing.assert_array_equal(found, np.trunc(X.astype(np.float64) / Y))


@pytest.mark.parametrize("fmod", [0, 1])
def test_the_remainder_of_the_least_integer(fmod: int) -> None:
    (found,) = results(
        model_of(f"net (int8[12] x, int8[12] y) => (int8[12] z) {{ z = Mod<fmod = {fmod}>(x, y) }}"), X, Y
    )
    wide = X.astype(np.int64), Y.astype(np.int64)
    np.testing.assert_array_equal(found, np.fmod(*wide) if fmod else np.mod(*wide))


HALVES = """net (float[3] x) => (float[3] y) <float half = {0.5}, float one = {1.0}> {
  limit = Constant<value = int64 {10}>()
  true = Constant<value = bool {1}>()
  y = Loop(limit, true, x) <body = step (int64 n, bool c, float[3] a) => (bool d, float[3] e) {
    e = Mul(a, half)
    s = ReduceMax<keepdims = 0>(e)
    d = Greater(s, one)
  }>
}"""


@pytest.mark.parametrize("scale", [0.0, 20.0, 1e6])
def test_a_loop_ends_by_a_condition_or_by_its_limit(scale: float) -> None:
    agree(HALVES, np.array([1, 0.5, -3], np.float32) * np.float32(scale))


TWO = (
    "net (float[3] x, float[3] w) => (float[N] z) { s = SequenceConstruct(x, w) e = Exp(x) k = Constant<value = int64 "
)


@pytest.mark.parametrize("position", range(-2, 3))
def test_a_position_of_a_sequence(position: int) -> None:
    """A position counts from the end where it is negative; the one behind the last item appends."""
    x, w = np.arange(3, dtype=np.float32), np.arange(3, 6, dtype=np.float32)
    items = [x, w]
    items.insert(position, np.exp(x))
    text = f"{TWO}{{{position}}}>() t = SequenceInsert(s, e, k) z = ConcatFromSequence<axis = 0>(t) }}"
    np.testing.assert_allclose(results(model_of(text), x, w)[0], np.concatenate(items), rtol=1e-6)
    if position < 2:
        text = f"{TWO}{{{position}}}>() t = SequenceErase(s, k) z = ConcatFromSequence<axis = 0>(t) }}"
        np.testing.assert_array_equal(results(model_of(text), x, w)[0], [w, x][position])


SPLIT = "net (float[5, 2] x) => (float[N, 2] z) { k = Constant<value = "


@pytest.mark.parametrize("sizes", ["int64 {2}", "int64 {5}", "int64 {7}", "int64[2] {2, 3}", "int64[3] {0, 5, 0}"])
def test_sizes_of_parts(sizes: str) -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    agree(f"{SPLIT}{sizes}>() t = SplitToSequence(x, k) z = ConcatFromSequence<axis = 0>(t) }}", x)


SCAN = """net (float[3] s, float[4, 3] x, float[N, 3] w) => (float[3] y) {
  y = Scan<num_scan_inputs = 2, body = step (float[3] a, float[3] v, float[3] u) => (float[3] e) {
    f = Add(a, v)
    e = Mul(f, u)
  }>(s, x, w)
}"""


def test_sequences_of_a_scan_have_one_length() -> None:
    arrays = [np.linspace(-1, 1, n, dtype=np.float32).reshape(-1, 3) for n in (3, 12, 12)]
    agree(SCAN, arrays[0][0], *arrays[1:])
    with pytest.raises(Exception, match="index"):
        results(model_of(SCAN), arrays[0][0], arrays[1], np.zeros((5, 3), np.float32))
    assert code_of(SCAN.replace("N", "5")) == "shape-mismatch"


ERASED = "net (float[3] x) => (int64 y) { s = SequenceEmpty() "
REFUSED = {
    "boxes of fewer images": (
        "net (float[2, 1, 4, 4] x, float[3, 4] b, int64[1] i) => (float[3, 1, 2, 2] y) "
        "{ y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, b, i) }",
        "shape-mismatch",
    ),
    "an image of one axis": (
        "net (float[4] x, float[3, 4] b, int64[3] i) => (float[N] y) { y = RoiAlign<sampling_ratio = 2>(x, b, i) }",
        "rank-mismatch",
    ),
    "results of a form without them": (
        "net (float[2, 3] x, float[3] a) => (float[2, 3] y, float[3] m, float[3] v) "
        "{ y, m, v = BatchNormalization(x, a, a, a, a) }",
        "wrong-operands",
    ),
    "a shape of no sizes": (
        "net (float[3, 1] x, int64[0] s) => (float[3, 4] y) { y = Expand(x, s) }",
        "type-mismatch",
    ),
    "widths of a result of another rank": (
        "net (float[1, 2] x, int64[4] w) => (float[4] y) { y = Pad(x, w) }",
        "type-mismatch",
    ),
    "Mod with fmod 2": ("net (int8[3] x) => (int8[3] y) { y = Mod<fmod = 2>(x, x) }", "bad-attribute"),
    "a position beyond": (f"{TWO}{{3}}>() t = SequenceInsert(s, e, k) z = Exp(x) }}", "bad-index"),
    "erasing from nothing": (f"{ERASED} t = SequenceErase(s) y = SequenceLength(t) }}", "bad-index"),
    "an item of nothing": (f"{ERASED} k = Constant<value_int = 0>() t = SequenceAt(s, k) y = Size(t) }}", "bad-index"),
    "joining nothing": (f"{ERASED} t = ConcatFromSequence<axis = 0>(s) y = Size(t) }}", "wrong-operands"),
    "parts of no elements": (f"{SPLIT}int64 {{0}}>() t = SplitToSequence(x, k) z = Exp(x) }}", "bad-size"),
    "parts of fewer than none": (f"{SPLIT}int64 {{-2}}>() t = SplitToSequence(x, k) z = Exp(x) }}", "bad-size"),
    "parts that leave a rest": (f"{SPLIT}int64[1] {{4}}>() t = SplitToSequence(x, k) z = Exp(x) }}", "shape-mismatch"),
    "one part": ("net (float[6] x) => (float[5] y) <int64[1] k = {5}> { y = Split(x, k) }", "shape-mismatch"),
    "a map over a tensor": (
        "net (float[3] x) => (int64 y) { t = SequenceMap<body = f (float a) => (float b) { b = Exp(a) }>(x) "
        "y = SequenceLength(t) }",
        "unsupported-type",
    ),
    "a condition of two elements": (
        "net (float[3] x, bool[2] c) => (float[3] y) { y = If(c) <then_branch = t () => (float[3] a) { a = Exp(x) }, "
        "else_branch = e () => (float[3] b) { b = Neg(x) }> }",
        "wrong-operands",
    ),
    "a range with the step 0": (
        "net (float[3] x) => (float[N] y) <float a = {0.0}, float b = {3.0}> { y = Range(a, b, a) }",
        "bad-size",
    ),
    "a vector of depths": (
        "net (int64[3] x) => (float[3, 2] y) <int64[2] d = {2, 2}, float[2] v = {0.0, 1.0}> { y = OneHot(x, d, v) }",
        "wrong-operands",
    ),
    "an output dtype beside a zero point": (
        "net (float[3] x, uint8 z) => (int8[3] y) <float s = {0.5}> { y = QuantizeLinear<output_dtype = 3>(x, s, z) }",
        "bad-attribute",
    ),
    "no such axis of scales": (
        "net (float[3, 2] x, float[2] s) => (uint8[3, 2] y) { y = QuantizeLinear<axis = 7>(x, s) }",
        "bad-axis",
    ),
    "strides of 0": (
        'net (float[1, 1, 6] x) => (float[1, 1, N] y) { y = MaxPool<kernel_shape = [2], strides = [0], '
        'auto_pad = "SAME_UPPER">(x) }',
        "bad-attribute",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_contradiction_is_a_diagnostic(name: str) -> None:
    text, code = REFUSED[name]
    assert code_of(text) == code


RESIZED = "net (float[2, 3] x, float[2] scales) => (float[1, 6] y) { y = Resize(x, , scales) }"


def test_scales_of_the_call_give_the_declared_sizes() -> None:
    """Twice the size of an axis of 2 is 4, and not the declared 1."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = results(model_of(RESIZED), x, np.array([0.5, 2], np.float32))
    assert found.shape == (1, 6)
    for scales in ([1, 2], [2, 2], [0.4, 2]):
        with pytest.raises(IndexRangeError):
            results(model_of(RESIZED), x, np.array(scales, np.float32))


def test_an_axis_that_the_operand_lacks() -> None:
    """Softmax of version 11 sums over all axes from `axis` on. The operand has no such axis here."""
    assert code_of("net (float[2, 3] x) => (float[2, 3] y) { y = Softmax<axis = 5>(x) }", version=11) == "bad-axis"


def test_the_mean_of_integers_is_truncated() -> None:
    x = np.array([[-7, 0, 0], [5, 0, 3], [-128, -128, -128], [-1, -1, 0]], np.int32)
    text = "net (int32[4, 3] x) => (int32[4] y) { y = ReduceMean<axes = [1], keepdims = 0>(x) }"
    (found,) = results(model_of(text, 13), x)
    np.testing.assert_array_equal(found, [-2, 2, -128, 0])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_infinity_has_no_influence_beyond_its_neighbours(mode: str) -> None:
    """Rows of integer positions have fewer terms than others."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 8)
    x[0, 0, 0] = np.inf
    text = f"""net (float[1, 1, 8] x) => (float[1, 1, 15] y) <int64[3] sizes = {{1, 1, 15}}> {{
      y = Resize<mode = "{mode}", coordinate_transformation_mode = "align_corners">(x, , , sizes)
    }}"""
    (found,) = results(model_of(text), x)
    assert not np.isfinite(found[0, 0, 0])
    np.testing.assert_allclose(found[0, 0, 4:], np.arange(3, 8.5, 0.5), rtol=0.05)
