"""Every slot of every operator: inference, reference, gradient, decomposition, properties; each for all its cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from nacre.dialect.dims import DimError
from nacre.dialect.operator import InferenceError, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import ANY, BF16, F16, F32, F64, Array, dtype_of
from operator_harness import (
    NAMES,
    TESTED,
    Example,
    Write,
    attribute_sizes,
    build_function,
    case_dtypes,
    difference,
    differentiable,
    example,
    examples,
    interpret,
    operand_at,
    substituted,
    symbolic,
    write_decomposition,
    write_gradient,
    write_use,
)

DIFFERENTIABLE = [o for o in TESTED if o.gradient and o.operands]

OF_BITS = frozenset({"bitcast"})
"""Operators that read the representation of numbers, which differs in float64."""
with_operator = pytest.mark.parametrize("operator", TESTED, ids=NAMES)
KNOWN_SIZES = {"constant", "tril_indices", "triu_indices"}
"""Operators whose sizes are known at compile time alone."""

ROUNDED_BETWEEN = {"attention", "cached_attention", "paged_attention"}
"""Operators whose parts are rounded to f16 or bf16 one by one: its matrices are large, and f32 would double them."""


def check(failures: list[str]) -> None:
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:12])


@with_operator
def test_reference_has_the_inferred_type(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        inferred = [(t.dtype, t.shape) for t in operator.check(item.types, item.case.attributes)]
        actual = [(dtype_of(a), a.shape) for a in item.expected]
        if inferred != actual:
            failures.append(f"{item}: inferred {inferred}, the reference gives {actual}")
    check(failures)


@with_operator
def test_inference_with_symbolic_sizes(operator: Operator) -> None:
    failures, accepted = [], 0
    for number, case in enumerate(operator.cases):
        item = example(operator, number, case_dtypes(operator, case)[0])
        expected = [(dtype_of(a), a.shape) for a in item.expected]
        for variant in symbolic(item):
            inferred = variant.infer()
            if inferred is None:
                continue
            accepted += 1
            if substituted(inferred, variant.values) != expected:
                failures.append(f"{variant}: inferred {inferred}, expected {expected}")
    check(failures)
    assert accepted or operator.name in KNOWN_SIZES, "no case can be inferred with symbolic sizes"


@with_operator
def test_reference_agrees_with_float64(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        if item.dtype.is_float and operator.name not in OF_BITS:
            message = item.disagreement(item.expected, item.in_float64())
            failures += [f"{item}: {message}"] if message else []
    check(failures)


@pytest.mark.parametrize("operator", [o for o in TESTED if o.decompose], ids=[o.name for o in TESTED if o.decompose])
def test_decomposition_equals_the_reference(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        function = build_function(item.types, write_decomposition(item))
        expected = operator.check(item.types, item.case.attributes)
        assert tuple(v.type for v in function.results) == expected, (item, function.results)
        message = item.disagreement(interpret(function, item.arrays), item.expected)
        failures += [f"{item}: {message}"] if message else []
        if item.dtype is case_dtypes(operator, item.case)[-1]:
            failures += symbolic_failures(item, write_decomposition, item.arrays, item.expected)
    check(failures)


@with_operator
def test_half_floats_are_rounded_once(operator: Operator) -> None:
    """f16 and bf16 are computed in f32: half a unit in the last place of the largest result, and little more.

    Results in f32 are left to the case's tolerance.
    """
    failures = []
    for item in examples(operator):
        is_half = item.dtype in (F16, BF16) and operator.name not in OF_BITS
        if is_half and all(dtype_of(a) != F32 for a in item.expected):
            results = {"reference": item.expected}
            if operator.decompose and operator.name not in ROUNDED_BETWEEN:
                function = build_function(item.types, write_decomposition(item))
                results["decomposition"] = interpret(function, item.arrays)
            for name, result in results.items():
                for actual, expected in zip(result, item.in_float64(), strict=True):
                    message = difference(actual, expected, 0.6)
                    failures += [f"{item}: {name}: {message}"] if message else []
    check(failures)


def symbolic_failures(
    item: Example, write: Callable[[Example], Write], arrays: Sequence[Array], expected: Sequence[Array]
) -> list[str]:
    """Where a graph that is written for symbolic sizes gives something else than `expected`.

    Arrays after the operands are gradients of the results that are floats.
    """
    failures = []
    for variant in symbolic(item):
        results = variant.infer()
        if results is None or not variant.is_bound:
            continue
        seeds = [t for t in results if t.dtype.is_float] if len(arrays) > len(item.arrays) else []
        function = build_function((*variant.types, *seeds), write(variant.item))
        try:
            message = item.disagreement(interpret(function, arrays, F64 if seeds else None), expected)
        except DimError as error:
            message = f"the sizes do not bind: {error}"
        failures += [f"{variant}: {message}"] if message else []
    return failures


def smooth_arrays(item: Example) -> list[Array]:
    """The example's operands, floats as float64 and moved off the round numbers, where functions have kinks."""
    rng = np.random.default_rng(item.number)
    low, high = item.case.domain
    arrays = []
    for position, array in enumerate(item.arrays):
        if dtype_of(array).is_float and position not in item.case.arrays:
            # Drawn toward the middle first, so that all stay inside and no two meet.
            inner = (array.astype(np.float64) - (low + high) / 2) * 0.96
            arrays.append(inner + (low + high) / 2 + rng.uniform(-0.02, 0.02, array.shape) * (high - low))
        else:
            arrays.append(array.astype(np.float64) if dtype_of(array).is_float else array)
    return arrays


def gradient_failures(item: Example) -> list[str]:
    """Compares the gradient of `sum(result * seed)` with its central differences, all in float64."""
    arrays = smooth_arrays(item)
    rng = np.random.default_rng(1)
    use = build_function(item.types, write_use(item))
    outputs = interpret(use, arrays, F64)
    floats = [i for i, v in enumerate(use.results) if v.type.dtype.is_float]
    seeds = [rng.standard_normal(outputs[i].shape) for i in floats]
    if not floats:
        return []

    def loss(operands: Sequence[Array]) -> float:
        results = interpret(use, operands, F64)
        return float(sum(np.sum(results[i].astype(np.float64) * s) for i, s in zip(floats, seeds, strict=True)))

    seed_types = [use.results[i].type for i in floats]
    write = write_gradient(item, len(arrays))
    function = build_function((*item.types, *seed_types), write)
    gradients = interpret(function, [*arrays, *seeds], F64)
    failures = []
    # The constants of a formula have the dtype that its graph is built for.
    step, relative = 1e-5, max(1e-6, 2 * item.dtype.epsilon)
    magnitude = sum(float(np.sum(np.abs(outputs[i]) * np.abs(s))) for i, s in zip(floats, seeds, strict=True))
    for operand, gradient in zip(differentiable(item), gradients, strict=True):
        array = arrays[operand]
        if gradient.shape != array.shape:
            failures.append(f"{item}: gradient of operand {operand} has shape {gradient.shape}")
            continue
        if array.size <= 8:
            directions = list(np.eye(array.size).reshape(-1, *array.shape)) if array.size else []
        else:
            directions = list(rng.standard_normal((3, *array.shape)))
        for direction in directions:
            forth, back = ([*arrays[:operand], array + d * direction, *arrays[operand + 1 :]] for d in (step, -step))
            expected = (loss(forth) - loss(back)) / (2 * step)
            actual = float(np.sum(gradient * direction))
            allowed = relative * (float(np.sum(np.abs(gradient * direction))) + magnitude * 1e-4 + 1e-2)
            if not abs(expected - actual) <= allowed and not (np.isnan(actual) and np.isnan(expected)):
                failures.append(f"{item}: operand {operand}: {actual!r}, differences give {expected!r}")
                break
    if item.dtype is F64:
        failures += symbolic_failures(item, lambda v: write_gradient(v, len(arrays)), [*arrays, *seeds], gradients)
    return failures


@pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=[o.name for o in DIFFERENTIABLE])
def test_gradient_agrees_with_finite_differences(operator: Operator) -> None:
    """The graph is built for f64 and for f16, which composite operators treat differently, and run in float64."""
    failures, tried = [], 0
    for number, case in enumerate(operator.cases):
        for dtype in (F64, F16):
            if case.gradient and dtype in case_dtypes(operator, case):
                item = example(operator, number, dtype)
                if differentiable(item):
                    tried += 1
                    failures += gradient_failures(item)
    check(failures)
    assert tried, "no case tries the gradient"


def test_operators_without_a_gradient_have_no_differentiable_result_or_no_such_operand() -> None:
    for operator in TESTED:
        if operator.gradient is None and not operator.has("internal"):
            for item in examples(operator):
                results = operator.check(item.types, item.case.attributes)
                floats = [any(t.dtype.is_differentiable for t in types) for types in (results, item.types)]
                assert not all(floats), item


@with_operator
def test_cases_cover_empty_single_and_odd_sizes(operator: Operator) -> None:
    items = [example(operator, number, case_dtypes(operator, case)[0]) for number, case in enumerate(operator.cases)]
    shapes = [a.shape for item in items for a in (*item.arrays, *item.expected)]
    sizes = {s for shape in shapes for s in shape} | {s for item in items for s in attribute_sizes(item)}
    assert 0 in sizes, "no case has size 0"
    assert 1 in sizes or () in shapes, "no case has size 1"
    assert any(s > 1 and s % 2 for s in sizes), "no case has an odd size"


def test_cases_cover_the_dtypes_of_first_operands() -> None:
    missing = {}
    for operator in (o for o in TESTED if o.operands):
        accepted = next((o.dtypes for o in operator.operands if o.group == "T"), operator.operands[0].dtypes)
        found = {dtype for case in operator.cases for dtype in case_dtypes(operator, case)}
        if rest := [dtype for dtype in accepted if dtype not in found]:
            missing[operator.name] = rest
    assert missing == {}


# Properties


def having(property: str) -> pytest.MarkDecorator:
    chosen = [o for o in TESTED if o.has(property)]
    return pytest.mark.parametrize("operator", chosen, ids=[o.name for o in chosen])


def exchangeable(item: Example) -> bool:
    """Are the operands all of one shape, so that their elements correspond?"""
    return len({a.shape for a in item.arrays}) == 1


@having("elementwise")
def test_elementwise(operator: Operator) -> None:
    """Shuffling the elements of all operands alike shuffles those of the result."""
    failures, tried = [], 0
    for item in examples(operator):
        if exchangeable(item) and item.arrays[0].size > 1:
            tried += 1
            order = np.random.default_rng(0).permutation(item.arrays[0].size)
            shape = item.arrays[0].shape
            shuffled = item.reference([a.reshape(-1)[order].reshape(shape) for a in item.arrays])
            expected = [r.reshape(-1)[order].reshape(shape) for r in item.expected]
            message = item.disagreement(shuffled, expected)
            failures += [f"{item}: {message}"] if message else []
    check(failures)
    assert tried


@having("commutative")
def test_commutative(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        message = difference(item.reference(item.arrays[::-1])[0], item.expected[0], 0.0)
        failures += [f"{item}: {message}"] if message else []
    check(failures)


@having("idempotent")
def test_idempotent(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        once = item.expected
        message = difference(item.reference(once)[0], once[0], 0.0)
        failures += [f"{item}: {message}"] if message else []
    check(failures)


@having("involution")
def test_involution(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        message = difference(item.reference(item.expected)[0], item.arrays[0], 0.0)
        failures += [f"{item}: {message}"] if message else []
    check(failures)


@having("selecting")
def test_selecting(operator: Operator) -> None:
    failures = []
    for item in examples(operator):
        for x in item.arrays:
            message = difference(item.reference([x, x])[0], x, 0.0)
            failures += [f"{item}: {message}"] if message else []
    check(failures)


def test_convolutions_are_contractions_named_so() -> None:
    for operator in TESTED:
        assert operator.has("convolution") == bool(re.fullmatch(r"conv(_transpose)?\dd", operator.name)), operator.name
        assert not operator.has("transposed") or operator.has("convolution"), operator.name
        assert not operator.has("convolution") or operator.has("contraction"), operator.name


@having("reduction")
def test_reduction(operator: Operator) -> None:
    """A change at one place of an axis that is kept changes the result at no other place of it."""
    failures, tried = [], 0
    for item in examples(operator):
        x = item.arrays[0]
        (result,) = item.expected
        if result.shape == x.shape or result.size >= x.size:
            continue
        axes = item.attributes.get("axis")
        reduced = range(x.ndim) if axes is None else [a % x.ndim for a in np.atleast_1d(axes)]
        kept = [a for a in range(x.ndim) if a not in reduced]
        if not kept or x.shape[kept[0]] < 2:
            continue
        tried += 1
        changed = x.copy()
        np.moveaxis(changed, kept[0], 0)[0] = np.moveaxis(x, kept[0], 0)[-1]
        place = kept[0] if item.attributes["keepdims"] else 0
        rest = [np.moveaxis(r, place, 0)[1:] for r in (item.reference([changed])[0], result)]
        message = item.disagreement([rest[0]], [rest[1]])
        failures += [f"{item}: {message}"] if message else []
    check(failures)
    assert tried or "axis" not in item.attributes


@having("movement")
def test_movement(operator: Operator) -> None:
    """Every element of a result is one of an operand, or one of the constants that fill."""
    failures = []
    for item in examples(operator):
        if item.dtype is not BF16:
            known = [a.reshape(-1).astype(np.float64) for a in item.arrays]
            fill = item.attributes.get("value", 0)
            source = np.concatenate([*known, [float(fill if isinstance(fill, (int, float)) else 0)]])
            for result in item.expected:
                if not np.isin(result.astype(np.float64), source).all():
                    failures.append(f"{item}: an element comes from nowhere")
    check(failures)


# The table as a whole


def test_there_are_at_least_110_operators() -> None:
    assert len(OPERATORS) >= 110
    assert all(operator.summary for operator in OPERATORS.values())


def test_the_table_of_operators_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for operator in OPERATORS.values():
        way = "lower" if operator.lower else "decompose" if operator.decompose else "structure"
        print(f"{operator.name:24} {way:10} {'gradient' if operator.gradient else '':9} {operator.summary}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(OPERATORS)
    assert all(line.strip() for line in lines)


@with_operator
def test_summary_and_names_are_plain(operator: Operator) -> None:
    assert operator.summary[:1] == operator.summary[:1].lower() or operator.summary[:2].isupper(), operator.summary
    assert not operator.summary.endswith("."), operator.summary
    names = [o.name for o in operator.operands] + [a.name for a in operator.attributes]
    assert len(set(names)) == len(names), names


@with_operator
def test_wrong_dtype_is_refused(operator: Operator) -> None:
    item = next(examples(operator))
    for number in range(len(item.types)):
        accepted = operand_at(operator, number).dtypes
        for dtype in ANY:
            if dtype not in accepted:
                types = [t.with_dtype(dtype) if i == number else t for i, t in enumerate(item.types)]
                with pytest.raises(InferenceError) as caught:
                    operator.check(types, item.case.attributes)
                assert caught.value.code == "dtype-mismatch"
