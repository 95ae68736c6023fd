"""Numbers of a model reach its code in their own dtype: no f64 passes through f32, and no integer through a float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.readers.language import load_module
from nacre.dialect.graph import Constant, Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, F64, I64, U64, Array, DType, TensorType

TENTH = 0.1  # as f32 it is off by 1.5e-9
NUMBERS = [TENTH, 1 / 3, -np.pi, 1e300, 5e-324, -0.0, 2.0**53 - 1]
X = np.linspace(-2, 2, 37)
STATIC = {
    "multiply": (lambda b, x: b.multiply(x, b.like(TENTH, x)), X * TENTH),
    "where": (lambda b, x: b.where(b.less(x, b.like(0.0, x)), b.like(TENTH, x), x), np.where(X < 0, TENTH, X)),
    "maximum": (lambda b, x: b.maximum(x, b.like(1 / 3, x)), np.maximum(X, 1 / 3)),
    "clip": (lambda b, x: b.clip(x, low=-TENTH, high=1 / 3), np.clip(X, -TENTH, 1 / 3)),
    "leaky_relu": (lambda b, x: b.leaky_relu(x, slope=TENTH), np.where(X > 0, X, TENTH * X)),
    "pad": (lambda b, x: b.pad(x, widths=((1, 1),), value=TENTH), np.pad(X, 1, constant_values=TENTH)),
    "full": (lambda b, x: b.maximum(x, b.full(shape=(37,), value=TENTH, dtype=F64)), np.maximum(X, TENTH)),
    "row": (lambda b, x: b.multiply(b.max(x, axis=0, keepdims=True), b.like(TENTH, x)), np.asarray([2 * TENTH])),
    "elements": (
        lambda b, x: b.concat(x, b.apply("constant", (), {"value": Constant(np.asarray(NUMBERS))})[0], axis=0),
        np.concatenate([X, NUMBERS]),
    ),
    "array": (
        lambda b, x: b.maximum(x, b.apply("constant", (), {"value": Constant(np.linspace(-1, 1, 37))})[0]),
        np.maximum(X, np.linspace(-1, 1, 37)),
    ),
}
"""Each writes f64 numbers into code, as a scalar, a vector, or data, and computes with one rounding at most."""


def function(name: str, dtype: DType, result: Any, *shape: int) -> Function:
    x = Value("x", TensorType(dtype, shape))
    b = Builder(OPERATORS, "v")
    y = result(b, x)
    return Function(name, (x,), tuple(b.nodes), (y,), ("y",))


def run(functions: Sequence[Function], arguments: Sequence[Array], level: int) -> dict[str, Array]:
    built = build_functions(Module("m", (), (), tuple(functions)), level=level)
    return {f.name: built[f.name]([a])[0] for f, a in zip(functions, arguments, strict=True)}


@pytest.mark.parametrize("level", [0, 2])
def test_floats_of_64_bits(level: int) -> None:
    functions = [function(name, F64, write, 37) for name, (write, _) in STATIC.items()]
    results = run(functions, [X] * len(functions), level)
    for name, (_, expected) in STATIC.items():
        assert results[name].tobytes() == expected.tobytes(), name


INTEGERS: dict[DType, list[int]] = {
    I64: [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**31, 2**32 + 1],
    U64: [2**53 + 1, 2**64 - 1, 2**63, 2**32 + 1],
}


@pytest.mark.parametrize("level", [0, 2])
def test_integers_of_64_bits(level: int) -> None:
    functions, wanted = [], []
    for dtype, numbers in INTEGERS.items():
        for i, number in enumerate(numbers):
            write = lambda b, x, n=number: b.bitwise_xor(x, b.like(n, x))  # noqa: E731  (one of many)
            functions.append(function(f"{dtype}_{i}", dtype, write, 5))
            wanted.append(np.full(5, number, dtype.numpy))
    zeros = [np.zeros_like(a) for a in wanted]
    results = run(functions, zeros, level)
    for f, expected in zip(functions, wanted, strict=True):
        assert np.array_equal(results[f.name], expected), f.name


SOURCE = """language 1

model f(x: f64[3]) -> a: f64[3], b: f32[3], c: f64[3] {
  rate = 0.1
  return x * 0.1, cast(x, f32) * 0.1, x * rate
}
"""


def test_numbers_in_a_source() -> None:
    """A number takes the dtype of what it meets."""
    x = np.asarray([1.0, 3.0, -7.0])
    module = load_module(SOURCE, text=True).module
    for level in (0, 2):
        first, second, third = build_functions(module, level=level)["f"]([x])
        assert np.array_equal(first, x * 0.1) and np.array_equal(third, x * 0.1)
        assert second.dtype == F32.numpy and np.array_equal(second, x.astype(np.float32) * np.float32(0.1))
