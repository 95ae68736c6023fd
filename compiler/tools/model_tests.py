"""Runs the tests and budgets of a model file: each test by the reference interpreter and by the compiled artifact."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.dims import DimError, evaluate
from ...dialect.graph import Function, Module
from ...dialect.interpreter import Interpreter, Load, bind_dims
from ...dialect.lazy_dataclass import dataclass
from ...dialect.states import initial_values
from ...dialect.types import Array
from ...runtime.loader import Model, NacreError, load
from ..base.repeated import begin_session
from ..budgets import Costs, holds, over_budget, show
from ..model.checks import ModelBudget, ModelTest
from ..model.parameters import ParameterReader, open_parameters
from ..model.source import SourceModel
from ..pipeline import Build
from ..stages import LINK
from ..validate.array_errors import Numbers, absolute_errors, measure_errors
from ..validate.stateful import call_function, session_sizes

TIMED_CALLS = 20
TIMED_SECONDS = 5.0
"""A `time` budget is compared with the median of `TIMED_CALLS` calls, or of those within this many seconds."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """The worst element of a result: its index, and both values in a form that JSON can represent. `elements` is the
    number of elements with an inadmissible error."""

    index: tuple[int, ...]
    expected: float | str
    got: float | str
    elements: int

    def __str__(self) -> str:
        more = f"; {self.elements} elements are wrong" if self.elements > 1 else ""
        return f"at {list(self.index)}: expected {self.expected}, got {self.got}{more}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check: its subject, the executor, whether it succeeded, the observed value, and the location of the check in
    the model file."""

    model: str
    title: str
    means: str
    passed: bool
    detail: str
    at: str = ""
    wrong: Wrong | None = None


def test_model(build: Build, stated: SourceModel | None = None) -> list[Outcome]:
    """Compiles into a temporary folder and runs every test and budget of the model.

    stated: the model file with the tests, if the build begins with a dumped stage, which contains none.

    Raises DiagnosticError and CompilerError if the model cannot be built.
    """
    stated = stated or build.source_model
    _check_same(stated, build.source_model)
    with TemporaryDirectory(prefix="nacre-test-") as folder:
        path = build.output = Path(folder) / f"{build.source_model.module.name}.so"
        # Budgets are reported, so they are not checked.
        build.make(LINK.gives)
        assert build.optimized is not None and build.program is not None, build
        model = load(path)
        return [
            *run_tests(stated, open_parameters(stated), model),
            *run_budgets(stated, build.costs(build.optimized, build.program), model, path),
        ]


def _check_same(stated: SourceModel, built: SourceModel) -> None:
    """Raises DiagnosticError if the tested models are not those of the build."""
    there = {function.name: _signature(function) for function in built.module.functions}
    tested = [*(test.model for test in stated.tests), *(budget.model for budget in stated.budgets)]
    for name in dict.fromkeys(tested):
        if there.get(name) != _signature(stated.module.function(name)):
            message = f"`{stated.file}` tests `{name}`, which `{built.file}` does not define"
            raise DiagnosticError([Diagnostic("other-model", message)])


def _signature(function: Function) -> list[tuple[str, str]]:
    names = (*(argument.name for argument in function.arguments), *function.result_names)
    values = (*function.arguments, *function.results)
    return [(name, str(value.type)) for name, value in zip(names, values, strict=True)]


test_model.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of this name for tests


def run_tests(source_model: SourceModel, reader: ParameterReader, model: Model) -> Iterator[Outcome]:
    """Yields the outcomes of every test, first in the reference interpreter, then in the compiled artifact."""
    interpreter = Interpreter(source_model.module, reader)

    def call(name: str, inputs: Sequence[Array]) -> Sequence[Array]:
        return call_function(model, name, inputs, bind_dims(source_model.module.function(name), inputs))

    means: Mapping[str, Callable[[str, Sequence[Array]], Sequence[Array]]] = {
        "interpreter": interpreter.run,
        "artifact": call,
    }
    for test in source_model.tests:
        for name, run in means.items():
            try:
                yield from _judge(source_model.module, test, name, run, reader)
            except (DimError, NacreError) as error:
                yield Outcome(test.model, test.title, name, False, str(error), str(test.span))
            except DiagnosticError as error:
                yield Outcome(test.model, test.title, name, False, error.diagnostics[0].message, str(test.span))


def _judge(
    module: Module, test: ModelTest, means: str, run: Callable[[str, Sequence[Array]], Sequence[Array]], load: Load
) -> Iterator[Outcome]:
    function = module.function(test.model)
    given = {name: data.load() for name, data in test.inputs.items()}
    results = run(function.name, [given[a.name] for a in function.inputs] + _begin(module, function, given, load))
    by_name = dict(zip(function.result_names, results, strict=True))
    for expectation in test.expectations:
        name = expectation.data.name
        expected, actual, at = expectation.data.load(), by_name[name], str(expectation.data.span)
        if expected.shape != actual.shape:
            detail = f"`{name}` has the shape {list(actual.shape)}, expected {list(expected.shape)}"
            yield Outcome(test.model, test.title, means, False, detail, at)
            continue
        error = measure_errors(actual, expected).largest
        detail = f"`{name}` differs by {error:.3g}, {expectation.tolerance:.3g} is allowed"
        passed = error <= expectation.tolerance
        errors = absolute_errors(actual, expected)
        if passed and expectation.signed and (turned := _turned_zeros(actual, expected)).any():
            count = int(np.count_nonzero(turned))
            detail = f"{count} zero{'s' * (count != 1)} of `{name}` have the opposite sign"
            passed, errors = False, np.where(turned, np.inf, 0.0)
        wrong = None if passed else _find_wrong(actual, expected, errors, expectation.tolerance)
        yield Outcome(test.model, test.title, means, passed, detail, at, wrong)


def _turned_zeros(actual: Array, expected: Array) -> NDArray[np.bool_]:
    x, y = (a.astype(np.float64) for a in (actual, expected))
    return np.asarray((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y)))


def _find_wrong(actual: Array, expected: Array, errors: Numbers, tolerance: float) -> Wrong:
    index = tuple(int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
    wanted, got = (_plain(side[index]) for side in (expected, actual))
    return Wrong(index, wanted, got, int(np.count_nonzero(errors > tolerance)))


def _plain(element: Any) -> float | str:
    """Returns an element of an array as a number that JSON has, or as text."""
    value: float = element.item()
    return value if math.isfinite(value) else str(value)


def _begin(module: Module, function: Function, given: Mapping[str, Array], load: Load) -> list[Array]:
    """Returns the states before a test: the given values, else the initial ones. A session dim that the given arrays do
    not determine gets its minimum."""
    bound = [a for a in function.arguments if a.name in given]
    dims = {symbol.name: symbol.low for symbol in function.symbols()}
    dims |= bind_dims(replace(function, arguments=tuple(bound), states=()), [given[a.name] for a in bound])
    initial = initial_values(module, function, dims, load)
    return [given.get(a.name, value) for a, value in zip(function.state_arguments, initial, strict=True)]


def run_budgets(source_model: SourceModel, costs: Costs, model: Model, path: Path) -> Iterator[Outcome]:
    """Yields the outcomes of every budget: first those that follow from the graph, then the measured ones."""
    for budget in source_model.budgets:
        title, at = f"budget {budget.metric}", str(budget.span)
        try:
            value = _measure(budget, costs, source_model.module.function(budget.model), model, path)
        except (DimError, NacreError) as error:
            yield Outcome(budget.model, title, "budget", False, str(error), at)
            continue
        except DiagnosticError as error:
            yield Outcome(budget.model, title, "budget", False, error.diagnostics[0].message, at)
            continue
        detail = f"{show(value, budget)}, the budget is {budget.comparison} {show(budget.limit, budget)}"
        if not holds(budget, value):
            detail += f": {over_budget(budget, value).label}"
        yield Outcome(budget.model, title, "budget", holds(budget, value), detail, at)


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
    """Returns the median seconds of one call on zeros, with the initial values of states."""
    inputs = [np.zeros(a.type.concrete(dims), a.type.dtype.numpy) for a in function.inputs]
    session, restart = begin_session(model, session_sizes(model, dims) if function.states else None)
    entry = session.entries[function.name]
    entry(*inputs)
    times: list[float] = []
    while len(times) < TIMED_CALLS and sum(times) < TIMED_SECONDS:
        restart()
        start = time.perf_counter()
        entry(*inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
