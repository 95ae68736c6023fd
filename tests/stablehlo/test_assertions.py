"""Assertions about sizes: artifacts check them in each call, and one that dims cannot state is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError

HEAD = """func.func public @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %m = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
"""
TAIL = """      %z = stablehlo.negate %x : tensor<?x4xf32>
      return %z : tensor<?x4xf32>
    }"""


def asserted(relation: str, left: str, right: str) -> str:
    return f"""      %k = stablehlo.compare {relation}, {left}, {right} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%k, {left}) {{error_message = "sizes \\n disagree: {{0}}", has_side_effect = true}} : (tensor<i1>, tensor<i32>) -> ()
"""  # noqa: E501  # a line of MLIR


TRIPLE = "      %r = stablehlo.remainder %n, %three : tensor<i32>\n"
NEXT = "      %p = stablehlo.add %n, %one : tensor<i32>\n"


def arguments_of(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "net.mlir").write_text(HEAD + text + TAIL)
    (function,) = read_file(tmp_path / "net.mlir").module.functions
    return [str(value.type) for value in function.inputs] + [str(symbol) for symbol in function.symbols()]


X, Y = "f32[arg0_0, 4]", "f32[arg1_0, 4]"
DIM_X, DIM_Y = "dim arg0_0 in 1..", "dim arg1_0 in 1.."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (asserted("GE", "%n", "%one"), [X, Y, DIM_X, DIM_Y]),
        (asserted("GE", "%n", "%three"), [X, Y, "dim arg0_0 in 3..", DIM_Y]),
        (asserted("GT", "%three", "%m"), [X, Y, DIM_X, "dim arg1_0 in 1..2"]),
        (asserted("LE", "%m", "%three"), [X, Y, DIM_X, "dim arg1_0 in 1..3"]),
        (asserted("LT", "%three", "%n"), [X, Y, "dim arg0_0 in 4..", DIM_Y]),
        (asserted("EQ", "%n", "%m"), [X, X, DIM_X]),
        (asserted("EQ", "%n", "%three"), ["f32[3, 4]", Y, DIM_Y]),
        (NEXT + asserted("EQ", "%m", "%p"), [X, "f32[arg0_0 + 1, 4]", DIM_X]),
        (NEXT + asserted("EQ", "%p", "%m"), [X, "f32[arg0_0 + 1, 4]", DIM_X]),
        (TRIPLE + asserted("EQ", "%r", "%zero"), [X, Y, "dim arg0_0 in 3.. multiple 3", DIM_Y]),
        (TRIPLE + asserted("EQ", "%zero", "%r"), [X, Y, "dim arg0_0 in 3.. multiple 3", DIM_Y]),
    ],
)
def test_an_assertion_restricts_the_dims(text: str, expected: list[str], tmp_path: Path) -> None:
    assert arguments_of(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (NEXT + asserted("EQ", "%n", "%p"), "failed-assertion", "does not hold: sizes disagree: {0}"),
        (asserted("GE", "%n", "%m"), "data-dependent", "`arg0_0 >= arg1_0`, which no bound, divisor or equality"),
        (asserted("NE", "%n", "%m"), "data-dependent", "asserts a relation that is computed in a call"),
        (
            TRIPLE + asserted("EQ", "%r", "%one"),
            "data-dependent",
            "`arg0_0 - 3*(arg0_0//3) == 1`, which no bound, divisor or equality of a dim states: sizes disagree",
        ),
        (
            asserted("GE", "%n", "%three") + "      %two = stablehlo.constant dense<2> : tensor<i32>\n"
            + asserted("LE", "%n", "%two").replace("%k", "%l"),
            "failed-assertion",
            "does not hold",
        ),
    ],
)  # fmt: skip
def test_an_assertion_that_no_dim_states_is_an_error(text: str, code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError) as caught:
        arguments_of(tmp_path, text)
    (found,) = caught.value.diagnostics
    assert found.code == code and message in found.message


def test_an_assertion_about_data_is_an_error(tmp_path: Path) -> None:
    text = """      %i = stablehlo.constant dense<0> : tensor<i64>
      %s = stablehlo.dynamic_slice %x, %i, %i, sizes = [1, 1] : (tensor<?x4xf32>, tensor<i64>, tensor<i64>) -> tensor<1x1xf32>
      %v = stablehlo.reshape %s : (tensor<1x1xf32>) -> tensor<f32>
      %w = stablehlo.convert %v : (tensor<f32>) -> tensor<i32>
"""  # noqa: E501  # a line of MLIR
    with pytest.raises(DiagnosticError, match="asserts a relation that is computed in a call"):
        arguments_of(tmp_path, text + asserted("GE", "%w", "%one"))


def test_each_call_checks_the_dims(tmp_path: Path) -> None:
    text = TRIPLE + asserted("EQ", "%r", "%zero") + NEXT + asserted("EQ", "%m", "%p").replace("%k", "%l")
    (tmp_path / "net.mlir").write_text(HEAD + text + TAIL)
    model = nacre.compile(tmp_path / "net.mlir", tmp_path / "net.so")

    def rows(count: int) -> Any:
        return np.ones((count, 4), np.float32)

    np.testing.assert_array_equal(model(rows(6), rows(7)), -rows(6))
    for n, m in ((5, 6), (6, 6), (6, 8)):
        with pytest.raises(nacre.NacreError):
            model(rows(n), rows(m))


def test_a_file_of_jax_with_symbolic_dims(tmp_path: Path) -> None:
    """JAX asserts that arguments agree with the polymorphic shapes."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    export = pytest.importorskip("jax.export")
    scope = export.SymbolicScope()
    shapes = [export.symbolic_shape(each, scope=scope) for each in ("2*b, t", "2*b, t + 1")]
    given = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    function = jax.jit(lambda x, y: x[:, :1] + y[:, :1])
    (tmp_path / "net.mlir").write_text(str(export.export(function, platforms=("cpu",))(*given).mlir_module()))
    (entry,) = read_file(tmp_path / "net.mlir").module.functions
    assert [str(value.type) for value in entry.inputs] == ["f32[arg0_0, arg0_1]", "f32[arg0_0, arg0_1 + 1]"]
    assert list(map(str, entry.symbols())) == ["dim arg0_0 in 2.. multiple 2", "dim arg0_1 in 1.."]
