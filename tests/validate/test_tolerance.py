"""What operators say of their rounding is so; steps are taken where they may be, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nacre.compiler.validate.inputs import ORDINARY, Trial, made_up, random_array
from nacre.compiler.validate.judge import Judge, run_trial
from nacre.compiler.validate.tolerance import rounding_units
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F32, I8, TensorType, dtype_of

COMPUTED = [
    o for o in OPERATORS.values() if o.lower is not None and not any(map(o.has, ("structure", "internal", "factoring")))
]
FACTORING = [o for o in OPERATORS.values() if o.has("factoring")]


def uses(operator: Operator) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Operands in float32 and attributes of the operator's cases."""
    rng = np.random.default_rng(5)
    for case in operator.cases:
        arrays = []
        for number, shape in enumerate(case.shapes):
            spec = operator.operands[min(number, len(operator.operands) - 1)]
            dtype = F32 if F32 in spec.dtypes else spec.dtypes[0]
            if number in case.arrays:
                array = case.arrays[number]
            elif dtype.is_float:
                array = rng.uniform(*case.domain, shape).astype(dtype.numpy)
            else:
                array = random_array(rng, dtype, shape, ORDINARY)
            arrays.append(array.astype(F32.numpy) if dtype_of(array).is_float else array)
        if case.dtypes is None or F32 in case.dtypes:
            yield arrays, operator.complete(case.attributes)


@pytest.mark.parametrize("operator", COMPUTED, ids=lambda o: o.name)
def test_results_are_rounded_as_the_operator_says(operator: Operator) -> None:
    for arrays, attributes in uses(operator):
        wide = [a.astype(np.float64) if dtype_of(a).is_float else a for a in arrays]
        with np.errstate(all="ignore"):
            narrow = operator.reference(*arrays, **attributes)
            exact = operator.reference(*wide, **attributes)
        for got, want in zip(*(r if isinstance(r, tuple) else (r,) for r in (narrow, exact)), strict=True):
            if dtype_of(np.asarray(got)) is F32:
                allowed = rounding_units(operator, wide, np.asarray(want, np.float64), attributes) * F32.epsilon
                apart = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64))
                np.testing.assert_array_less(apart, allowed + 0.51 * F32.epsilon * np.abs(want) + 1e-44)


def test_products_of_opposite_signs_are_rounded_too() -> None:
    """The weights of a block are integers of both signs: their sum is 0, and its terms are 127 * 0.25."""
    x, scales = np.ones((1, 64), np.float32), np.full((1, 2), 0.25, np.float16)
    codes = np.tile(np.asarray([127, -127], np.int8), 32).reshape(1, 2, 32)
    operator = OPERATORS["block_matmul"]
    exact = np.asarray(operator.reference(x, codes, scales, bits=8, rounded="f32"), np.float64)
    assert exact.item() == 0
    units = rounding_units(operator, [x, codes, scales], exact, {"bits": 8, "rounded": "f32"})
    assert 64 * 127 * 0.25 < units.item() < 4 * 64 * 127 * 0.25
    # The sums of blocks of a product of integers are exact: they are 0, and nothing is rounded.
    ones = np.ones((1, 64), np.uint8)
    units = rounding_units(OPERATORS["block_dot"], [ones, codes, scales], exact, {"bits": 8, "zero": 0})
    assert units.item() == 0


@pytest.mark.parametrize("operator", FACTORING, ids=lambda o: o.name)
def test_factorizations_are_exact_for_operands_nearby(operator: Operator) -> None:
    """Operands that are a few roundings apart give results that are as far apart as those of f32 and f64."""
    rng = np.random.default_rng(3)
    for arrays, attributes in uses(operator):
        exact = [a.astype(np.float64) for a in arrays]
        if not all(a.size for a in exact):
            continue

        def results(operands: list[Any], attributes: dict[str, Any] = attributes) -> list[Any]:
            with np.errstate(all="ignore"):
                found = operator.reference(*operands, **attributes)
            return [np.asarray(r, np.float64) for r in (found if isinstance(found, tuple) else (found,))]

        wanted, narrow = results(exact), results(arrays)
        apart = [np.zeros_like(w) for w in wanted]
        for _ in range(32):
            moved = [a + 4 * F32.epsilon * np.abs(a).max() * rng.uniform(-1, 1, a.shape) for a in exact]
            apart = [np.fmax(d, np.abs(m - w)) for d, m, w in zip(apart, results(moved), wanted, strict=True)]
        for got, want, allowed in zip(narrow, wanted, apart, strict=True):
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
            known = np.isfinite(want)
            assert (np.abs(got - want) <= allowed.max() + 1e-30)[known].all()


def test_operators_with_a_dtype_attribute_declare_their_rounding() -> None:
    """Otherwise the measure would not be rounded there."""
    for operator in OPERATORS.values():
        names_dtype = any(a.kind == "dtype" and a.name != "into" for a in operator.attributes)
        if names_dtype and operator.operands and any(d.is_differentiable for d in operator.operands[0].dtypes):
            assert operator.has("stepped"), operator.name


def judged(operand: Any, change: int) -> bool:
    """Returns whether an error of so many steps in one number of `cast(2 * x + 0.1, bf16)` is reported."""
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (operand.size,)))
    y = b.add(b.multiply(x, b.scalar(2, F32)), b.scalar(0.1, F32))
    z = b.cast(y, dtype=BF16)
    module = Module("m", functions=(Function("f", (x,), tuple(b.nodes), (z,)),))
    trial = Trial("f", {}, ORDINARY, ("x",), (operand,))
    result = run_trial(Interpreter(module, made_up), trial)[0].copy()
    result.view(np.int16)[0] += change
    return Judge(module, trial, made_up).difference([result]) is not None


def test_a_rounding_error_may_become_a_step_where_it_is_near_one() -> None:
    # 2 * x + 0.1 is 1.5 + 2**-8, half way between 1.5 and the next number of bf16, but for rounding.
    near = np.full(40, (1.5 + 2.0**-8 - 0.1) / 2, np.float32)
    far = np.full(40, (1.5 + 2.0**-9 - 0.1) / 2, np.float32)
    assert not judged(near, 0) and not judged(far, 0)
    assert judged(far, 1), "a whole step"
    assert any(not judged(near, change) for change in (-1, 1))
    assert judged(near, 4) and judged(near, -4)


def quantized(seed: int) -> tuple[Judge, Any, Any]:
    """A judge of codes and of their products with a weight, the codes of the reference, and the exact places of these
    among the steps."""
    rng = np.random.default_rng(seed)
    b = Builder(OPERATORS)
    x, w = Value("x", TensorType(F32, (30, 400))), Value("w", TensorType(F32, (400, 20)))
    codes = b.quantize(x, b.scalar(0.07, F32), dtype=I8)
    product = b.matmul(b.dequantize(codes, b.scalar(0.07, F32)), w)
    function = Function("f", (x, w), tuple(b.nodes), (codes, product), ("codes", "product"))
    module = Module("m", functions=(function,))
    arrays = (rng.standard_normal((30, 400)).astype(np.float32), rng.standard_normal((400, 20)).astype(np.float32))
    # Ties, but for rounding.
    arrays[0][3, :200] = (np.arange(-100, 100) + 0.5) * 0.07
    judge = Judge(module, Trial("f", {}, ORDINARY, ("x", "w"), arrays), made_up)
    (right, _) = run_trial(Interpreter(module, made_up), judge.trial)
    return judge, right, arrays[0].astype(np.float64) / np.float64(np.float32(0.07))


def products(judge: Judge, codes: Any) -> Any:
    return (codes * np.float32(0.07)).astype(np.float32) @ judge.trial.arguments[1]


def test_a_code_may_be_the_next_one_at_a_tie_alone() -> None:
    judge, right, places = quantized(0)
    assert judge.difference([right, products(judge, right)]) is None
    # Divided by the scale: neither with the roundings of the reference nor with none.
    other = np.clip(np.rint(judge.trial.arguments[0] / np.float32(0.07)), -128, 127).astype(np.int8)
    assert ((other != right) & (other != np.rint(places))).any()
    assert judge.difference([other, products(judge, other)]) is None
    far = np.abs(places - np.rint(places))
    clear = np.unravel_index(int(far.argmin()), far.shape)
    assert abs(int(right[clear])) < 127
    wrong = right.copy()
    wrong[clear] += 1
    found = judge.difference([wrong, products(judge, right)])
    assert found is not None and (found.result, found.different) == (0, 1)
    found = judge.difference([right, products(judge, wrong)])
    assert found is not None and found.result == 1 and found.different <= 20


def test_a_sum_of_terms_beyond_the_range_has_any_result_everywhere() -> None:
    """Terms beyond the range in both directions: a sum that rounds once in each step keeps the first infinity, another
    one is NaN. Random results for each element would leave some of a million out."""
    b = Builder(OPERATORS)
    x, y = Value("x", TensorType(F32, (2, 1000))), Value("y", TensorType(F32, (2, 1000)))
    product = b.multiply(b.einsum(x, y, equation="ki,kj->ij"), b.scalar(-np.inf, F32))
    module = Module("m", functions=(Function("f", (x, y), tuple(b.nodes), (product,)),))
    arrays = (np.repeat(np.array([[3e25], [-2e25]], np.float32), 1000, axis=1), np.full((2, 1000), 1e25, np.float32))
    judge = Judge(module, Trial("f", {}, ORDINARY, ("x", "y"), arrays), made_up)
    for value in (np.inf, -np.inf, np.nan):
        assert judge.difference([np.full((1000, 1000), value, np.float32)]) is None, value
    assert judge.difference([np.zeros((1000, 1000), np.float32)]) is not None
