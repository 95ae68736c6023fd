"""The gradient of every operator as compiled code, at -O0 and -O2 after the passes of the level, against float64.

The graph of a gradient holds the operator and all nodes of its rule. An error may be as large as that of the same graph
in numpy, and as the tolerance of the case admits. The first case runs in f32 by default; `--variants` runs all cases
in all float dtypes.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from joined_kernels import generate_joined
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target, choose_panels
from nacre.compiler.validate.isolated import Died, run_isolated
from nacre.compiler.validate.native import Library
from nacre.dialect.graph import Function, Module
from nacre.dialect.operator import Operator
from nacre.dialect.types import F32, F64, Array, TensorType, dtype_of
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from operator_harness import (
    TESTED,
    Example,
    build_function,
    differentiable,
    examples,
    interpret,
    random_array,
    write_gradient,
)

GROUP = 24
DIFFERENTIABLE = [o for o in TESTED if o.gradient and o.operands]
GROUPS = [DIFFERENTIABLE[i : i + GROUP] for i in range(0, len(DIFFERENTIABLE), GROUP)]
FACTOR = 8.0
"""The greatest error, relative to the tolerance of the case: a rule has several nodes, which are rounded one by one."""


def cases(operator: Operator, everything: bool) -> list[Example]:
    found = [item for item in examples(operator) if item.case.gradient and differentiable(item)]
    found = [item for item in found if item.dtype.is_differentiable]
    return found if everything else [item for item in found if item.dtype == F32][:1]


def gradient_of(item: Example) -> tuple[Function, list[Array]]:
    """The function of the operands and of the gradients of its results, and its arguments."""
    rng = np.random.default_rng(zlib.crc32(str(item).encode()))
    results = [a for a in item.expected if dtype_of(a).is_float]
    seeds = [random_array(rng, dtype_of(a), a.shape, (-1.0, 1.0)) for a in results]
    types = [*item.types, *(TensorType(dtype_of(s), s.shape) for s in seeds)]
    return build_function(types, write_gradient(item, len(item.types)), item.name), [*item.arrays, *seeds]


def check(group: list[Operator], level: int, everything: bool) -> None:
    uses = {item.name: (item, *gradient_of(item)) for o in group for item in cases(o, everything)}
    module = Module("gradients", functions=tuple(function for _, function, _ in uses.values()))
    optimized = PassManager(parse_pipeline(GRAPH_PASSES[level])).run(module)
    lowered = lower_module(optimized, pack=choose_panels((Target(),)) if level >= 2 else None)
    options = CodeOptions(level=level, quick=level == 0, visible=True)
    library = Library(*generate_joined(lowered, options), None)
    functions = {function.name: function for function in optimized.functions}
    tasks = [lambda tell, f=functions[n], a=a: library.run(f, a, {}, at_end=True) for n, (_, _, a) in uses.items()]  # type: ignore[misc]
    failures = []
    for (item, function, arrays), outcome in zip(uses.values(), run_isolated(tasks), strict=True):
        if isinstance(outcome, Died):
            failures.append(f"{item}: {outcome.message}")
            continue
        message = outcome.damage or error(item, function, arrays, outcome.results)
        failures += [f"{item}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(uses)} differ:\n" + "\n".join(failures[:20])


def error(item: Example, function: Function, arrays: list[Array], actual: tuple[Array, ...]) -> str:
    """Returns a description of the differences that exceed the tolerance, empty without any."""
    wide = [a.astype(np.float64) if dtype_of(a).is_float else a for a in arrays]
    with np.errstate(all="ignore"):
        exact, own = interpret(function, wide, F64), interpret(function, arrays)
    for number, (got, best, plain) in enumerate(zip(actual, exact, own, strict=True)):
        scale = float(np.max(np.abs(best), initial=0.0, where=np.isfinite(best)))
        with np.errstate(all="ignore"):
            numpy_error = np.abs(plain.astype(np.float64) - best)
            off = np.abs(got.astype(np.float64) - best)
        numpy_error = float(np.max(numpy_error, initial=0.0, where=np.isfinite(numpy_error)))
        allowed = item.case.tolerance * dtype_of(got).epsilon * item.case.terms**0.5 * max(scale, 1e-30)
        allowed = FACTOR * max(allowed, numpy_error)
        wrong = np.argwhere(~((off <= allowed) | (np.isnan(got) & np.isnan(plain)) | (got == plain)))
        if len(wrong):
            at = tuple(wrong[0])
            return f"gradient {number}: {got[at]!r} at {at}, expected {best[at]!r} within {allowed:.3g}"
    return ""


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("group", GROUPS, ids=[f"{g[0].name}..{g[-1].name}" for g in GROUPS])
def test_compiled_gradients(group: list[Operator], level: int, request: pytest.FixtureRequest) -> None:
    check(group, level, request.config.getoption("--variants"))


def test_every_differentiable_operator_has_a_case() -> None:
    missing = [o.name for o in DIFFERENTIABLE if not cases(o, True)]
    assert not missing, missing
