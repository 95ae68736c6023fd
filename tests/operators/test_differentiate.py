"""Differentiation of whole graphs: values that are used twice, values that nothing depends on, results by halves."""

from __future__ import annotations

import numpy as np
import pytest
from nacre.dialect.differentiate import GradientError, pull_back
from nacre.dialect.graph import Function, Node, Region, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, I64, Array, TensorType
from operator_harness import interpret

X = Value("x", TensorType(F64, (3, 4)))
W = Value("w", TensorType(F64, (4, 2)))
UNUSED = Value("unused", TensorType(F64, (2,)))
IDS = Value("ids", TensorType(I64, (3, 1)))


def network(b: Builder) -> Value:
    """`x` is used twice, and one branch passes through integers, which carry no gradient."""
    hidden = b.tanh(b.matmul(X, W))
    share = b.softmax(b.add(hidden, b.sum(X, axis=1, keepdims=True)), axis=-1)
    return b.sum(b.multiply(share, b.cast(IDS, dtype=F64)))


def run(nodes: list[Node], results: list[Value], arrays: list[Array]) -> tuple[Array, ...]:
    function = Function("f", (X, W, UNUSED, IDS), tuple(nodes), tuple(results))
    return interpret(function, arrays)


def test_a_network() -> None:
    rng = np.random.default_rng(0)
    arrays: list[Array] = [rng.standard_normal(s) for s in ((3, 4), (4, 2), (2,))]
    arrays.append(np.array([[1], [2], [5]]))
    b = Builder(OPERATORS, "v")
    loss = network(b)
    forward = list(b.nodes)
    gradients = pull_back(b, forward, {loss: b.scalar(1.0, F64)}, [X, W, UNUSED, IDS])
    assert gradients[2:] == [None, None]
    known = [g for g in gradients if g is not None]
    actual = run(b.nodes, known, arrays)
    step = 1e-6
    for number, gradient in enumerate(actual):
        expected = np.zeros_like(gradient)
        for place in np.ndindex(*gradient.shape):
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[number][place] += sign * step
                values.append(float(run(forward, [loss], moved)[0]))
            expected[place] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_gradients_of_two_results_add_up() -> None:
    b = Builder(OPERATORS, "v")
    first, second = b.exp(X), b.negate(X)
    one = b.broadcast_to(b.scalar(1.0, F64), shape=X.type.shape)
    (gradient,) = pull_back(b, list(b.nodes), {first: one, second: one}, [X])
    assert gradient is not None
    x = np.random.default_rng(0).standard_normal((3, 4))
    function = Function("f", (X,), tuple(b.nodes), (gradient,))
    np.testing.assert_allclose(interpret(function, [x])[0], np.exp(x) - 1)


def test_a_value_that_is_its_own_result_gets_the_given_gradient() -> None:
    b = Builder(OPERATORS, "v")
    assert pull_back(b, [], {X: X}, [X, W]) == [X, None]


def test_a_value_that_is_an_operand_twice_gets_its_total_once() -> None:
    """The gradient of `prelu` comes from its decomposition: x * x for a negative x."""
    b = Builder(OPERATORS, "v")
    x = Value("x", TensorType(F64, (2,)))
    result = b.prelu(x, x)
    (gradient,) = pull_back(b, list(b.nodes), {result: b.full(shape=(2,), value=1.0, dtype=F64)}, [x])
    assert gradient is not None
    function = Function("f", (x,), tuple(b.nodes), (gradient,))
    np.testing.assert_allclose(interpret(function, [np.array([-3.0, 2.0])])[0], [-6.0, 1.0])


def test_only_requested_gradients_are_computed() -> None:
    b = Builder(OPERATORS, "v")
    b.matmul(b.sin(X), W)
    nodes = list(b.nodes)
    seed = b.broadcast_to(b.scalar(1.0, F64), shape=(3, 2))
    pull_back(b, nodes, {nodes[-1].output: seed}, [W])
    assert "cos" not in [node.op for node in b.nodes]


def test_a_loop_is_refused() -> None:
    b = Builder(OPERATORS, "v")
    result = b.fresh(X.type)
    argument = Value("a", X.type)
    loop = Node("repeat", (X,), (result,), (("count", 2),), (Region((argument,), (), (argument,)),))
    with pytest.raises(GradientError, match="repeat"):
        pull_back(b, [loop], {result: X}, [X])
