"""The operations of every operator can be counted, whatever its lowering is made of, symbolic sizes included."""

from __future__ import annotations

import pytest
from nacre.compiler.lower.cost import count_operations
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Module
from nacre.dialect.operator import Operator
from nacre.dialect.types import F32, TensorType
from nacre.passes.manager import Context
from nacre.passes.pass_list import parse_pipeline
from operator_harness import TESTED, build_function, examples, symbolic, write_use


@pytest.mark.parametrize("operator", TESTED, ids=lambda operator: operator.name)
def test_operations_are_counted(operator: Operator) -> None:
    for item in examples(operator):
        count = count_operations(build_function(item.types, write_use(item)).body)
        assert isinstance(count, int) and count >= 0, item.name
        variant = next((v for v in symbolic(item) if v.infer() is not None and v.is_bound), None)
        if variant is not None:
            formula = count_operations(build_function(variant.types, write_use(variant.item)).body)
            # Code for any size may do more than code for one: sorting makes a pass for each power of two.
            assert evaluate(formula, variant.values) >= count, (variant, formula)


def test_overlapping_windows_are_added_along_one_axis_after_the_other() -> None:
    """Each element of an image is the sum of 5 columns along its row, and then of 5 such sums along its column."""
    type = TensorType(F32, (4, 32 * 25, 8 * 8))
    function = build_function((type,), lambda b, x: b.apply("fold", x, {"sizes": (12, 12), "kernel": (5, 5)}))
    (step,) = parse_pipeline("decompose{having=composite}")
    parts = step.run(Module("m", functions=(function,)), Context()).functions[0]
    along_rows, along_columns = 5 * 8 * 12 * (5 - 1), 12 * 12 * (5 - 1)
    assert count_operations(parts.body) == 4 * 32 * (along_rows + along_columns)
