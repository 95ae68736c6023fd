"""The reference interpreter finds out once what stays the same between runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nacre.dialect import requirements
from nacre.dialect.dims import DimError, Symbol, add
from nacre.dialect.graph import Function, Module, Node, Parameter, Value
from nacre.dialect.interpreter import Interpreter, MemoryLimitError
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.remembered import KeptParameters, KeptResults, by_identity
from nacre.dialect.types import F32, F64, DType, TensorType

N = Symbol("N", 0, 100)


def shortened(name: str, by: int) -> Function:
    """Zeros, so many fewer than the elements of its argument."""
    x = Value("x", TensorType(F32, (N.size,)))
    b = Builder(OPERATORS, "t")
    y = b.full(shape=(add(N.size, -by),), value=0.0, dtype=F32)
    return Function(name, (x,), tuple(b.nodes), (y,), ("y",))


def test_requirements_are_derived_once_for_each_function(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[str] = []
    find_values = requirements._typed_values

    def watched(function: Function) -> Iterator[tuple[tuple[Value, ...], Node | None]]:
        derived.append(function.name)
        return find_values(function)

    monkeypatch.setattr(requirements, "_typed_values", watched)
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


def test_parameters_are_read_once_for_interpreters_that_share_them() -> None:
    """In each precision; not beyond the limit, nor by others."""
    weight = Parameter("w", TensorType(F32, (3,)))
    y = Value("y", weight.type)
    node = Node("parameter", (), (y,), (("name", "w"),))
    module = Module("m", (), (weight,), (Function("f", (), (node,), (y,), ("y",)),))
    read: list[str] = []

    def load(parameter: Parameter) -> np.ndarray:
        read.append(parameter.name)
        return np.array([0.1, 2, 3], np.float32)

    kept = KeptParameters(most=3 * 4 + 3 * 8)
    for precision in (None, F64, None, F64):
        (result,) = Interpreter(module, load, precision=precision, kept=kept).run("f", ())
        assert result.dtype == (precision or F32).numpy
        np.testing.assert_array_equal(result, load(weight))
        del read[-1]
    assert read == ["w", "w"]
    for most in (0, 11, 12):
        read.clear()
        kept = KeptParameters(most)
        for _ in range(2):
            Interpreter(module, load, kept=kept).run("f", ())
        assert len(read) == (1 if most == 12 else 2), most


def test_results_are_remembered_by_identity() -> None:
    computed: list[int] = []

    def compute(subject: list[int]) -> int:
        computed.append(subject[0])
        return subject[0]

    remembered = by_identity(compute, most=2)
    first, second, third = [1], [1], [3]
    assert [remembered(each) for each in (first, second, first, second)] == [1, 1, 1, 1]
    assert computed == [1, 1]
    assert [remembered(each) for each in (third, first, third)] == [3, 1, 3]
    assert computed == [1, 1, 3, 1]


def _chain(value: float, wide: bool = False) -> Module:
    """Returns `f(x) = x * full(value)`, in f64 with `wide`."""
    dtype = F64 if wide else F32
    x, full, product = (Value(name, TensorType(dtype, (N.size,))) for name in ("x", "full", "product"))
    nodes = (
        Node("full", (), (full,), (("value", value), ("shape", (N.size,)), ("dtype", dtype))),
        Node("multiply", (x, full), (product,)),
    )
    return Module("m", (N,), (), (Function("f", (x,), nodes, (product,), ("product",)),))


def test_results_of_equal_nodes_are_kept() -> None:
    computed: list[str] = []
    results = KeptResults()

    class Counting(Interpreter):
        def _run_operator(self, node: Node, *rest: Any) -> Any:
            computed.append(node.op)
            return super()._run_operator(node, *rest)

    def run(module: Module, x: np.ndarray) -> list[str]:
        computed.clear()
        (found,) = Counting(module, lambda parameter: x, results=results).run("f", (x,))
        (expected,) = Interpreter(module, lambda parameter: x).run("f", (x,))
        assert found.tobytes() == expected.tobytes() and found.dtype == expected.dtype
        return list(computed)

    # More bytes than what is recognized by content; three elements are recognized.
    x = np.arange(1, 31, dtype=np.float32)
    assert run(_chain(0.0), x) == ["full", "multiply"]
    assert run(_chain(0.0), x) == []
    assert run(_chain(0.0), x.copy()) == ["multiply"]
    assert run(_chain(0.0), x[:3]) == ["full", "multiply"]
    assert run(_chain(0.0), x[:3].copy()) == []
    assert run(_chain(-0.0), x) == ["full", "multiply"]
    assert run(_chain(0.0, wide=True), x.astype(np.float64)) == ["full", "multiply"]
    results.next_graph()
    assert run(_chain(0.0), x) == []
    results.next_graph()
    assert run(_chain(-0.0), x) == ["full", "multiply"]


def test_a_dim_of_size_1_is_not_squeezed() -> None:
    d = Symbol("D", 1, 3)
    x = Value("x", TensorType(F32, (d.size, 1, 3)))
    b = Builder(OPERATORS)
    results = b.apply("squeeze", [x])
    function = Function("f", (x,), tuple(b.nodes), results, ("y",))
    runs = Interpreter(Module("m", (d,), (), (function,)), lambda parameter: np.zeros(()))
    for size in (1, 2):
        (found,) = runs.run(function, [np.zeros((size, 1, 3), np.float32)])
        assert found.shape == (size, 3)


@pytest.mark.parametrize(
    ("precision", "size"), [(None, "4,503,599,627,370,496 bytes, f32"), (F64, "9,007,199,254,740,992 bytes, f64")]
)
def test_result_that_cannot_be_allocated_is_an_error(precision: DType | None, size: str) -> None:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (1,)))
    y = b.tile(x, repeats=(1 << 50,))
    function = Function("f", (x,), tuple(b.nodes), (y,), ("y",))
    module = Module("m", functions=(function,))
    expected = rf"memory for `tile` cannot be allocated: a result takes {size}\[1125899906842624\]"
    with pytest.raises(MemoryLimitError, match=expected):
        Interpreter(module, lambda parameter: np.zeros(()), precision=precision).run("f", [np.zeros(1, np.float32)])
