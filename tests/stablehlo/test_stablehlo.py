"""StableHLO files: operations, dynamic sizes, a trained network, and errors."""

from __future__ import annotations

import io
import os
from importlib import import_module
from itertools import permutations
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from interpreting import run
from nacre.compiler.base.mlir import PACKAGE, ir
from nacre.compiler.readers.stablehlo import parsing_child
from nacre.compiler.readers.table import read_file
from nacre.compiler.tools.reference.reader_operators import STABLEHLO
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter
from readers.damaged_files import KINDS, MOST, SLOWEST, read_batch, read_mlir_text

DATA = os.environ.get("NACRE_TEST_DATA", "")


def test_operations(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    text = """func.func public @main(%x: tensor<3x4xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<5x4xf32>, tensor<3xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
      %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
      %p = stablehlo.pad %x, %zero, low = [1, 0], high = [1, 0], interior = [0, 0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<5x4xf32>
      %d = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3xf32>
      return %t, %m, %p, %d : tensor<4x3xf32>, tensor<3xf32>, tensor<5x4xf32>, tensor<3xf32>
    }"""  # noqa: E501  # lines of MLIR
    found = run(tmp_path, text, x)
    expected = [x.T, x.max(1), np.pad(x, ((1, 1), (0, 0))), (x * x).sum(1)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_least_integers_are_divided(tmp_path: Path) -> None:
    x = np.array([-128, -128, -128, -127, 127, 127, -7, 7, -7, -8], np.int8)
    y = np.array([3, -3, 127, 2, -128, -2, 2, -2, -2, 4], np.int8)
    text = """func.func public @main(%x: tensor<10xi8>, %y: tensor<10xi8>) -> (tensor<10xi8>, tensor<10xi8>) {
      %q = stablehlo.divide %x, %y : tensor<10xi8>
      %r = stablehlo.remainder %x, %y : tensor<10xi8>
      return %q, %r : tensor<10xi8>, tensor<10xi8>
    }"""
    quotient, rest = run(tmp_path, text, x, y)
    np.testing.assert_array_equal(quotient, np.trunc(x.astype(np.float64) / y))
    np.testing.assert_array_equal(rest, np.fmod(x.astype(np.int64), y))


def test_axes_that_are_permuted_in_cycles(tmp_path: Path) -> None:
    """Orders that are not their own inverse."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    text = """func.func public @main(%x: tensor<2x3x4xf32>) -> (tensor<3x4x2xf32>, tensor<4x2x3xf32>, tensor<3x5x4x2xf32>, tensor<1x3x4xf32>, tensor<2x2x4xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.transpose %x, dims = [1, 2, 0] : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
      %u = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
      %b = stablehlo.broadcast_in_dim %x, dims = [3, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x5x4x2xf32>
      %w = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 2, 1, 1>}> ({ ^bb0(%a: tensor<f32>, %c: tensor<f32>): %s = stablehlo.add %a, %c : tensor<f32>
        stablehlo.return %s : tensor<f32> }) : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<1x3x4xf32>
      %v = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 1, 2, 1>}> ({ ^bb0(%a: tensor<f32>, %c: tensor<f32>): %s = stablehlo.add %a, %c : tensor<f32>
        stablehlo.return %s : tensor<f32> }) : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x2x4xf32>
      return %t, %u, %b, %w, %v : tensor<3x4x2xf32>, tensor<4x2x3xf32>, tensor<3x5x4x2xf32>, tensor<1x3x4xf32>, tensor<2x2x4xf32>
    }"""  # noqa: E501  # lines of MLIR
    spread = np.broadcast_to(x.transpose(1, 2, 0)[:, None], (3, 5, 4, 2))
    expected = [x.transpose(1, 2, 0), x.transpose(2, 0, 1), spread, x.sum(0, keepdims=True), x[:, :2] + x[:, 1:]]
    for a, b in zip(run(tmp_path, text, x), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gathers_and_scatters_with_axes_permuted_in_cycles(tmp_path: Path) -> None:
    """Orders of the tensor, of the indices, of the updates and of the result that are not their own inverse, with all
    sizes equal."""
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((2, 3, 3, 3, 3)).astype(np.float32)
    n = rng.integers(0, 3, (2, 3, 3))
    text = """func.func public @main(%x: tensor<3x3x3x3xf32>, %u: tensor<3x3x3x3xf32>, %n: tensor<2x3x3xi64>) -> (tensor<3x3x3x3xf32>, tensor<3x3x3x3xf32>, tensor<3x3x3x3xf32>) {
      %g = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [2, 3], start_index_map = [3, 2], index_vector_dim = 0>, slice_sizes = array<i64: 3, 3, 1, 1>}> : (tensor<3x3x3x3xf32>, tensor<2x3x3xi64>) -> tensor<3x3x3x3xf32>
      %h = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 3], collapsed_slice_dims = [0, 2], start_index_map = [2, 0], index_vector_dim = 0>, slice_sizes = array<i64: 1, 3, 1, 3>}> : (tensor<3x3x3x3xf32>, tensor<2x3x3xi64>) -> tensor<3x3x3x3xf32>
      %s = "stablehlo.scatter"(%x, %n, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2], inserted_window_dims = [0, 3], scatter_dims_to_operand_dims = [3, 0], index_vector_dim = 0>}> ({ ^bb0(%a: tensor<f32>, %c: tensor<f32>): %t = stablehlo.add %a, %c : tensor<f32>
        stablehlo.return %t : tensor<f32> }) : (tensor<3x3x3x3xf32>, tensor<2x3x3xi64>, tensor<3x3x3x3xf32>) -> tensor<3x3x3x3xf32>
      return %g, %h, %s : tensor<3x3x3x3xf32>, tensor<3x3x3x3xf32>, tensor<3x3x3x3xf32>
    }"""  # noqa: E501  # lines of MLIR
    first, second, total = (np.empty_like(x), np.empty_like(x), x.copy())
    for i, j in np.ndindex(3, 3):
        p, q = n[:, i, j]
        first[:, i, :, j] = x[:, :, q, p]
        second[i, :, j, :] = x[q, :, p, :]
        total[q, :, :, p] += u[:, i, :, j]
    for a, b in zip(run(tmp_path, text, x, u, n), (first, second, total), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_products_with_permuted_axes(tmp_path: Path, order: tuple[int, ...]) -> None:
    """The batch, the rows and the inner axis of the left operand stand at any place, those of the right one in
    turn."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (2, 3, 3, 3)).astype(np.float32)
    (batch, _, inner), (first, _, last) = order, (order[1], order[2], order[0])
    text = f"""func.func public @main(%x: tensor<3x3x3xf32>, %y: tensor<3x3x3xf32>) -> tensor<3x3x3xf32> {{
      %d = stablehlo.dot_general %x, %y, batching_dims = [{batch}] x [{first}], contracting_dims = [{inner}] x [{last}] : (tensor<3x3x3xf32>, tensor<3x3x3xf32>) -> tensor<3x3x3xf32>
      return %d : tensor<3x3x3xf32>
    }}"""  # noqa: E501  # lines of MLIR
    (left, right) = ("".join(dict(zip(axes, names, strict=True))[axis] for axis in range(3))
                     for axes, names in ((order, "brk"), ((first, order[2], last), "bck")))  # fmt: skip
    np.testing.assert_array_equal(run(tmp_path, text, x, y)[0], np.einsum(f"{left},{right}->brc", x, y))


def test_interior_padding_and_negative_padding(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<3xf32>) -> tensor<4xf32> {
      %v = stablehlo.constant dense<9.0> : tensor<f32>
      %p = stablehlo.pad %x, %v, low = [-1], high = [1], interior = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<5xf32>
      %s = stablehlo.slice %p [0:4] : (tensor<5xf32>) -> tensor<4xf32>
      return %s : tensor<4xf32>
    }"""
    np.testing.assert_array_equal(run(tmp_path, text, np.array([1, 2, 3], np.float32))[0], [9, 2, 9, 3])


def test_a_convolution_of_images_with_channels_last(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<1x5x5x2xf32>, %w: tensor<3x3x2x4xf32>) -> tensor<1x3x3x4xf32> {
      %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x5x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x3x3x4xf32>
      return %c : tensor<1x3x3x4xf32>
    }"""  # noqa: E501  # a line of MLIR
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 5, 5, 2)).astype(np.float32), rng.standard_normal((3, 3, 2, 4)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((1, 3, 3, 4), np.float32)
    for i, j in np.ndindex(3, 3):
        expected[0, i, j] = np.einsum("hwc,hwco->o", padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], w)
    np.testing.assert_allclose(run(tmp_path, text, x, w)[0], expected, rtol=0, atol=1e-5)


def test_dynamic_sizes_are_dims(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
      %f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
      %b = stablehlo.dynamic_broadcast_in_dim %f, %one, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %r = stablehlo.multiply %s, %b : tensor<?xf32>
      return %r : tensor<?xf32>
    }"""  # noqa: E501  # a line of MLIR
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    np.testing.assert_array_equal(run(tmp_path, text, x)[0], x.sum(1) * 5)


def test_a_loop_and_a_choice(tmp_path: Path) -> None:
    text = """func.func public @main(%n: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %s = %one) : tensor<i32>, tensor<i32>
      cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %c : tensor<i1> }
      do { %a = stablehlo.add %i, %one : tensor<i32>
           %b = stablehlo.add %s, %s : tensor<i32>
           stablehlo.return %a, %b : tensor<i32>, tensor<i32> }
      %big = stablehlo.compare GT, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %e = "stablehlo.if"(%big) ({ stablehlo.return %n : tensor<i32> }, { stablehlo.return %zero : tensor<i32> }) : (tensor<i1>) -> tensor<i32>
      return %r#1, %e : tensor<i32>, tensor<i32>
    }"""  # noqa: E501  # a line of MLIR
    assert [int(each) for each in run(tmp_path, text, np.int32(5))] == [32, 5]
    assert [int(each) for each in run(tmp_path, text, np.int32(1))] == [2, 0]


@pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA names no folder")
def test_a_trained_network_agrees(tmp_path: Path) -> None:
    folder = Path(DATA) / "stablehlo"
    model = nacre.compile(folder / "mnist.mlir", tmp_path / "mnist.so")
    stored = np.load(folder / "mnist_io.npz")
    found = np.concatenate([model(stored["images"][i : i + 1]) for i in range(200)])
    np.testing.assert_allclose(found, stored["probabilities"], rtol=0, atol=2e-6)


def bytecode(text: str) -> list[bytes]:
    """Returns a module as plain bytecode of MLIR, and as the portable one of StableHLO."""
    stablehlo = import_module(f"{PACKAGE}._mlir_libs._stablehlo")
    context = ir.Context()
    stablehlo.register_dialect(context)
    module = ir.Module.parse(text, context)
    plain = io.BytesIO()
    module.operation.write_bytecode(plain)
    return [plain.getvalue(), stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())]


_ADDITION = """func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %a = stablehlo.add %x, %x : tensor<3xf32>
  return %a : tensor<3xf32>
}"""


def test_both_kinds_of_bytecode_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.mlirbc"
    for data in bytecode(_ADDITION):
        path.write_bytes(data)
        source = read_file(path)
        (found,) = Interpreter(source.module, lambda p: None).run("net", [np.arange(3, dtype=np.float32)])
        np.testing.assert_array_equal(found, [0, 2, 4])


DTYPES = {
    **{"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16},
    **{"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "ui8": np.uint8},
}
SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 5), (33, 17), (0, 4))


def numbers(dtype: type, shape: tuple[int, ...], *, equal: bool) -> np.ndarray:
    """Numbers that differ, as far as the dtype has so many; those of f64 are no f32."""
    count = np.zeros(shape, np.int64) if equal else np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if dtype is np.bool_:
        return count % 3 == 0
    if dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        return (count + 1 / 3).astype(dtype)
    return (count % 101).astype(dtype)


def written(array: np.ndarray) -> str:
    if array.size == 0:
        return ""
    if array.dtype == np.bool_:
        return str(array.tolist()).lower()
    if array.ndim == 0:
        return str(array) if array.dtype.kind in "iu" else repr(float(array))
    return f'"0x{array.tobytes().hex()}"' if array.size > 1 else str(array.astype(object).tolist())


def test_constants_of_every_dtype_and_size(tmp_path: Path) -> None:
    """In text and in both kinds of bytecode; equal elements are stored once."""
    arrays = [numbers(dtype, shape, equal=e) for dtype in DTYPES.values() for shape in SHAPES for e in (False, True)]
    elements = [element for element in DTYPES for _ in range(2 * len(SHAPES))]
    types = [f"tensor<{''.join(f'{n}x' for n in a.shape)}{e}>" for a, e in zip(arrays, elements, strict=True)]
    lines = [f"%c{n} = stablehlo.constant dense<{written(a)}> : {types[n]}" for n, a in enumerate(arrays)]
    results = ", ".join(f"%c{n}" for n in range(len(arrays)))
    body = "\n".join([*lines, f"return {results} : {', '.join(types)}"])
    text = f"func.func public @main() -> ({', '.join(types)}) {{\n{body}\n}}"
    for name, data in zip(("net.mlir", "a.mlirbc", "b.mlirbc"), (text.encode(), *bytecode(text)), strict=True):
        (tmp_path / name).write_bytes(data)
        source = read_file(tmp_path / name)
        (function,) = source.module.functions
        weights = source.weights[function.name]
        found = Interpreter(source.module, lambda p: weights.read(p.key)).run(function, ())  # noqa: B023  # called at once
        for array, expected in zip(found, arrays, strict=True):
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape), name
            assert array.tobytes() == expected.tobytes(), (name, expected.dtype, expected.shape)


def test_a_number_that_asks_for_memory_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The parser of MLIR makes a list that is as long as the greatest axis in `dim_numbers`."""
    text = """func.func public @main(%x: tensor<1x5x5x2xf32>, %w: tensor<3x3x2x4xf32>) -> tensor<1x3x3x4xf32> {
      %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 2147483648, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x5x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x3x3x4xf32>
      return %c : tensor<1x3x3x4xf32>
    }"""  # noqa: E501  # a line of MLIR
    with pytest.raises(
        DiagnosticError, match=r"cannot be parsed: the parser needs more memory than a file of this size"
    ):
        run(tmp_path, text, np.zeros((1, 5, 5, 2), np.float32), np.zeros((3, 3, 2, 4), np.float32))
    with pytest.raises(DiagnosticError, match="no-memory"):
        read_mlir_text(text, tmp_path)
    assert capfd.readouterr().err == ""


def test_large_constants_of_equal_numbers_are_broadcast(tmp_path: Path) -> None:
    """The constants have 64 MB and 128 MB."""
    text = """func.func public @main() -> (tensor<2xf32>, tensor<2xf32>) {
      %k = stablehlo.constant dense<0.5> : tensor<4096x4096xf32>
      %z = stablehlo.constant dense<(1.0, 2.0)> : tensor<16777216xcomplex<f32>>
      %a = stablehlo.slice %k [7:8, 9:11] : (tensor<4096x4096xf32>) -> tensor<1x2xf32>
      %b = stablehlo.reshape %a : (tensor<1x2xf32>) -> tensor<2xf32>
      %c = stablehlo.slice %z [5:7] : (tensor<16777216xcomplex<f32>>) -> tensor<2xcomplex<f32>>
      %d = stablehlo.imag %c : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
      return %b, %d : tensor<2xf32>, tensor<2xf32>
    }"""
    path = tmp_path / "net.mlir"
    path.write_text(text)
    source = read_file(path)
    assert not source.module.parameters
    found = Interpreter(source.module, lambda p: None).run(source.module.functions[0], ())
    np.testing.assert_array_equal(found, [[0.5, 0.5], [2, 2]])


def test_damaged_text_is_a_diagnostic() -> None:
    """The same as `python tests/readers/damaged_files.py mlir`, which reads more files."""
    codes, errors, slowest, megabytes = read_batch("mlir", KINDS["mlir"].whole(), 0, 20)
    assert not errors and slowest < SLOWEST and megabytes < MOST
    assert {"read", "bad-mlir"} <= set(codes)


def test_damaged_bytecode_is_a_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "net.mlirbc"
    for data in bytecode(_ADDITION):
        for size in (5, len(data) // 2, len(data) - 3):
            path.write_bytes(data[:size])
            with pytest.raises(DiagnosticError, match="bad-mlir"):
                read_file(path)


@pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA names no folder")
def test_bytecode_of_a_trained_network_is_the_same_graph(tmp_path: Path) -> None:
    text = (Path(DATA) / "stablehlo" / "mnist.mlir").read_text()
    (tmp_path / "mnist.mlir").write_text(text)
    expected = read_file(tmp_path / "mnist.mlir")
    for data in bytecode(text):
        (tmp_path / "mnist.mlirbc").write_bytes(data)
        found = read_file(tmp_path / "mnist.mlirbc")
        assert [node.op for node in found.module.functions[0].body] == [
            node.op for node in expected.module.functions[0].body
        ]
        name = found.module.parameters[0].name
        a, b = (source.weights["predict"].read(name) for source in (found, expected))
        np.testing.assert_array_equal(a, b)


# --- errors ---


def test_all_unsupported_operations_are_reported_at_once(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<3xf32>, %s: tensor<2xui64>) -> tensor<3xf32> {
      %o, %r = stablehlo.rng_bit_generator %s, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xi8>)
      %k = stablehlo.create_token : !stablehlo.token
      %l = "stablehlo.outfeed"(%x, %k) : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
      return %x : tensor<3xf32>
    }"""
    with pytest.raises(DiagnosticError) as caught:
        run(tmp_path, text)
    assert [d.code for d in caught.value.diagnostics] == ["unsupported-operator"] * 2
    message = caught.value.diagnostics[0].message
    assert "`rng_bit_generator`" in message and "lines: 2" in message


@pytest.mark.parametrize(
    "attribute", ["base_dilations = array<i64: 2>", "padding = dense<[[-1, 0]]> : tensor<1x2xi64>"]
)
def test_windows_of_other_operands_are_refused(attribute: str, tmp_path: Path) -> None:
    text = f"""func.func public @main(%x: tensor<9xf32>, %s: tensor<f32>) -> tensor<?xf32> {{
      %y = "stablehlo.reduce_window"(%x, %s) <{{window_dimensions = array<i64: 2>, {attribute}}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }}) : (tensor<9xf32>, tensor<f32>) -> tensor<?xf32>
      return %y : tensor<?xf32>
    }}"""
    with pytest.raises(DiagnosticError, match="has a dilated operand or negative padding"):
        run(tmp_path, text)


EXTREME = """func.func public @main(%x: tensor<2x3xf32>) -> (tensor<2xf32>, tensor<2xi32>) {{
  %n = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %y:2 = "stablehlo.reduce"(%x, %n, %least, %zero) <{{dimensions = array<i64: 1>}}> ({{
    ^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):
      %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %1 = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.or %0, %1 : tensor<i1>
      %3 = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %5 = stablehlo.and %3, %4 : tensor<i1>
      %6 = stablehlo.or %2, %5 : tensor<i1>
      %7 = stablehlo.select {value}, %a, %b : tensor<i1>, tensor<f32>
      %8 = stablehlo.select {index}, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %7, %8 : tensor<f32>, tensor<i32>
  }}) : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
  return %y#0, %y#1 : tensor<2xf32>, tensor<2xi32>
}}"""


def test_the_greatest_element_and_its_index(tmp_path: Path) -> None:
    x = np.array([[1, 7, 7], [3, np.nan, 5]], np.float32)
    values, indices = run(tmp_path, EXTREME.format(value="%2", index="%6"), x)
    np.testing.assert_array_equal(values, [7, np.nan])
    np.testing.assert_array_equal(indices, [1, 1])


@pytest.mark.parametrize(("value", "index"), [("%2", "%4"), ("%2", "%2"), ("%3", "%6")])
def test_other_reductions_of_two_tensors_are_refused(value: str, index: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="by other operations than those of `argmax`"):
        run(tmp_path, EXTREME.format(value=value, index=index))


@pytest.mark.parametrize("text", ["", "func.func", "module { %a = stablehlo.add }", "\x00\x01"])
def test_a_damaged_file_is_a_diagnostic(text: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError) as caught:
        run(tmp_path, text)
    assert caught.value.diagnostics[0].code in ("bad-mlir", "no-function")


@pytest.mark.parametrize(("count", "most"), [(0, 5), (5, 5), (6, 5), (400, 5)])
def test_operations_are_counted(count: int, most: int) -> None:
    """Operations in regions count, too; the count ends where it exceeds the limit."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    inner = '"a.b"() : () -> ()\n'
    texts = [inner * count, *([f'"a.c"() ({{ {inner * (count - 1)} }}) : () -> ()'] if count > 1 else [])]
    for text in texts:
        found = parsing_child.count_operations(ir.Module.parse(text, context).operation, most)
        assert found == count if count <= most else most < found <= most + 2


def test_a_missing_file_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="missing-file"):
        read_file(tmp_path / "none.mlir")


def test_the_table_of_operations_is_current() -> None:
    page = STABLEHLO.path.read_text(encoding="utf-8")
    assert page == STABLEHLO.current()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%r = stablehlo.compare LT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>", [3, 2, 1]),
        ("%r = stablehlo.compare GT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>", [1, 2, 3]),
        ("%r = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", [3, 2, 1]),
    ],
)
def test_a_comparator_may_swap_its_elements(body: str, expected: list[float], tmp_path: Path) -> None:
    text = _sorted(body)
    (found,) = run(tmp_path, text, np.array([2, 3, 1], np.float32))
    np.testing.assert_array_equal(found, expected)


CANONICAL = """%z = stablehlo.constant dense<0.0> : tensor<f32>
          %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>""" + "".join(
    f"""
          %{x}n = stablehlo.compare NE, %{x}, %{x}, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %{x}e = stablehlo.compare EQ, %{x}, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %{x}z = stablehlo.select %{x}e, %z, %{x} : tensor<i1>, tensor<f32>
          %{x}c = stablehlo.select %{x}n, %nan, %{x}z : tensor<i1>, tensor<f32>"""
    for x in "ab"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "%r = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>",
            [4, 3, 1, 6, 0, 5, 2],
        ),
        (
            "%r = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>",
            [2, 5, 0, 1, 6, 3, 4],
        ),
        (
            CANONICAL + "%r = stablehlo.compare LT, %ac, %bc, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>",
            [3, 0, 1, 6, 5, 2, 4],
        ),
    ],
    ids=["ascending", "descending", "canonical"],
)
def test_total_orders_have_signs_of_zeros_and_nans(body: str, expected: list[int], tmp_path: Path) -> None:
    x = np.array([0.0, -0.0, np.nan, -np.inf, -np.nan, 1.0, -0.0], np.float32)
    assert np.signbit(x[4]) and not np.signbit(x[2])
    (found,) = run(tmp_path, _sorted(body, 7), x)
    np.testing.assert_array_equal(found.view(np.int32), x[expected].view(np.int32))


def test_constants_of_a_comparator_may_be_outside(tmp_path: Path) -> None:
    """As in programs of `jax.export`."""
    constants, body = CANONICAL.split("%an", 1)
    body = f"%an{body}" + "%r = stablehlo.compare LT, %ac, %bc, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    text = _sorted(body, 4).replace("%y =", f"{constants}\n      %y =")
    x = np.array([1.0, np.nan, -0.0, -2.0], np.float32)
    (found,) = run(tmp_path, text, x)
    np.testing.assert_array_equal(found, x[[3, 2, 0, 1]])


def _sorted(body: str, size: int = 3) -> str:
    return f"""func.func public @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{
      %y = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          {body}
          stablehlo.return %r : tensor<i1>
      }}) : (tensor<{size}xf32>) -> tensor<{size}xf32>
      return %y : tensor<{size}xf32>
    }}"""


@pytest.mark.parametrize(
    "body",
    [
        "%r = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "%r = stablehlo.compare LT, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "%n = stablehlo.negate %a : tensor<f32>\n"
        "          %r = stablehlo.compare LT, %n, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        "%c = stablehlo.constant dense<5.0> : tensor<f32>\n"
        "%f = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "%g = stablehlo.compare GT, %b, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "%m = stablehlo.select %f, %c, %a : tensor<i1>, tensor<f32>\n"
        "%n = stablehlo.select %g, %c, %b : tensor<i1>, tensor<f32>\n"
        "%r = stablehlo.compare LT, %m, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        CANONICAL + "%r = stablehlo.compare LT, %a, %bc : (tensor<f32>, tensor<f32>) -> tensor<i1>",
        CANONICAL.replace("dense<0.0>", "dense<1.0>")
        + "%r = stablehlo.compare LT, %ac, %bc : (tensor<f32>, tensor<f32>) -> tensor<i1>",
    ],
)
def test_other_comparators_are_refused(body: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="compares elements by neither"):
        run(tmp_path, _sorted(body))


@pytest.mark.parametrize(("result", "expected"), [("a", [4, 8, 12, 16]), ("c", [4, 1, 12, 9])])
def test_a_sum_that_a_body_does_not_return_is_not_scattered(result: str, expected: list[float], tmp_path: Path) -> None:
    text = f"""func.func public @main(%x: tensor<4xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<4xf32> {{
      %y = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
        ^bb0(%a: tensor<f32>, %c: tensor<f32>):
          %t = stablehlo.add %a, %c : tensor<f32>
          stablehlo.return %{result} : tensor<f32>
      }}) : (tensor<4xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }}"""
    rows, updates = np.array([[3], [1], [4]], np.int32), np.array([9, 1, 9], np.float32)
    (found,) = run(tmp_path, text, np.array([4, 8, 12, 16], np.float32), rows, updates)
    np.testing.assert_array_equal(found, expected)


def test_a_body_must_return_what_it_combines(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<4xf32>, %s: tensor<f32>) -> tensor<f32> {
      %y = "stablehlo.reduce"(%x, %s) <{dimensions = array<i64: 0>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %t = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %a : tensor<f32>
      }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }"""
    with pytest.raises(DiagnosticError, match="returns something else"):
        run(tmp_path, text, np.ones(4, np.float32), np.zeros((), np.float32))
