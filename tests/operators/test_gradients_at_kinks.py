"""Gradients where finite differences say nothing: at kinks, at ties, at zeros, and far out where a branch overflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nacre.dialect.graph import Value
from nacre.dialect.operator import Builder, Use
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, TensorType, dtype_of
from operator_harness import build_function, interpret

INF = float("inf")

KINKS: tuple[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]], ...] = (
    ("relu", ([-1.0, 0.0, 1.0],), {}, ([0.0, 0.0, 1.0],)),
    ("relu6", ([0.0, 3.0, 6.0],), {}, ([0.0, 1.0, 0.0],)),
    ("clip", ([-1.0, 0.0, 1.0, 2.0],), {"low": 0, "high": 1}, ([0.0, 1.0, 1.0, 0.0],)),
    ("abs", ([-2.0, 0.0, 2.0],), {}, ([-1.0, 0.0, 1.0],)),
    ("maximum", ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), {}, ([0.0, 0.5, 1.0], [1.0, 0.5, 0.0])),
    ("minimum", ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), {}, ([1.0, 0.5, 0.0], [0.0, 0.5, 1.0])),
    ("max", ([3.0, 1.0, 3.0],), {}, ([0.5, 0.0, 0.5],)),
    ("min", ([3.0, 1.0, 3.0],), {}, ([0.0, 1.0, 0.0],)),
    ("prod", ([0.0, 2.0, 3.0],), {}, ([6.0, 0.0, 0.0],)),
    ("prod", ([0.0, 2.0, 0.0],), {}, ([0.0, 0.0, 0.0],)),
    # The results are 0, 0, 0: d(x0 + x0 x1 + x0 x1 x2) = (1 + x1 + x1 x2, x0 (1 + x2), x0 x1).
    ("cumprod", ([0.0, 2.0, 3.0],), {}, ([9.0, 0.0, 0.0],)),
    ("cumprod", ([2.0, 0.0, 3.0],), {}, ([1.0, 8.0, 0.0],)),
    ("norm", ([0.0, 0.0],), {}, ([0.0, 0.0],)),
    ("norm", ([3.0, -4.0],), {"order": INF}, ([0.0, -1.0],)),
    ("standard_deviation", ([2.0, 2.0],), {}, ([0.0, 0.0],)),
    ("power", ([0.0, 0.0, 0.0], [2.0, 1.0, 0.0]), {}, ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0])),
    ("power", ([-2.0], [3.0]), {}, ([12.0], [np.nan])),
    ("elu", ([800.0, -800.0],), {}, ([1.0, 0.0],)),
    ("selu", ([800.0],), {}, ([1.0507009873554805],)),
    ("celu", ([800.0, -800.0],), {}, ([1.0, 0.0],)),
    ("softplus", ([800.0, -800.0],), {}, ([1.0, 0.0],)),
    ("log_sigmoid", ([800.0, -800.0],), {}, ([0.0, 1.0],)),
    ("sigmoid", ([800.0, -800.0],), {}, ([0.0, 0.0],)),
    ("silu", ([800.0, -700.0],), {}, ([1.0, 0.0],)),
    ("mish", ([800.0, -700.0],), {}, ([1.0, 0.0],)),
    ("gelu", ([100.0, -100.0],), {}, ([1.0, 0.0],)),
    ("gelu", ([100.0, -100.0],), {"approximate": "tanh"}, ([1.0, 0.0],)),
    ("logsumexp", ([1000.0, 1000.0],), {}, ([0.5, 0.5],)),
    ("sum", ([],), {}, ([],)),
    ("floor_divide", ([7.0], [2.0]), {}, ([0.0], [0.0])),
    ("remainder", ([7.0], [2.0]), {}, ([1.0], [-3.0])),
)


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "expected"), KINKS, ids=[f"{row[0]}-{i}" for i, row in enumerate(KINKS)]
)
def test_gradient(name: str, operands: Sequence[Any], attributes: dict[str, Any], expected: Sequence[Any]) -> None:
    operator = OPERATORS[name]
    arrays = [np.array(x, np.float64) for x in operands]

    def write(b: Builder, inputs: tuple[Value, ...]) -> list[Value]:
        outputs = b.apply(name, inputs, attributes)
        one = b.broadcast_to(b.scalar(1.0, F64), shape=outputs[0].type.shape)
        assert operator.gradient is not None
        parts = operator.gradient(b, Use(inputs, outputs, operator.complete(attributes), (one,)))
        return [b.multiply(x, b.like(0.0, x)) if p is None else p for p, x in zip(parts, inputs, strict=True)]

    function = build_function([TensorType(F64, a.shape) for a in arrays], write)
    for actual, wanted in zip(interpret(function, arrays), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12)


def test_a_linear_leaf_that_reads_nan_moves_its_fallback_alone() -> None:
    """Two rows and two trees; leaf 1 reads the features 1 and 0. Its first term alone counts in leaf 2."""
    x = np.array([[2.0, 3.0], [np.nan, 5.0]])
    leaves = np.array([[[1, 2]], [[1, -1]]], np.int32)
    features = np.array([[-1, 0], [1, 0], [1, -1]], np.int32)
    coefficients = np.array([[9.0, 9.0], [0.5, 4.0], [0.25, 9.0]])
    arrays = [x, leaves, np.zeros(3), np.ones(3), features, coefficients, np.zeros(1)]
    operator = OPERATORS["linear_tree_sum"]

    def write(b: Builder, inputs: tuple[Value, ...]) -> list[Value]:
        outputs = b.apply(operator.name, inputs, {})
        one = b.broadcast_to(b.scalar(1.0, F64), shape=outputs[0].type.shape)
        assert operator.gradient is not None
        return [p for p in operator.gradient(b, Use(inputs, outputs, {}, (one,))) if p is not None]

    found = interpret(build_function([TensorType(dtype_of(a), a.shape) for a in arrays], write), arrays)
    expected: list[Any] = [
        [[4.0, 0.5 + 0.25], [0.0, 0.25]],
        [0.0, 1.0, 2.0],
        [0.0, 1.0, 0.0],
        [[0.0, 0.0], [3.0, 2.0], [3.0 + 5.0, 0.0]],
        [2.0],
    ]
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
