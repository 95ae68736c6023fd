"""What the judge lets pass, and what it does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.validate.cut import cut_function
from nacre.compiler.validate.inputs import ORDINARY, SPECIAL, Trial, made_up, random_trial
from nacre.compiler.validate.judge import Difference, Judge, run_trial
from nacre.compiler.validate.tolerance import NoisyInterpreter
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F32, F64, I16, I32, DType, TensorType

sys.path.append(str(Path(__file__).parents[1] / "operators"))
from operator_harness import build_function, examples, write_use

B, T = Symbol("B", 1, 8), Symbol("T", 0, 99)


def rows(count: int = 5, columns: int = 19) -> Module:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (count, columns)))
    y = b.softmax(b.multiply(x, b.scalar(3, F32)), axis=-1)
    return Module("m", functions=(Function("f", (x,), tuple(b.nodes), (y,)),))


def judged(kind: str, change: Any) -> Difference | None:
    module = rows()
    judge = Judge(module, random_trial(module.function("f"), {}, kind), made_up)
    result = judge.expected[0].exact.astype(np.float32)
    change(result)
    return judge.difference([result])


def scale(factor: float) -> Any:
    return lambda r: np.multiply(r, np.float32(factor), out=r)


def test_rounding_passes_and_nothing_more() -> None:
    for kind in (ORDINARY, SPECIAL):
        assert judged(kind, lambda r: None) is None
    assert judged(ORDINARY, scale(1 + 2**-23)) is None
    assert judged(ORDINARY, scale(1 + 2**-16)) is not None
    assert judged(ORDINARY, lambda r: r.__setitem__((2, 3), 0.0)) is not None
    assert judged(ORDINARY, lambda r: r.__setitem__((2, 3), np.nan)) is not None
    assert judged(ORDINARY, lambda r: r.__setitem__((4, 18), np.inf)) is not None


def test_admissible_results_include_the_first_samples() -> None:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (7,)))
    y = b.multiply(x, b.scalar(0.5, F32))
    module = Module("m", functions=(Function("f", (x,), tuple(b.nodes), (y,)),))
    # The product is exact, so that the spread is that of the noise of the samples.
    trial = random_trial(module.function("f"), {})
    (expectation,) = Judge(module, trial, made_up).expected
    spread = expectation.spread.copy()
    assert (spread > 0).any()
    judge = Judge(module, trial, made_up)
    assert judge.difference([np.full(7, 1e9, np.float32)]) is not None and judge.expected[0].spread.max() > spread.max()
    assert judge.expected is judge.expected


def test_no_more_samples_are_drawn_than_a_result_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []

    class Counted(NoisyInterpreter):
        def run(self, *arguments: Any) -> Any:
            drawn.append(self.amplitude)
            return super().run(*arguments)

    monkeypatch.setattr("nacre.compiler.validate.judge.NoisyInterpreter", Counted)
    module = rows()
    trial = random_trial(module.function("f"), {})
    plain = Judge(module, trial, made_up)
    (exact,) = Interpreter(module, made_up).run("f", trial.arguments)
    assert plain.difference([exact]) is None and plain.difference([exact[1:]]) is not None and not drawn
    counts = set()
    for exponent in range(-24, -14):
        judge, thorough = Judge(module, trial, made_up), Judge(module, trial, made_up)
        thorough.sample_more()
        drawn.clear()
        moved = [exact * np.float32(1 + 2.0**exponent)]
        assert (judge.difference(moved) is None) == (thorough.difference(moved) is None)
        assert len(drawn) == 43 or judge.difference(moved) is None
        counts.add(len(drawn))
    assert {1, 43} < counts


@pytest.fixture
def precisions(monkeypatch: pytest.MonkeyPatch) -> list[DType | None]:
    """Records the precision of each run of the reference that a judge makes."""
    made: list[DType | None] = []

    class Counted(Interpreter):
        def run(self, *arguments: Any) -> Any:
            made.append(self.precision)
            return super().run(*arguments)

    monkeypatch.setattr("nacre.compiler.validate.judge.Interpreter", Counted)
    return made


def test_the_reference_runs_in_the_dtypes_of_the_graph_if_exact_results_differ(precisions: list[DType | None]) -> None:
    module = rows()
    trial = random_trial(module.function("f"), {})
    (exact,) = Interpreter(module, made_up, precision=F64).run("f", trial.arguments)
    judge = Judge(module, trial, made_up)
    assert judge.difference([exact.astype(np.float32)]) is None and precisions == [F64]
    assert judge.difference([np.ones_like(exact, np.float32)]) is not None and precisions == [F64, None]


@pytest.mark.parametrize(
    ("name", "runs"), [("tree_ensemble", [F64, None]), ("tree_leaves", [F64, None]), ("exp", [F64])]
)
def test_both_references_run_where_one_of_them_may_refuse_a_call(
    name: str, runs: list[DType | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operators of trees refuse wrong tables, which only their decomposition shows."""
    precisions: list[DType | None] = []

    class Counted(Interpreter):
        def run(self, *arguments: Any) -> Any:
            precisions.append(self.precision)
            return super().run(*arguments)

    monkeypatch.setattr("nacre.compiler.validate.judge.Interpreter", Counted)
    item = next(examples(OPERATORS[name]))
    module = Module("m", functions=(build_function(item.types, write_use(item)),))
    names = tuple(value.name for value in module.function("f").arguments)
    judge = Judge(module, Trial("f", {}, ORDINARY, names, tuple(item.arrays)), made_up)
    assert precisions == runs and not judge.refused


def test_the_element_with_the_largest_error_is_reported() -> None:
    def spoil(r: Any) -> None:
        r[1, 2] += 0.25
        r[3, 4] -= 0.5

    found = judged(ORDINARY, spoil)
    assert found is not None
    assert (found.result, found.index, found.different, found.size) == (0, (3, 4), 2, 95)
    assert abs(found.error - 0.5) < 1e-6 and 0 < found.allowed < 1e-5
    assert str(found).startswith("result 0: ") and str(found).endswith("(2 of 95 differ)")
    wrong = Judge(rows(), random_trial(rows().function("f"), {}), made_up).difference([np.zeros((5, 18), np.float32)])
    assert str(wrong) == "result 0 is float32[5, 18], expected f32[5, 19]"


def test_nan_has_to_be_where_it_belongs() -> None:
    found = False
    module = rows()
    for seed in range(30):
        judge = Judge(module, random_trial(module.function("f"), {}, SPECIAL, seed=seed), made_up)
        exact = judge.expected[0].exact.astype(np.float32)
        if np.isnan(exact).any():
            found = True
            assert judge.difference([exact]) is None
            assert judge.difference([np.nan_to_num(exact)]) is not None
    assert found


def test_integers_are_exact() -> None:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(I32, (7,)))
    y = b.multiply(x, x)
    module = Module("m", functions=(Function("f", (x,), tuple(b.nodes), (y,)),))
    judge = Judge(module, random_trial(module.function("f"), {}), made_up)
    right = judge.expected[0].exact
    assert judge.difference([right]) is None and judge.difference([right + np.int32(1)]) is not None


def test_a_part_of_a_function_computes_the_same() -> None:
    b = Builder(OPERATORS)
    x, unused = Value("x", TensorType(F32, (B.size, T.size, 4))), Value("u", TensorType(F32, (B.size, T.size)))
    flat = b.reshape(b.exp(x), shape=(B.size * T.size, 4))
    total = b.sum(b.relu(flat), axis=0)
    whole = Function("f", (x, unused), tuple(b.nodes), (total,))
    module = Module("m", (B, T), functions=(whole,))
    dims = {"B": 3, "T": 5}
    trial = random_trial(whole, dims)
    kept: dict[str, Any] = {}
    run_trial(Interpreter(module, made_up, observe=lambda n, r: kept.update({n.outputs[0].name: r[0]})), trial)
    part = cut_function(module, whole, [total], [flat], "part")
    (function,) = part.functions
    assert [n.op for n in function.body] == ["relu", "sum"] and function.arguments == (flat,)
    # The shape of its argument tells neither of its dims.
    given = Trial("part", dims, ORDINARY, (flat.name,), (kept[flat.name],))
    assert np.array_equal(run_trial(Interpreter(part, made_up), given)[0], kept[total.name])
    assert cut_function(module, whole, [flat]).functions[0].arguments == (x,)


def test_a_part_takes_the_arguments_that_determine_its_sizes() -> None:
    b = Builder(OPERATORS)
    x, y = Value("x", TensorType(F32, (200,))), Value("y", TensorType(F32, (T.size,)))
    four = b.slice(x, starts=(T.size,), stops=(T.size + 4,))
    assert four.type.is_static
    function = Function("f", (x, y), tuple(b.nodes), (four,))
    assert cut_function(Module("m", (T,), functions=(function,)), function, [four]).functions[0].arguments == (x, y)


def test_sums_of_products_of_three_may_be_ordered_otherwise() -> None:
    b = Builder(OPERATORS)
    x, w, y = (Value(n, TensorType(F32, shape)) for n, shape in (("x", (2,)), ("w", (2, 1)), ("y", (1,))))
    total = b.einsum(x, w, y, equation="i,ij,j->")
    module = Module("m", functions=(Function("f", (x, w, y), tuple(b.nodes), (total,)),))
    arrays = tuple(np.array(a, np.float32) for a in ([1, -1], [[np.inf], [1]], [-np.inf]))
    judge = Judge(module, Trial("f", {}, SPECIAL, ("x", "w", "y"), arrays), made_up)
    assert np.isnan(judge.expected[0].exact)
    # (inf - 1) * -inf
    assert judge.difference([np.array(-np.inf, np.float32)]) is None


def test_an_exact_value_beyond_the_dtype_may_be_an_infinity() -> None:
    b = Builder(OPERATORS)
    x, y = (Value(name, TensorType(F32, (2,))) for name in "xy")
    difference = b.subtract(b.multiply(x, x), b.multiply(y, y))
    module = Module("m", functions=(Function("f", (x, y), tuple(b.nodes), (difference,)),))
    arrays = np.array([1e20, 2], np.float32), np.array([1e24, 1], np.float32)
    judge = Judge(module, Trial("f", {}, ORDINARY, ("x", "y"), arrays), made_up)
    # inf - inf in f32; (x - y) * (x + y) is -inf, as the exact -1e48 is in f32
    assert judge.difference([np.array([np.nan, 3], np.float32)]) is None
    assert judge.difference([np.array([-np.inf, 3], np.float32)]) is None
    assert judge.difference([np.array([np.inf, 3], np.float32)]) is None  # a further term may precede
    assert judge.difference([np.array([1, 3], np.float32)]) is not None
    assert judge.difference([np.array([np.nan, -np.inf], np.float32)]) is not None
    b = Builder(OPERATORS)
    product = b.multiply(x, y)
    module = Module("m", functions=(Function("f", (x, y), tuple(b.nodes), (product,)),))
    judge = Judge(module, Trial("f", {}, ORDINARY, ("x", "y"), arrays), made_up)
    assert judge.difference([np.array([np.inf, 2], np.float32)]) is None
    for wrong in (-np.inf, np.nan, 1e30):
        assert judge.difference([np.array([wrong, 2], np.float32)]) is not None


def test_a_zero_keeps_its_sign_but_in_sums() -> None:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (2, 3)))
    y, z = b.multiply(x, b.scalar(3, F32)), b.sum(x, axis=(1,))
    module = Module("m", functions=(Function("f", (x,), tuple(b.nodes), (y, z)),))
    array = np.array([[-0.0, 0.0, 1.0], [-0.0, -0.0, -0.0]], np.float32)
    judge = Judge(module, Trial("f", {}, ORDINARY, ("x",), (array,)), made_up)
    product, total = array * 3, np.array([1.0, -0.0], np.float32)
    assert judge.difference([product, total]) is None
    assert judge.difference([product, np.array([1.0, 0.0], np.float32)]) is None
    found = judge.difference([np.abs(product), total])
    assert found is not None and (found.result, found.different) == (0, 4)


def product_of(dtype: DType, x: Any, w: Any) -> Judge:
    b = Builder(OPERATORS)
    arguments = tuple(Value(name, TensorType(dtype, (4, 4))) for name in "xw")
    y = b.matmul(*arguments, into=F32)
    module = Module("m", functions=(Function("f", arguments, tuple(b.nodes), (y,)),))
    factors = tuple(np.full((4, 4), number, dtype.numpy) for number in (x, w))
    return Judge(module, Trial("f", {}, ORDINARY, ("x", "w"), factors), made_up)


@pytest.mark.parametrize(("x", "w"), [(2.0**-70, 2.0**-60), (2.0**-128, 2.0**100)])
def test_products_of_bfloats_may_flush_denormal_numbers(x: float, w: float) -> None:
    """The instruction for them treats denormal factors as zero and flushes denormal sums; that of f32 does neither."""
    flushed, wrong = (np.full((4, 4), number, np.float32) for number in (0, 16 * x * w + 2.0**-118))
    assert product_of(BF16, x, w).difference([flushed]) is None
    assert product_of(F32, x, w).difference([flushed]) is not None
    assert product_of(BF16, x, w).difference([wrong]) is not None


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_bits_are_those_of_a_number_in_its_dtype(dtype: DType) -> None:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(dtype, (3, 5)))
    bits = b.bitcast(b.exp(x), dtype=I32 if dtype is F32 else I16)
    again = b.bitcast(bits, dtype=dtype)
    module = Module("m", functions=(Function("f", (x,), tuple(b.nodes), (bits, again)),))
    trial = random_trial(module.function("f"), {})
    plain = run_trial(Interpreter(module, made_up), trial)
    exact = run_trial(Interpreter(module, made_up, precision=F64), trial)
    assert plain is not None and exact is not None and [a.shape for a in exact] == [(3, 5), (3, 5)]
    assert np.abs(plain[0].astype(np.int64) - exact[0]).max() <= 1
    judge = Judge(module, trial, made_up)
    assert judge.difference(list(plain)) is None
    assert judge.difference([plain[0] + np.asarray(1 << 5, plain[0].dtype), plain[1]]) is not None
