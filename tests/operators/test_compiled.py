"""Every operator as compiled code, at -O0 and at the default level: equal to its reference.

At -O0 all cases run in all dtypes, and in one dtype with symbolic sizes. The default level runs all cases in one dtype
of each kind, one case of odd sizes in the others, and the first cases with symbolic sizes; so does -O0 for operators
that are decomposed into others, except with `--variants`. Operators are compiled by the dozen, since starting the
compiler costs more than compiling one of them. For the same reason, kernels are compiled several to an object.

Each function is called twice in a child process: every tensor ends at an unmapped page in one call and begins behind
one in the other, so that most addresses are multiples of the element size alone. Inputs are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from joined_kernels import generate_joined
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.lowered import Lowered
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target, choose_panels
from nacre.compiler.validate.isolated import Died, Progress, run_isolated
from nacre.compiler.validate.native import Library
from nacre.dialect.dims import product
from nacre.dialect.graph import Function, Module
from nacre.dialect.interpreter import bind_dims
from nacre.dialect.operator import Operator
from nacre.dialect.types import BOOL, F32, F64, I32, Array, DType
from nacre.passes.simplify.check_indices import CheckIndices
from nacre.passes.simplify.decompose import Decompose
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


def has_odd_size(function: Function) -> bool:
    """Returns whether a tensor ends with a part of a vector, of the shortest vectors."""
    return any(product(v.type.shape) % 4 for v in (*function.arguments, *function.results))


def uses(group: tuple[Operator, ...], *, everything: bool) -> Uses:
    found: Uses = {}
    for operator in group:
        others: dict[DType, Uses] = {}
        for item in examples(operator):
            use = (build_function(item.types, write_use(item), item.name), item)
            if everything or item.dtype in typical(operator, item):
                found[item.name] = use
            else:
                others.setdefault(item.dtype, {})[item.name] = use
        for cases in others.values():
            chosen = next((name for name, use in cases.items() if has_odd_size(use[0])), next(iter(cases)))
            found[chosen] = cases[chosen]
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


def lower_uses(uses: Uses, level: int, target: Target) -> Lowered:
    dims = {symbol for function, _ in uses.values() for symbol in function.symbols()}
    written = Module("operators", tuple(sorted(dims, key=str)), functions=tuple(f for f, _ in uses.values()))
    apart = Decompose(having=("composite",)).run(written)
    return lower_module(CheckIndices().run(apart), pack=choose_panels((target,)) if level >= 2 else None)


def build_library(uses: Uses, level: int) -> Library:
    # At level 0 functions run twice: optimising them would take longer than that.
    options = CodeOptions(level=level, quick=level == 0, visible=True)
    return Library(*generate_joined(lower_uses(uses, level, Target()), options), None)


def call(library: Library, function: Function, item: Example, expected: Sequence[Array]) -> str | None:
    """How a call on guarded memory goes wrong, if it does."""
    dims = bind_dims(function, item.arrays)
    for at_end in (True, False):
        outcome = library.run(function, item.arrays, dims, at_end=at_end)
        # The record of a check that fails stands in place of results.
        assert not outcome.failed or item.operator.has("checking"), function
        results = (np.asarray(outcome.record),) if outcome.failed else outcome.results
        if message := outcome.damage or item.disagreement(results, expected):
            return message
    return None


def check(uses: Uses, library: Library) -> None:
    def task(function: Function, item: Example) -> Callable[[Progress], str | None]:
        # Computed here, where other tests of the process find it.
        expected = item.expected
        return lambda tell: call(library, function, item, expected)

    answers = run_isolated([task(*use) for use in uses.values()])
    failures = []
    for (function, item), answer in zip(uses.values(), answers, strict=True):
        message = answer.message if isinstance(answer, Died) else answer
        failures += [f"{item.operator.name} {item} as {function.arguments}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(uses)} differ:\n" + "\n".join(failures[:20])


def test_every_operator_is_called_with_odd_sizes_in_every_dtype() -> None:
    called = uses(TESTED, everything=False).values()
    found = {(item.operator.name, item.dtype) for function, item in called if has_odd_size(function)}
    wanted = {(o.name, dtype) for o in TESTED for case in o.cases for dtype in case_dtypes(o, case)}
    wanted -= {("winograd_output", F32), ("winograd_output", F64)}  # takes and gives blocks of 4 by 4
    assert wanted - found == set()


LONG = ("top_k", "merged_order")
"""Operators, beside composite ones, whose code is long: they run fewer cases at level 0, except with `--variants`."""


@with_group
def test_without_optimisation(group: tuple[Operator, ...], request: pytest.FixtureRequest) -> None:
    is_short = not request.config.getoption("--variants")
    brief = tuple(o for o in group if is_short and (o.has("composite") or o.name in LONG))
    whole = tuple(operator for operator in group if operator not in brief)
    found = uses(whole, everything=True) | uses(brief, everything=False)
    found |= symbolic_uses(whole) | symbolic_uses(brief, 1)
    check(found, build_library(found, 0))


@with_group
def test_at_the_default_level(group: tuple[Operator, ...]) -> None:
    found = uses(group, everything=False) | symbolic_uses(group, 2)
    check(found, build_library(found, 2))
