"""Lowerings run by an emitter that checks every access, with sizes known and with sizes as symbols.

The families that compute places are run: those whose mistakes would be reads or writes outside of a tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checking_emitter import CheckingEmitter
from nacre.dialect.dims import Symbol
from nacre.dialect.operator import InferenceError, Operator
from nacre.dialect.ops import (
    OPERATORS,
    average_pooling,
    contraction,
    conv_transpose,
    convolution,
    creation,
    einsum,
    indexing,
    joining,
    movement,
    ordering,
    padding,
    pooling,
    scatter,
    shape,
    slicing,
)
from nacre.dialect.types import F32, I64, Array, TensorType, dtype_of
from operator_harness import case_dtypes, example, symbolic

FAMILIES = (average_pooling, contraction, conv_transpose, convolution, creation, einsum, indexing, joining, movement,
            ordering, padding, pooling, scatter, shape, slicing)  # fmt: skip
LOWERED = [o for family in FAMILIES for o in family.OPERATORS if o.lower is not None]
INFINITY, NAN = float("inf"), float("nan")


def run(
    operator: Operator, types: tuple[TensorType, ...], attributes: Any, arrays: Any, values: dict[str, int]
) -> list[Array]:
    assert operator.lower is not None
    e: Any = CheckingEmitter(values)
    full = operator.complete(attributes)
    results = operator.check(types, full)
    operands = [e.tensor(t, a) for t, a in zip(types, arrays, strict=True)]
    with np.errstate(all="ignore"):
        lowered = operator.lower(e, operands, full, results)
    assert [x.type for x in lowered] == list(results), (lowered, results)
    return [x.data for x in lowered]  # type: ignore[attr-defined]


@pytest.mark.parametrize("operator", LOWERED, ids=[o.name for o in LOWERED])
def test_lowering_stays_inside_and_equals_the_reference(operator: Operator) -> None:
    failures = []
    for number, case in enumerate(operator.cases):
        dtypes = case_dtypes(operator, case)
        item = example(operator, number, F32 if F32 in dtypes else dtypes[0])
        expected = item.reference()
        variants = [(item.types, item.case.attributes, {}, str(item))]
        for variant in symbolic(item):
            if variant.infer() is not None and variant.is_bound:
                variants.append((variant.types, variant.item.case.attributes, dict(variant.values), str(variant)))
        # The first of the symbolic variants has all sizes unknown; the others differ little. Sorting is too slow.
        for types, attributes, values, text in variants[: 1 if operator in ordering.OPERATORS else 2]:
            message = item.disagreement(run(operator, types, attributes, item.arrays, values), expected)
            failures += [f"{text}: {message}"] if message else []
    assert not failures, "\n".join(failures)


ZERO_TO = Symbol("n", 0, 100).size


@pytest.mark.parametrize(
    ("name", "shapes", "arrays", "attributes"),
    [
        ("gather", [(ZERO_TO, 2), (3,)], {1: [0, -1, 7]}, {}),
        ("take_along_axis", [(ZERO_TO,), (2,)], {1: [1, -5]}, {}),
        ("gather_nd", [(ZERO_TO, 2), (2, 2)], {1: [[0, 1], [5, 5]]}, {}),
        ("embedding", [(ZERO_TO, 3), (2,)], {1: [0, 1]}, {}),
        ("scatter", [(ZERO_TO,), (2,), (2,)], {1: [0, 1]}, {}),
        ("scatter_add", [(ZERO_TO, 2), (2, 1), (2, 2)], {1: [[0], [-1]]}, {}),
        ("scatter_nd", [(ZERO_TO, 2), (1, 2), (1,)], {1: [[0, 1]]}, {}),
        ("pad", [(ZERO_TO, 2)], {}, {"widths": ((1, 2), (0, 0)), "mode": "reflect"}),
        ("pad", [(ZERO_TO,)], {}, {"widths": ((1, 0),), "mode": "edge"}),
        ("conv1d", [(1, 2, ZERO_TO), (3, 2, 4)], {}, {}),
        ("conv1d", [(1, 2, ZERO_TO), (3, 2, 2)], {}, {"padding": 3, "stride": 2}),
        ("max_pool1d", [(1, 2, ZERO_TO)], {}, {"kernel": 3, "padding": 2, "ceil_mode": True}),
        ("avg_pool1d", [(1, 2, ZERO_TO)], {}, {"kernel": 3, "padding": 2, "count_include_pad": False}),
        ("max_pool_indices", [(1, 2, ZERO_TO)], {}, {"kernel": 3, "padding": 2}),
        ("argsort", [(2, ZERO_TO)], {}, {}),
        ("top_k", [(ZERO_TO, 2)], {}, {"k": 3, "axis": 0}),
        ("slice", [(ZERO_TO,)], {}, {"starts": (1,), "stops": (-1,)}),
        ("slice", [(ZERO_TO,)], {}, {"starts": (-2,), "stops": (None,), "steps": (-3,)}),
        ("concat", [(ZERO_TO, 2), (3, 2)], {}, {}),
        ("matmul", [(2, ZERO_TO), (ZERO_TO, 3)], {}, {}),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_symbolic_size_may_turn_out_to_be_anything(
    name: str, shapes: Any, arrays: dict[int, Any], attributes: Any, n: int
) -> None:
    operator = OPERATORS[name]
    rng = np.random.default_rng(n)
    given: list[Array] = []
    types = []
    for number, wanted in enumerate(shapes):
        data = np.asarray(arrays[number], np.int64) if number in arrays else None
        if data is None:
            concrete = tuple(n if s is ZERO_TO else s for s in wanted)
            data = rng.standard_normal(concrete).astype(np.float32)
        given.append(data)
        types.append(TensorType(dtype_of(data), wanted))
    if operator.lower is None:
        operator = OPERATORS["gather"]
    actual = run(operator, tuple(types), attributes, given, {"n": n})
    with np.errstate(all="ignore"):
        expected = operator.reference(*given, **operator.complete(attributes))
    for a, e in zip(actual, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_and_knows_nan(descending: bool) -> None:
    x = np.asarray([2, NAN, -0.0, 0.0, INFINITY, 2, -INFINITY, NAN, 1, 0.0], np.float32)
    (places,) = run(OPERATORS["argsort"], (TensorType(F32, x.shape),), {"descending": descending}, [x], {})
    order = [6, 2, 3, 9, 8, 0, 5, 4, 1, 7] if not descending else [1, 7, 4, 0, 5, 8, 2, 3, 9, 6]
    assert places.tolist() == order
    assert OPERATORS["argsort"].reference(x, axis=-1, descending=descending).tolist() == order


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_top_k_keeps_the_first_of_equals(size: int, k: int) -> None:
    x = np.random.default_rng(size).integers(0, 4, size)
    try:
        values, places = run(OPERATORS["top_k"], (TensorType(I64, x.shape),), {"k": k}, [x], {})
    except InferenceError:
        assert k > size
        return
    expected = sorted(range(size), key=lambda i: (-x[i], i))[:k]
    assert places.tolist() == expected
    assert values.tolist() == [x[i] for i in expected]
