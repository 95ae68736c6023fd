"""Comparisons of positions become triangular masks, at every size."""

from __future__ import annotations

import numpy as np
import pytest
from nacre.dialect.graph import Function, Module
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import I32
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

COMPARISONS = {
    "greater_equal": np.greater_equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "less": np.less,
}


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("shift", [0, 1])
def test_comparisons_of_positions(op: str, rows: int, columns: int, shift: int) -> None:
    b = Builder(OPERATORS, "v")
    down, across = (b.iota(shape=(size,), axis=0, dtype=I32) for size in (rows, columns))
    left = b.add(b.reshape(down, shape=(rows, 1)), b.scalar(shift, I32))
    (mask,) = b.apply(op, [left, across], {})
    module = Module("m", functions=(Function("f", (), tuple(b.nodes), (mask,), ("mask",)),))
    after = PassManager(parse_pipeline("canonicalize,dce")).run(module)
    (actual,) = Interpreter(after, lambda parameter: np.empty(0)).run(after.functions[0], [])
    assert np.array_equal(actual, COMPARISONS[op](np.arange(rows)[:, None] + shift, np.arange(columns)))
    if rows > 1 and columns > 1:
        assert "triangular_mask" in {node.op for node in after.functions[0].body}
