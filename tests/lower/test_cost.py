"""The count of floating-point operations, against counts made by hand."""

from __future__ import annotations

import pytest
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.lower.cost import count_bytes, count_operations
from nacre.compiler.readers.language import load_module
from nacre.dialect.dims import evaluate, format_size
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

HEAD = "dim N in 1..64\ndim M in 1..64\n"


def read(text: str) -> Module:
    return load_module(HEAD + text, text=True).module


def count(text: str, **dims: int) -> int:
    return evaluate(count_operations(read(text).functions[0].body), dims)


@pytest.mark.parametrize(
    ("operands", "result", "expression", "expected"),
    [
        # Of N*8 results each is 4 products and 4 sums.
        ("x: f32[N, 4], w: f32[4, 8]", "f32[N, 8]", "x @ w", 2 * 7 * 4 * 8),
        ("x: f32[M, N, 4], w: f32[M, 4, N]", "f32[M, N, N]", "x @ w", 2 * 3 * 7 * 7 * 4),
        # 3 channels and a window of 3 by 3 for each of 5*8*8 results; 6*6 without padding.
        ("x: f32[N, 3, 8, 8], w: f32[5, 3, 3, 3]", "f32[N, 5, 8, 8]", "conv2d(x, w, padding=1)", 2 * 7 * 320 * 27),
        ("x: f32[N, 3, 8, 8], w: f32[5, 3, 3, 3]", "f32[N, 5, 6, 6]", "conv2d(x, w)", 2 * 7 * 180 * 27),
        ("x: f32[N, 3, 8, 8], w: f32[5, 3, 3, 3]", "f32[N, 5, 3, 3]", "conv2d(x, w, stride=2)", 2 * 7 * 45 * 27),
        # Each group sees a part of the channels.
        ("x: f32[N, 4, 8], w: f32[6, 2, 3]", "f32[N, 6, 6]", "conv1d(x, w, groups=2)", 2 * 7 * 36 * 6),
        # max, minus, exp, sum, divided by: five for each element.
        ("x: f32[N, 10]", "f32[N, 10]", "softmax(x)", 5 * 7 * 10),
        ("x: f32[N, M]", "f32[N, M]", "x * 2 + x", 2 * 7 * 3),
        ("x: f32[N, M]", "f32[N]", "sum(x, axis=1)", 7 * 3),
        ("x: f32[N, M]", "f32[N]", "mean(x, axis=1)", 7 * 3 + 7),
        # Nothing is computed.
        ("x: f32[N, M]", "f32[M, N]", "x.T", 0),
        ("x: f32[N, M]", "bool[N, M]", "x < 1", 0),
        ("x: f32[N, M]", "f32[N, M]", "where(x < 1, x, x)", 0),
        ("x: i32[N]", "i32[N]", "x * 2 + x", 0),
        ("x: i32[N]", "f32[N]", "cast(x, f32)", 0),
        ("x: bf16[N]", "bf16[N]", "x + x", 7),
    ],
)
def test_operators(operands: str, result: str, expression: str, expected: int) -> None:
    assert count(f"model m({operands}) -> {result} {{ return {expression} }}\n", N=7, M=3) == expected


def test_steps_of_a_transform_are_counted() -> None:
    """A transform of 64 complex numbers takes between 3 and 5 n log2(n) operations."""
    real, imaginary = (Value(name, TensorType(F32, (7, 64, 1))) for name in ("re", "im"))
    b = Builder(OPERATORS, "n")
    b.apply("fft", (real, imaginary), {"axes": (1,)})
    module = PassManager(parse_pipeline("decompose{having=composite,keep=fourier_axis},butterflies")).run(
        Module("m", functions=(Function("f", (real, imaginary), tuple(b.nodes), b.nodes[-1].outputs, ("r", "i")),))
    )
    found = evaluate(count_operations(module.functions[0].body), {})
    assert 3 < found / (7 * 64 * 6) < 5


@pytest.mark.parametrize("length", [6, 33])
def test_passes_of_a_sort_are_counted_once(length: int) -> None:
    """Elements that are in order need no second pass."""
    assert count(f"model m(x: f32[N, {length}]) -> f32[N, {length}] {{ return sort(x) }}\n", N=7) == 7


MLP = """
block Linear<n, m>(x: f32[N, n]) -> f32[N, m] {
  param weight: f32[m, n]
  param bias: f32[m]
  return x @ weight.T + bias
}

model mlp(x: f32[N, 16]) -> f32[N, 4] {
  use first = Linear<16, 32>
  use second = Linear<32, 4>
  return x |> first |> relu |> second
}
"""
MLP_OPERATIONS = (2 * 16 + 1) * 32 + 32 + (2 * 32 + 1) * 4


def test_mlp_is_a_formula_of_its_dims() -> None:
    operations = count_operations(read(MLP).function("mlp").body)
    assert format_size(operations) == f"{MLP_OPERATIONS}*N"


@pytest.mark.parametrize("level", range(4))
def test_passes_change_the_graph_and_not_the_count(level: int) -> None:
    module = PassManager(parse_pipeline(GRAPH_PASSES[level])).run(read(MLP))
    assert evaluate(count_operations(module.function("mlp").body), {"N": 5}) == 5 * MLP_OPERATIONS


LOOPS = """
model m(x: f32[N]) -> f32[N] {
  repeat i in 0..3 {
    repeat j in 0..4 { x = x + x }
    x = x * x
  }
  return x
}
"""


def test_loops_count_as_often_as_they_run() -> None:
    assert count(LOOPS, N=7) == 3 * (4 + 1) * 7
    module = PassManager(parse_pipeline("unroll-repeat,fuse")).run(read(LOOPS))
    assert "fusion" in {node.op for node in module.functions[0].body}
    assert evaluate(count_operations(module.functions[0].body), {"N": 7}) == 3 * (4 + 1) * 7


def test_work_doubles_with_the_batch() -> None:
    text = "model m(x: f32[N, 8, 16]) -> f32[N, 8, 16] { return layer_norm(gelu(x @ x.mT @ x)) }\n"
    assert count(text, N=2) == 2 * count(text, N=1) > 0


@pytest.mark.parametrize(
    ("operands", "result", "body", "expected"),
    [
        # What is left of a slice, read and written; the rest of `x` is not touched.
        ("x: f32[1000, 64]", "f32[10, 64]", "return x[5:15]", 2 * 10 * 64 * 4),
        ("x: f32[1000, 64]", "f32[64, 10]", "return x[5:15].T", 2 * 10 * 64 * 4),
        ("x: f32[1000, 64]", "f32[10, 64]", "return tanh(x[5:15]) + x[20:30]", 3 * 10 * 64 * 4),
        # Neither more than there is,
        ("x: f32[10, 64]", "f32[20, 64]", "return concat([x, x], axis=0)", 3 * 10 * 64 * 4),
        # nor less than what another reader needs.
        ("x: f32[100, 64]", "f32[100, 64]", "return x[5:6] + x", 2 * 100 * 64 * 4),
    ],
)
def test_bytes_are_those_that_are_read(operands: str, result: str, body: str, expected: int) -> None:
    module = PassManager(parse_pipeline(GRAPH_PASSES[2])).run(read(f"model m({operands}) -> {result} {{ {body} }}\n"))
    (function,) = module.functions
    makers = {value.name: node for node in function.body for value in node.outputs}
    (kernel,) = [node for node in function.body if node.op != "constant"]
    assert count_bytes(kernel, makers) == expected


def test_bytes_of_some_results() -> None:
    b, x = Builder(OPERATORS), Value("x", TensorType(F32, (10, 6)))
    (node,) = [b.nodes[-1] for _ in b.apply("split", [x], {"parts": 2, "axis": 1})[:1]]
    first, second = (value.name for value in node.outputs)
    for outputs, results in ((None, 2), ([first, second], 2), ([first], 1), ([second], 1), ([], 0)):
        assert count_bytes(node, {}, outputs) == 240 + 120 * results
