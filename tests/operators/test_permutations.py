"""Every operator between transposes that are 3-cycles, which are not their own inverse, through the passes of a build.

A permutation that is read inverted is right for all exchanges of two axes, and wrong for these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.dialect.graph import Module, Value
from nacre.dialect.operator import Builder, Operator
from nacre.dialect.types import Array
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from operator_harness import TESTED, Example, build_function, case_dtypes, difference, example, interpret

CYCLES = {3: ((1, 2, 0), (2, 0, 1)), 4: ((0, 2, 3, 1), (3, 1, 0, 2)), 5: ((0, 2, 3, 4, 1), (1, 2, 0, 3, 4))}
"""Permutations with a cycle of three axes or more, by rank."""


def cycled(operator: Operator) -> list[Example]:
    """The cases with an operand of three axes or more, in one dtype."""
    found = (example(operator, n, case_dtypes(operator, case)[0]) for n, case in enumerate(operator.cases))
    return [item for item in found if any(a.ndim in CYCLES and a.size for a in item.arrays)]


CYCLED = [operator for operator in TESTED if not operator.has("checking") and cycled(operator)]


def between_transposes(item: Example, number: int) -> tuple[Module, list[Array]]:
    """The operator on operands that are transposed in the graph, with its results transposed."""
    given: list[Array] = []
    for array in item.arrays:
        order = CYCLES[array.ndim][number] if array.ndim in CYCLES else range(array.ndim)
        given.append(array.transpose(np.argsort(order)).copy())

    def turned(b: Builder, value: Value) -> Value:
        return b.transpose(value, axes=CYCLES[value.type.rank][number]) if value.type.rank in CYCLES else value

    def write(b: Builder, arguments: Sequence[Value]) -> list[Value]:
        results = b.apply(item.operator.name, [turned(b, v) for v in arguments], item.attributes)
        return [turned(b, v) for v in results]

    types = [t.with_shape(a.shape) for t, a in zip(item.types, given, strict=True)]
    return Module("m", functions=(build_function(types, write),)), given


@pytest.mark.parametrize("operator", CYCLED, ids=lambda operator: operator.name)
def test_transposes_around_an_operator(operator: Operator) -> None:
    for item in cycled(operator):
        for number in range(2):
            module, given = between_transposes(item, number)
            after = PassManager(parse_pipeline(GRAPH_PASSES[2])).run(module)
            expected = interpret(module.functions[0], given)
            for actual, wanted in zip(interpret(after.functions[0], given), expected, strict=True):
                assert actual.shape == wanted.shape, (item, number)
                message = difference(actual, wanted, 8 * item.case.tolerance, max(item.case.terms, 4))
                assert message is None, (str(item), number, message)
