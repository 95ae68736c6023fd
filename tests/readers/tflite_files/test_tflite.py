"""TFLite models: operators against LiteRT's reference kernels, real models, and damaged files.

`cases.npz` has the models and LiteRT's results; `generate_tflite.py` writes it. Integers are equal in every bit.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from build_tflite import Graph, Operator, Signature, Tensor, write_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.table import read_file
from nacre.compiler.readers.tflite.convert import FAMILIES
from nacre.compiler.tools.reference.reader_operators import TFLITE
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter

DATA = os.environ.get("NACRE_TEST_DATA", "")
CASES = np.load(Path(__file__).with_name("cases.npz"))
NAMES = [key.removesuffix("/model") for key in CASES if key.endswith("/model")]
real = pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA names no folder with real models")


def arrays(name: str, kind: str) -> list[Any]:
    return [CASES[key] for key in sorted(key for key in CASES if key.startswith(f"{name}/{kind}"))]


def read_case(tmp_path: Path, name: str) -> SourceModel:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(CASES[f"{name}/model"].tobytes())
    return read_file(path)


def interpret(source: SourceModel, inputs: Sequence[Any]) -> list[Any]:
    (function,) = source.module.functions
    weights = source.weights[function.name]
    return list(Interpreter(source.module, lambda p: weights.read(p.key)).run(function, inputs))  # type: ignore[union-attr]


def check(found: Sequence[Any], expected: Sequence[Any], name: str) -> None:
    assert len(found) == len(expected), name
    for a, b in zip(found, expected, strict=True):
        assert np.asarray(a).dtype == b.dtype, name
        if b.dtype.kind == "f":
            # Sums in another order, and functions with other rounding errors of some units in the last place.
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("part", range(4))
def test_operators_agree_with_the_reference_kernels(tmp_path: Path, part: int) -> None:
    for name in NAMES[part::4]:
        check(interpret(read_case(tmp_path, name), arrays(name, "input")), arrays(name, "output"), name)


def test_every_operator_but_some_has_a_case() -> None:
    """The rest follows the definition in the schema; LiteRT's reference kernels lack some of them."""
    tested = {line.split("(")[0] for name in NAMES for line in listing(name)}
    names = {name for family in FAMILIES.values() for name in family}
    assert names - tested == {
        "ADD_N", "ATAN2", "BITWISE_XOR", "BROADCAST_TO", "CEIL", "ELU", "EMBEDDING_LOOKUP", "FILL", "GATHER_ND", "IF",
        "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "PADV2", "POW", "RANK", "REDUCE_ALL", "REDUCE_ANY",
        "RELU_0_TO_1", "RIGHT_SHIFT", "ROUND", "RSQRT", "SELECT", "SQRT", "WHILE", "ZEROS_LIKE", "ARG_MIN",
    }  # fmt: skip


def listing(name: str) -> list[str]:
    from nacre.compiler.readers.tflite.writing.records import decode  # noqa: PLC0415

    return decode(CASES[f"{name}/model"].tobytes(), name).listing.split("\n")


@pytest.mark.usefixtures("unchecked")  # a call of a hundred arguments takes long to check, and operators have tests
@pytest.mark.parametrize("level", [0, 2])
def test_compiled_operators_agree(tmp_path: Path, level: int) -> None:
    path = tmp_path / "joined.tflite"
    path.write_bytes(CASES["joined"].tobytes())
    model = nacre.compile(path, tmp_path / "joined.so", opt_level=level)
    names = CASES["joined_names"].tolist()
    found = model(*(array for name in names for array in arrays(name, "input")))
    for name in names:
        expected = arrays(name, "output")
        check([np.asarray(each) for each in found[: len(expected)]], expected, name)
        found = found[len(expected) :]


def test_constants_of_every_dtype_and_size(tmp_path: Path) -> None:
    """Numbers that differ, as far as the dtype has so many; those of f64 are no f32."""
    dtypes = ("f8", "f4", "f2", "bfloat16", "i1", "u1", "i2", "i4", "i8", "b1", "int4")
    given = []
    for dtype, shape in product(dtypes, ((), (1,), (7,), (3, 5), (2, 3, 5), (33, 17), (0, 4), (3, 0, 2))):
        numbers = np.arange(np.prod(shape)).reshape(shape)
        part = {"int4": numbers % 13 - 6, "b1": numbers % 3 == 0}.get(dtype, numbers % 101 + 1 / 3)
        given.append((dtype, part.astype(dtype)))
    tensors = [Tensor(array.shape, dtype, array) for dtype, array in given]
    path = tmp_path / "constants.tflite"
    path.write_bytes(write_model([Graph(tensors, [], list(range(len(tensors))), [])]))
    for found, (dtype, array) in zip(interpret(read_file(path), []), given, strict=True):
        expected = array.astype(np.int8) if dtype == "int4" else array
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (dtype, expected.shape)
        assert found.tobytes() == expected.tobytes(), (dtype, expected.shape)


def test_a_range_of_constant_floats_is_computed_and_another_is_refused(tmp_path: Path) -> None:
    bounds = [np.float32(each) for each in (0.5, 3.0, 0.75)]
    constants = [Tensor((), "f4", each) for each in bounds]
    path, range_of_three = tmp_path / "range.tflite", Operator("RANGE", [0, 1, 2], [3])
    path.write_bytes(write_model([Graph([*constants, Tensor((4,), "f4")], [], [3], [range_of_three])]))
    np.testing.assert_array_equal(interpret(read_file(path), []), [np.arange(0.5, 3.0, 0.75, np.float32)])
    path.write_bytes(
        write_model([Graph([Tensor((), "f4"), *constants[1:], Tensor((4,), "f4")], [0], [3], [range_of_three])])
    )
    with pytest.raises(DiagnosticError, match="has bounds that a call computes"):
        read_file(path)


def test_a_weight_as_an_argument_agrees_with_a_constant(tmp_path: Path) -> None:
    """All sizes of the weight are equal."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 5, 5, 3), (3, 3, 3, 3)))
    found = []
    for constant, given in ((w, [x]), (None, [x, w])):
        tensors = [Tensor(x.shape, "f4"), Tensor(w.shape, "f4", constant), Tensor((1, 5, 5, 3), "f4")]
        operator = Operator("CONV_2D", [0, 1], [2], {"padding": 0, "stride_w": 1, "stride_h": 1})
        path = tmp_path / "conv.tflite"
        path.write_bytes(write_model([Graph(tensors, list(range(len(given))), [2], [operator])]))
        found += interpret(read_file(path), given)
    np.testing.assert_array_equal(*found)


def test_a_batch_of_unknown_size_is_a_dim(tmp_path: Path) -> None:
    source = read_case(tmp_path, "symbolic_batch")
    (dim,) = source.module.dims
    assert str(source.module.functions[0].results[0].type) == f"f32[{dim.name}, 3, 2]"


@pytest.mark.parametrize(
    ("inputs", "outputs", "names"),
    [
        ({"left": 0, "right": 1}, {"sum": 2}, ("left", "right", "sum")),
        ({"right": 1, "left": 0}, {"sum": 2}, ("left", "right", "sum")),
        ({"left": 0, "right": 1, "more": 2}, {"sum": 2, "more": 0}, ("left", "right", "sum")),
        ({"left": 0}, {"sum": 2}, ("t0", "t1", "t2")),
        ({"left": 0, "right": 1}, {"more": 0}, ("t0", "t1", "t2")),
    ],
)
def test_a_signature_that_names_all_tensors_gives_their_names(
    tmp_path: Path, inputs: dict[str, int], outputs: dict[str, int], names: Sequence[str]
) -> None:
    graph = Graph([Tensor((2,), "f4")] * 3, [0, 1], [2], [Operator("ADD", [0, 1], [2])])
    path = tmp_path / "named.tflite"
    other = Signature(1, {"a": 0, "b": 1}, {"c": 2})
    path.write_bytes(write_model([graph, graph], [other, Signature(0, inputs, outputs)]))
    function = read_file(path).module.functions[0]
    assert (*(value.name for value in function.inputs), *function.result_names) == names


@pytest.mark.parametrize(
    ("scale", "zero", "code"),
    [
        (0.0, 3, "read"),
        (0.5, (1 << 31) - 1, "read"),
        (-0.5, 3, "bad-tflite"),
        (np.inf, 3, "bad-tflite"),
        (np.nan, 3, "bad-tflite"),
        (0.5, 1 << 31, "bad-tflite"),
    ],
)
def test_scales_and_zeros_at_their_bounds(tmp_path: Path, scale: float, zero: int, code: str) -> None:
    tensors = [Tensor((4,), "i1", scales=[scale], zeros=[zero]), Tensor((4,), "f4")]
    graph = Graph(tensors, [0], [1], [Operator("DEQUANTIZE", [0], [1])])
    path = tmp_path / "scaled.tflite"
    assert outcome(path, write_model([graph])) == code
    if scale == 0:
        (found,) = interpret(read_file(path), [np.asarray([-128, 0, 3, 127], np.int8)])
        assert found.tolist() == [0, 0, 0, 0]


def test_the_limit_of_converted_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, code in ((3, "read"), (4, "too-large")):
        operators = [Operator("NEG", [i], [i + 1]) for i in range(count)]
        data = write_model([Graph([Tensor((2,), "f4")] * (count + 1), [0], [count], operators)])
        monkeypatch.setattr("nacre.compiler.readers.tflite.tflite_model._MOST_CONVERTED", 3)
        assert outcome(tmp_path / "long.tflite", data) == code


def test_the_page_lists_the_supported_names() -> None:
    """After a change: `python -m nacre.compiler.tools.reference.reader_operators`."""
    assert TFLITE.path.read_text(encoding="utf-8") == TFLITE.current()


@real
@pytest.mark.parametrize("name", ["okay_nabu", "vad"])
def test_streaming_models_are_exact_over_speech(tmp_path: Path, name: str) -> None:
    stored = np.load(Path(DATA) / "wake_word" / "jfk_features.npz")
    model = nacre.compile(Path(DATA) / "wake_word" / f"{name}.tflite", tmp_path / "model.so")
    session = model.session()
    found = [int(np.asarray(session(x[None]))[0, 0]) for x in stored[f"{name}_input"]]
    assert found == stored[f"{name}_output"].tolist()


@real
def test_a_classifier_of_bytes_is_exact(tmp_path: Path) -> None:
    stored = np.load(Path(DATA) / "keras" / "mnist_cnn_io.npz")
    model = nacre.compile(Path(DATA) / "keras" / "mnist_cnn_uint8.tflite", tmp_path / "model.so")
    found = np.stack([np.asarray(model(image[None, :, :, None]))[0] for image in stored["images"]])
    np.testing.assert_array_equal(found, stored["tflite_uint8"])


def outcome(path: Path, data: bytes) -> str:
    """Returns the code of the diagnostic of a file, or `read`. Anything else is raised."""
    path.write_bytes(data)
    try:
        read_file(path)
    except DiagnosticError as error:
        return error.diagnostics[0].code
    return "read"


def test_damaged_files_are_diagnostics(tmp_path: Path) -> None:
    path = tmp_path / "damaged.tflite"
    random = np.random.default_rng(0)
    whole = CASES["conv_2d_i1_1/model"].tobytes()
    assert {outcome(path, whole[:size]) for size in range(len(whole))} <= {"bad-tflite", "read"}
    codes = []
    for name in NAMES[::9]:
        data = CASES[f"{name}/model"].tobytes()
        for _ in range(20):
            damaged = bytearray(data)
            for place in random.integers(8, len(data), random.integers(1, 4)):
                damaged[place] = random.integers(0, 256)
            codes.append(outcome(path, bytes(damaged)))
    assert len(set(codes)) > 4, sorted(set(codes))


def test_tables_that_are_used_very_often_are_refused(tmp_path: Path) -> None:
    """A vector of a million offsets to one table of many graphs, each read again, would take hours."""
    count = 30_000
    # The root table: field 2, the graphs, is a vector whose elements are one table with the same vector.
    root = struct.pack("<I4s", 24, b"TFL3") + b"\0" * 4
    vtable = struct.pack("<6H", 10, 8, 0, 0, 4, 0)
    data = root + vtable + struct.pack("<iI", 12, 4)
    table = 24
    vector = struct.pack("<I", count)
    first = len(data) + 4
    offsets = b"".join(struct.pack("<I", (table - (first + 4 * i)) % (1 << 32)) for i in range(count))
    assert outcome(tmp_path / "many.tflite", data + vector + offsets) == "bad-tflite"


def test_unknown_operators_are_listed_with_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "unknown.tflite"
    path.write_bytes(CASES["unknown"].tobytes())
    with pytest.raises(DiagnosticError, match="the operator `SVDF` is not supported; operators: 1") as error:
        read_file(path)
    assert [each.code for each in error.value.diagnostics] == ["unsupported-operator"]
