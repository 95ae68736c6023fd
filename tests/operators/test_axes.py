"""The axes that records state, against the references: permuted axes, summed axes, and axes of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from nacre.dialect.operator import Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, Array
from operator_harness import TESTED, Example, example

WITHOUT = {"attention", "block_dot", "block_matmul", "cached_attention", "conv_weight_gradient",
           "packed_matmul", "paged_attention", "winograd_input", "winograd_output"}  # fmt: skip
"""The contractions of other than two tensors, and those that passes and gradients write."""


def items(operator: Operator, has_axes: Callable[[Example], object]) -> Iterator[Example]:
    """The cases in f64 for which the record states axes, with operands that are not 0."""
    for number, case in enumerate(operator.cases):
        if case.dtypes is None and not case.mixed:
            item = example(operator, number, F64)
            if has_axes(item):
                yield item


def stating(field: str) -> list[Operator]:
    return [operator for operator in TESTED if getattr(operator, field) is not None]


def positive(item: Example) -> list[Array]:
    return [np.abs(array) + 0.5 for array in item.arrays]


def steps(shape: tuple[int, ...]) -> Array:
    """Another power of two for each element, so that products with them are exact."""
    return 2.0 ** np.arange(np.prod(shape, dtype=int)).reshape(shape)


@pytest.mark.parametrize("operator", stating("axis_order"), ids=lambda operator: operator.name)
def test_order_is_that_of_the_reference(operator: Operator) -> None:
    assert operator.axis_order is not None
    for item in items(operator, lambda item: True):
        order = operator.axis_order(item.types[0], item.attributes)
        assert np.array_equal(item.expected[0], item.arrays[0].transpose(order)), item


@pytest.mark.parametrize("operator", stating("summed_axes"), ids=lambda operator: operator.name)
def test_factors_along_other_axes_are_factors_of_sums(operator: Operator) -> None:
    """Every result has one of the factors of an operand: no sum adds elements with different ones."""
    find = operator.summed_axes
    assert find is not None
    tried = 0
    for item in items(operator, lambda item: find(item.types, item.attributes) is not None):
        summed = find(item.types, item.attributes)
        assert summed is not None
        arrays = positive(item)[:2]
        before = item.reference(arrays)[0]
        for number, axes in enumerate(summed):
            x, left = arrays[number], {axis % arrays[number].ndim for axis in axes}
            factors = steps(tuple(1 if axis in left else size for axis, size in enumerate(x.shape)))
            changed = [x * factors if i == number else array for i, array in enumerate(arrays)]
            ratios = item.reference(changed)[0][before > 0] / before[before > 0]
            assert set(np.round(np.log2(ratios), 9).tolist()) <= set(np.log2(factors).ravel().tolist()), (item, number)
            tried += factors.size > 1 and ratios.size > 0
    assert tried


@pytest.mark.parametrize("operator", stating("channels"), ids=lambda operator: operator.name)
def test_channels_of_the_weight_are_those_of_the_result(operator: Operator) -> None:
    find = operator.channels
    assert find is not None
    tried = 0
    for item in items(operator, lambda item: find(item.attributes) is not None):
        channels = find(item.attributes)
        assert channels is not None
        x, weight = positive(item)[:2]
        before = item.reference((x, weight))[0]
        count = weight.shape[channels.weight_axis]
        assert before.shape[channels.result_axis] == count

        def along(axis: int, rank: int, count: int = count) -> Array:
            return steps((count,)).reshape([count if i == axis % rank else 1 for i in range(rank)])

        after = item.reference((x, weight * along(channels.weight_axis, weight.ndim)))[0]
        assert np.allclose(after, before * along(channels.result_axis, before.ndim), rtol=1e-12), item
        tried += count > 1 and before.size > 0
    assert tried


def test_other_contractions_state_their_summed_axes() -> None:
    without = {o.name for o in OPERATORS.values() if o.has("contraction") and o.summed_axes is None}
    assert without == WITHOUT
