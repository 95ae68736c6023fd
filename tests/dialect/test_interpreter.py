"""The reference interpreter finds out once what stays the same between runs."""

from __future__ import annotations

import numpy as np
import pytest
from nacre.dialect import interpreter
from nacre.dialect.dims import DimError, Symbol, add
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.requirements import Requirement, requirements
from nacre.dialect.types import F32, TensorType

N = Symbol("N", 0, 100)


def shortened(name: str, by: int) -> Function:
    """Zeros, so many fewer than the elements of its argument."""
    x = Value("x", TensorType(F32, (N.size,)))
    b = Builder(OPERATORS, "t")
    y = b.full(shape=(add(N.size, -by),), value=0.0, dtype=F32)
    return Function(name, (x,), tuple(b.nodes), (y,), ("y",))


def test_requirements_are_derived_once_for_each_function(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[str] = []

    def watched(function: Function) -> tuple[Requirement, ...]:
        derived.append(function.name)
        return requirements(function)

    monkeypatch.setattr(interpreter, "requirements", watched)
    first, second = shortened("first", 2), shortened("second", 5)
    runs = Interpreter(Module("m", (N,), (), (first, second)), lambda parameter: np.zeros(()))
    for size in (5, 6, 7):
        for function, by in ((first, 2), (second, 5)):
            (result,) = runs.run(function, [np.arange(size, dtype=np.float32)])
            assert result.shape == (size - by,)
    assert derived == ["first", "second"]
    with pytest.raises(DimError):
        runs.run("second", [np.zeros(4, np.float32)])
    # Another function of the same name has requirements of its own.
    with pytest.raises(DimError):
        runs.run(shortened("first", 9), [np.zeros(6, np.float32)])
