"""Names of kernels: their operators where they are few, else their kind."""

from __future__ import annotations

import pytest
from nacre.compiler.lower.kinds import name_operators
from nacre.dialect.graph import Node, Region, Value
from nacre.dialect.types import F32, TensorType

X = Value("x", TensorType(F32, (2, 3)))


@pytest.mark.parametrize(
    ("operators", "name"),
    [
        (["exp"], "exp"),
        (["exp", "tanh", "abs", "sqrt"], "exp_tanh_abs_sqrt"),
        (["exp", "constant", "tanh", "abs", "sqrt"], "exp_tanh_abs_sqrt"),
        (["exp", "tanh", "abs", "sqrt", "relu"], "elements"),
        (["exp", "tanh", "abs", "softmax", "relu"], "rows"),
        (["constant"], "other"),
    ],
)
def test_names(operators: list[str], name: str) -> None:
    body = tuple(Node(op, (X,) if op != "constant" else (), (X,)) for op in operators)
    assert name_operators(Node("fusion", (X,), (X,), (), (Region((X,), body, (X,)),))) == name
    if len(operators) == 1:
        assert name_operators(body[0]) == name
