"""The operations of every operator can be counted, whatever its lowering is made of, symbolic sizes included."""

from __future__ import annotations

import pytest
from nacre.compiler.lower.cost import count_operations
from nacre.dialect.dims import evaluate
from nacre.dialect.operator import Operator
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
