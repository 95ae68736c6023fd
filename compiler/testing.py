"""Runs the tests and budgets of a model file: each test by the reference interpreter and by the compiled artifact."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..dialect.diagnostics import DiagnosticError
from ..dialect.dims import DimError, evaluate
from ..dialect.graph import Function
from ..dialect.interpreter import Interpreter
from ..dialect.types import Array
from ..runtime.loader import Model, NacreError
from .budgets import Costs, holds, over_budget, show
from .frontend import Elaborated, ModelBudget, ModelTest
from .lower.module import lower_module
from .parameters import ParameterReader

TIMED_CALLS = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check: what it was, by what means, whether it held, and what was seen."""

    model: str
    title: str
    means: str
    passed: bool
    detail: str


def run_tests(elaborated: Elaborated, reader: ParameterReader, model: Model) -> Iterator[Outcome]:
    """Every test twice: first what the model means, then what was made of it."""
    interpreter = Interpreter(elaborated.module, reader)
    for test in elaborated.tests:
        function = elaborated.module.function(test.model)
        inputs = [test.inputs[a.name].load() for a in function.arguments]
        for means in ("interpreter", "artifact"):
            try:
                if means == "interpreter":
                    results: Sequence[Array] = interpreter.run(function, inputs)
                else:
                    made = model.entries[test.model](*inputs)
                    results = made if isinstance(made, tuple) else (made,)
            except (DimError, NacreError) as error:
                yield Outcome(test.model, test.title, means, False, str(error))
                continue
            yield from _judge(test, means, dict(zip(function.result_names, results, strict=True)))


def _judge(test: ModelTest, means: str, results: Mapping[str, Array]) -> Iterator[Outcome]:
    for expectation in test.expectations:
        name = expectation.data.name
        expected, actual = expectation.data.load(), results[name]
        if expected.shape != actual.shape:
            detail = f"`{name}` has the shape {list(actual.shape)}, expected {list(expected.shape)}"
            yield Outcome(test.model, test.title, means, False, detail)
            continue
        error = largest_error(actual, expected)
        detail = f"`{name}` differs by {error:.3g}, {expectation.tolerance:.3g} are allowed"
        yield Outcome(test.model, test.title, means, error <= expectation.tolerance, detail)


def largest_error(actual: Array, expected: Array) -> float:
    """The largest absolute difference; infinite where one is NaN or infinite and the other is not the same."""
    if actual.size == 0:
        return 0.0
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - e))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def run_budgets(elaborated: Elaborated, model: Model, path: Path) -> Iterator[Outcome]:
    """Every budget: what follows from the graph again, and what has to be measured on the artifact."""
    costs = Costs(elaborated.module, lower_module(elaborated.module)) if elaborated.budgets else None
    for budget in elaborated.budgets:
        assert costs is not None
        title = f"budget {budget.metric}"
        try:
            value = _measure(budget, costs, elaborated.module.function(budget.model), model, path)
        except (DimError, NacreError, DiagnosticError) as error:
            yield Outcome(budget.model, title, "budget", False, str(error))
            continue
        if holds(budget, value):
            yield Outcome(budget.model, title, "budget", True, f"{show(value, budget)} of {show(budget.limit, budget)}")
        else:
            fault = over_budget(budget, value)
            yield Outcome(budget.model, title, "budget", False, f"{fault.message}, {fault.label}")


def _measure(budget: ModelBudget, costs: Costs, function: Function, model: Model, path: Path) -> float:
    if budget.metric == "size":
        return path.stat().st_size
    if budget.metric == "memory":
        return model.entries[budget.model].workspace_bytes(**budget.dims)
    if budget.metric == "time":
        return _median_time(function, budget.dims, model)
    formula = costs.formula(budget.metric, budget.model)
    assert formula is not None, budget
    return evaluate(formula, budget.dims)


def _median_time(function: Function, dims: Mapping[str, int], model: Model) -> float:
    """Seconds of one call on zeros."""
    inputs = [np.zeros(a.type.concrete(dims), a.type.dtype.numpy) for a in function.arguments]
    entry = model.entries[function.name]
    entry(*inputs)
    times = []
    for _ in range(TIMED_CALLS):
        start = time.perf_counter()
        entry(*inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
