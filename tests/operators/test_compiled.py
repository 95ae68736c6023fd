"""Every operator as compiled code, at -O0 and at the default level: equal to its reference.

At -O0 all cases run in all dtypes, and in one dtype with symbolic sizes. The default level runs all cases in one dtype
of each kind, the first case in the others, and the first cases with symbolic sizes. Operators are compiled by the
dozen, since starting the compiler costs more than compiling one of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.graph import Function, Module
from nacre.dialect.operator import Operator
from nacre.dialect.types import BOOL, F32, I32, DType
from operator_harness import TESTED, Example, build_function, case_dtypes, examples, symbolic, write_use

GROUP = 12
GROUPS = [TESTED[i : i + GROUP] for i in range(0, len(TESTED), GROUP)]
with_group = pytest.mark.parametrize("group", GROUPS, ids=[f"{group[0].name}..{group[-1].name}" for group in GROUPS])
Uses = dict[str, tuple[Function, Example]]
"""Functions of one operator each, with what to call them with."""


def typical(operator: Operator, item: Example) -> tuple[DType, ...]:
    """One dtype of each kind that the case runs in."""
    dtypes = case_dtypes(operator, item.case)
    return tuple(d for d in (F32, I32, BOOL) if d in dtypes) or dtypes[:1]


def uses(group: tuple[Operator, ...], *, everything: bool) -> Uses:
    found = {}
    for operator in group:
        for item in examples(operator):
            if everything or item.number == 0 or item.dtype in typical(operator, item):
                found[item.name] = (build_function(item.types, write_use(item), item.name), item)
    return found


def symbolic_uses(group: tuple[Operator, ...], limit: int | None = None) -> Uses:
    """Each case in one dtype, with as many sizes symbolic as the operator accepts; `limit` cases of each operator."""
    found: Uses = {}
    for operator in group:
        accepted: Uses = {}
        for item in examples(operator):
            if item.dtype is typical(operator, item)[0] and len(accepted) != limit:
                variants = (v for v in symbolic(item) if v.infer() is not None and v.is_bound)
                if (variant := next(variants, None)) is not None:
                    name = f"symbolic_{item.name}"
                    accepted[name] = (build_function(variant.types, write_use(variant.item), name), item)
        found |= accepted
    return found


def check(uses: Uses, level: int) -> None:
    dims = {symbol for function, _ in uses.values() for symbol in function.symbols()}
    module = Module("operators", tuple(sorted(dims, key=str)), functions=tuple(f for f, _ in uses.values()))
    compiled = build_functions(module, level=level)
    failures = []
    for name, (function, item) in uses.items():
        try:
            results = compiled[name](item.arrays)
        except IndexError as error:
            # The record of a check that fails comes with the error.
            assert item.operator.has("checking"), name
            results = (np.asarray(error.args[1]),)
        message = item.disagreement(results, item.reference())
        failures += [f"{item.operator.name} {item} as {function.arguments}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(uses)} differ:\n" + "\n".join(failures[:20])


@with_group
def test_without_optimisation(group: tuple[Operator, ...]) -> None:
    check(uses(group, everything=True) | symbolic_uses(group), 0)


@with_group
def test_at_the_default_level(group: tuple[Operator, ...]) -> None:
    check(uses(group, everything=False) | symbolic_uses(group, 2), 2)
