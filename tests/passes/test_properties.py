"""What operators' properties say, held against their references: passes put operators together because of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nacre.dialect.operator import Case, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, TensorType


def with_property(*properties: str) -> list[Any]:
    found = [o for o in OPERATORS.values() if any(o.has(p) for p in properties) and o.operands]
    assert found
    return [pytest.param(o, id=o.name) for o in found]


def operands(operator: Operator, case: Case, first: np.ndarray | None = None) -> list[np.ndarray]:
    """Operands for a case: floats in float64, the first one as given."""
    rng = np.random.default_rng(5)
    arrays = []
    for number, shape in enumerate(case.shapes):
        dtypes = operator.operands[min(number, len(operator.operands) - 1)].dtypes
        dtype = F64 if F64 in dtypes else dtypes[0]
        values = np.asarray(case.arrays.get(number, rng.uniform(*case.domain, shape)))
        arrays.append(values if number in case.arrays else values.astype(dtype.numpy))
    if first is not None:
        arrays[0] = first
    return arrays


def run(operator: Operator, case: Case, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        results = operator.reference(*arrays, **operator.complete(case.attributes))
    return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))


def changed_by_an_element(operator: Operator, case: Case) -> tuple[tuple[int, ...], np.ndarray] | None:
    """A place in the first operand, and where the first result changes if the element there does."""
    arrays = operands(operator, case)
    if arrays[0].size == 0 or not np.issubdtype(arrays[0].dtype, np.floating):
        return None
    place = tuple(size // 2 for size in arrays[0].shape)
    other = arrays[0].copy()
    other[place] += 0.37
    before, after = (run(operator, case, [x, *arrays[1:]])[0] for x in (arrays[0], other))
    return place, np.array(~((before == after) | (np.isnan(before) & np.isnan(after))))


@pytest.mark.parametrize("operator", with_property("elementwise", "pointwise"))
def test_an_element_depends_on_its_own_index(operator: Operator) -> None:
    for case in operator.cases:
        found = changed_by_an_element(operator, case)
        if found is None or found[1].shape != case.shapes[0]:
            continue
        place, changed = found
        changed[place] = False
        assert not changed.any(), (case, place)


ROWS = [pytest.param(o, id=o.name) for o in OPERATORS.values() if o.row_axes is not None]


@pytest.mark.parametrize("operator", ROWS)
def test_a_row_depends_on_no_other(operator: Operator) -> None:
    assert operator.row_axes is not None
    assert operator.has("rowwise") != operator.has("reduction")
    several = False
    for case in operator.cases:
        found = changed_by_an_element(operator, case)
        if found is None:
            continue
        place, changed = found
        rank = len(case.shapes[0])
        axes = operator.row_axes(TensorType(F64, case.shapes[0]), operator.complete(case.attributes))
        assert axes == tuple(sorted(axes)) and all(0 <= a < rank for a in axes)
        if operator.has("rowwise"):
            assert changed.shape == case.shapes[0]
        kept = [a for a in range(rank) if a not in axes]
        row = (
            changed.reshape([1 if a in axes else case.shapes[0][a] for a in range(rank)])
            if not operator.has("rowwise")
            else changed
        )
        row[tuple(place[a] if a in kept else slice(None) for a in range(rank))] = False
        assert not row.any(), (case, place)
        several |= row.size > 1
    assert several, "no case has a second row"


@pytest.mark.parametrize("operator", with_property("view", "strided", "gathering"))
def test_a_movement_copies_any_elements(operator: Operator) -> None:
    for case in operator.cases:
        if operator.addresses is not None and case.attributes.get("mode") == "drop":
            continue  # `check-indices` writes it as a movement with "clamp", and a choice of zeros
        (shape, *_) = case.shapes
        places = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        values = np.random.default_rng(2).normal(size=shape)
        for where, moved in zip(
            run(operator, case, operands(operator, case, places)),
            run(operator, case, operands(operator, case, values)),
            strict=True,
        ):
            np.testing.assert_array_equal(moved, values.reshape(-1)[where])
            if operator.has("view"):
                np.testing.assert_array_equal(where.reshape(-1), np.arange(where.size))


def test_generators_read_nothing() -> None:
    generators = [o for o in OPERATORS.values() if o.has("generator")]
    assert generators and not any(o.operands for o in generators)


def test_every_operator_is_of_a_kind_that_passes_know_or_of_none() -> None:
    """What has no property is in no group: a new operator stands here until somebody has thought about it."""
    unknown = {o.name for o in OPERATORS.values() if not o.properties}
    assert unknown == {"resize", "rotary_embedding"}
