"""Passes keep what a graph computes: random graphs before and after, bit by bit where a pass is exact."""

import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from nacre.dialect.graph import Constant, Function, Module, Value, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import collect_constants, print_module
from nacre.dialect.types import F32, F64, Array, TensorType, dtype_of
from nacre.dialect.verifier import verify
from nacre.passes.manager import Context, PassManager, Stage
from nacre.passes.pass_list import parse_pipeline
from nacre.passes.registry import PASSES
from random_graphs import assert_close, assert_same_bits, random_array, random_module, run_module

EXACT = ["check-indices", "canonicalize", "cse", "dce", "fold-constants", "fold-constants{growth=0}", "fuse"]
EXACT += ["unroll-repeat", "unroll-repeat{limit=1}", "fold-parameters{moves-only=true}"]
EXACT += ["unroll-repeat,fold-parameters{moves-only=true},dce", "check-indices,dce,fuse,defer-checks"]
ALL_EXACT = "unroll-repeat,fold-constants,canonicalize,fold-constants,cse,fuse,dce"
FUSED_FIRST = "fuse,cse,canonicalize,fold-constants,unroll-repeat,fuse,cse,dce"
ALL = "fold-constants,canonicalize,unroll-repeat,decompose,fold-constants,fold-parameters,canonicalize,cse,dce,"
ALL += "fuse,dce"


@cache
def graph(seed: int, exact: bool = True) -> Module:
    """A random graph, whose text comes back. Graphs are immutable, so that the tests of all passes share it."""
    return with_text(random_module(seed, exact=exact))


@cache
def results(seed: int) -> list[Array]:
    """The results of the graph of a thousand and this seed."""
    return run_module(graph(1000 + seed), seed)


def with_text(module: Module) -> Module:
    """Returns the module, whose text comes back."""
    text = print_module(module)
    assert print_module(parse_module(text, constants=collect_constants(module))) == text
    return module


def run_checked(module: Module, passes: str, limit: int | None = None) -> Module:
    """The module after the passes; each of them leaves a valid graph whose text comes back."""

    def check_text(stage: Stage) -> None:
        if stage.changed:
            with_text(stage.module)

    return PassManager(parse_pipeline(passes), watch=check_text, rewrite_limit=limit).run(module)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("passes", [*EXACT, ALL_EXACT, FUSED_FIRST])
def test_exact_pass_keeps_every_bit(passes: str, seed: int) -> None:
    after = run_checked(graph(1000 + seed), passes)
    assert_same_bits(results(seed), run_module(after, seed))


@pytest.mark.parametrize("seed", range(40))
def test_whole_pipeline_keeps_meaning(seed: int) -> None:
    module = with_text(random_module(2000 + seed, exact=False, tame=True))
    after = run_checked(module, ALL)
    before = run_module(module, seed, precision=F64, tame=True)
    # Constants are folded in their own dtype, so f32's rounding shows even in float64.
    assert_close(before, run_module(after, seed, precision=F64, tame=True), 1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_pipeline_may_stop_after_any_rewrite(seed: int) -> None:
    module = random_module(3000 + seed, steps=15)
    manager = PassManager(parse_pipeline(ALL_EXACT))
    manager.run(module)
    total = len(manager.context.rewrites)
    expected = run_module(module, seed)
    for limit in {0, 1, 2, total // 3, total // 2, total - 1, total}:
        stopped = PassManager(parse_pipeline(ALL_EXACT), rewrite_limit=max(limit, 0))
        assert_same_bits(expected, run_module(stopped.run(module), seed))
        assert stopped.context.rewrites == manager.context.rewrites[: max(limit, 0)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", sorted(PASSES))
def test_every_change_is_counted(name: str, seed: int) -> None:
    module = graph(4000 + seed, exact=False)
    text = print_module(module)
    untouched = PASSES[name]().rewrite(module, Context(rewrite_limit=0))
    assert print_module(untouched) == text
    context = Context()
    changed = PASSES[name]().run(module, context)
    assert (print_module(changed) == text) == (not context.rewrites)
    assert (changed is module) == (not context.rewrites)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", sorted(PASSES))
def test_second_run_of_a_pass_changes_nothing(name: str, seed: int) -> None:
    once = PASSES[name]().run(graph(5000 + seed, exact=False))
    context = Context()
    PASSES[name]().run(once, context)
    assert not context.rewrites


SCRIPT = """
from nacre.dialect.printer import print_module
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from random_graphs import random_module
for seed in range(8):
    print(print_module(PassManager(parse_pipeline({passes!r})).run(random_module(seed, exact=False))))
"""


def test_passes_do_not_depend_on_hash_seeds() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(passes=ALL)],
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(texts) == 1 and len(texts.pop()) > 5_000


# --- decompositions, one by one ---


def single_node(operator: Operator, number: int) -> tuple[Module, list[np.ndarray]]:
    """A module of one node, from a case of the operator, and arguments for it."""
    case = operator.cases[number]
    rng = np.random.default_rng(number)
    arrays = []
    for i, shape in enumerate(case.shapes):
        dtypes = operator.operands[min(i, len(operator.operands) - 1)].dtypes
        dtype = F32 if F32 in dtypes else dtypes[0]
        low, high = case.domain
        values = rng.uniform(low, high, shape) if dtype.is_float else random_array(shape, dtype, rng)
        given = np.asarray(case.arrays.get(i, values))
        # Floats that a case gives have the dtype of the case, like the random ones.
        stored = dtype_of(given)
        arrays.append(
            given.astype(case.mixed.get(i, dtype).numpy) if i not in case.arrays or stored.is_float else given
        )
    arguments = [Value(f"x{i}", TensorType(dtype_of(a), a.shape)) for i, a in enumerate(arrays)]
    builder = Builder(OPERATORS)
    results = builder.apply(operator.name, arguments, case.attributes)
    function = Function("main", tuple(arguments), tuple(builder.nodes), results)
    return Module("single", (), (), (function,)), arrays


def no_parameters(parameter):
    raise AssertionError(parameter)


DECOMPOSED = [o for o in OPERATORS.values() if o.decompose is not None]


@pytest.mark.parametrize("operator", DECOMPOSED, ids=lambda o: o.name)
def test_decomposition_is_valid_and_computes_the_same(operator: Operator) -> None:
    for number in range(len(operator.cases)):
        module, arrays = single_node(operator, number)
        verify(with_text(module))
        after = run_checked(module, "decompose")
        assert all(OPERATORS[n.op].decompose is None for n in walk(after.functions[0].body))
        before, now = (Interpreter(m, no_parameters, precision=F64).run("main", arrays) for m in (module, after))
        # Numbers like sqrt(2) / 2 stand in the graph as constants of f32.
        assert_close(before, now, 1e-5)


# --- the generator itself ---


def test_random_graphs_are_the_same_for_a_seed_and_cover_the_passes() -> None:
    assert print_module(random_module(7)) == print_module(random_module(7))
    operators = {n.op for seed in range(60) for n in walk(random_module(seed, exact=False).functions[0].body)}
    elementwise = {o.name for o in OPERATORS.values() if o.has("elementwise")}
    assert len(elementwise - operators) < len(elementwise) / 10, elementwise - operators
    context = Context()
    for seed in range(60):
        module = random_module(seed, exact=False)
        for step in parse_pipeline(ALL_EXACT):
            step.run(module, context)
    rules = {r.rule for r in context.rewrites if r.pass_name == "canonicalize"}
    assert len(rules) >= 25, sorted(rules)


def test_constants_of_a_random_graph_differ_in_the_sign_of_zero() -> None:
    rng = random.Random(0)
    arrays = [
        value.data
        for seed in rng.sample(range(100), 30)
        for node in walk(random_module(seed).functions[0].body)
        for _, value in node.attributes
        if isinstance(value, Constant) and value.type.dtype is F32
    ]
    assert any(np.any((a == 0) & np.signbit(a)) for a in arrays) and any(
        np.any((a == 0) & ~np.signbit(a)) for a in arrays
    )
