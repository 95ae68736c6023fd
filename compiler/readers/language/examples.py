"""Reads `test` and `budget` blocks into records. Nothing is run or measured here.

A test's data is a file, which is read on demand, or a constant expression, which the reference interpreter computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ....dialect.diagnostics import Span
from ....dialect.dims import DimError, Poly, Symbol
from ....dialect.graph import Function, Value, result_of_state, walk
from ....dialect.interpreter import bind_dims
from ....dialect.types import DType, TensorType
from ...model.checks import METRICS, Expectation, ModelBudget, ModelTest, TestData
from . import syntax
from .context import Context, suggest
from .files import find_file
from .operators import literal
from .statics import demand_integer
from .values import ERROR, BlockValue, FileScope, Frame, Kind, Poison, contains_error, describe
from .writer import Writer

DATA_ELEMENTS = 1 << 24


def _model(
    context: Context, scope: FileScope, functions: Mapping[str, Function], name: syntax.Name
) -> Function | Poison:
    """Returns the function of the model that a test or a budget names."""
    binding = scope.names.get(name.name)
    if binding is None or binding.kind is not Kind.MODEL:
        models = [n for n, b in scope.names.items() if b.kind is Kind.MODEL]
        message = f"there is no model `{name.name}`"
        return context.reporter.error("unknown-name", message, name.span, help=suggest(name.name, models))
    assert isinstance(binding.value, BlockValue)
    return functions.get(name.name, ERROR)


def read_test(
    context: Context, scope: FileScope, functions: Mapping[str, Function], test: syntax.Test
) -> ModelTest | Poison:
    function = _model(context, scope, functions, test.model)
    if function is ERROR:
        return ERROR
    report = context.reporter.error
    arguments = {a.name: a.type for a in function.arguments}
    kept = {a.name for a in function.state_arguments}
    results = dict(zip(function.result_names, (r.type for r in function.results), strict=True))
    inputs: dict[str, TestData] = {}
    failed = False
    for given in test.givens:
        name = given.name.name
        if name not in arguments:
            message = f"`{function.name}` has no argument `{name}`"
            report("wrong-arguments", message, given.name.span, help=suggest(name, arguments))
            failed = True
        elif name in inputs:
            report("wrong-arguments", f"`{name}` is given twice", given.name.span)
        else:
            data = _data(context, scope, name, arguments[name], given.value)
            failed |= data is ERROR
            if data is not ERROR:
                inputs[name] = data
    missing = [f"`{name}`" for name in arguments if name not in inputs and name not in kept]
    if missing and not failed:
        report("wrong-arguments", f"the test does not give a value for {', '.join(missing)}", test.span)
    expectations: list[Expectation] = []
    for expect in test.expects:
        name = next(iter(results)) if expect.name is None else expect.name.name
        name = name if name in results else result_of_state(name)
        if name not in results:
            assert expect.name is not None
            message = f"`{function.name}` has no result `{expect.name.name}`"
            help_text = suggest(expect.name.name, results) or _list(results)
            report("wrong-results", message, expect.name.span, help=help_text)
            failed = True
            continue
        if isinstance(expect.value, syntax.Binary) and _is_result(expect.value.left, results):
            message = "an `expect` compares a result with data, and is no condition"
            help_text = f"`expect {name} = [...] within 1e-6`, or a model that returns the condition"
            report("wrong-results", message, expect.value.span, help=help_text)
            failed = True
            continue
        data = _data(context, scope, name, results[name], expect.value)
        tolerance = _tolerance(context, scope, expect.within)
        if data is not ERROR and tolerance is not ERROR:
            expectations.append(Expectation(data, tolerance, expect.signed))
    if not test.expects:
        report("wrong-results", "the test has no `expect`", test.span, help='`expect file "result.npy" within 1e-5`')
    if failed:
        return ERROR
    if not missing:
        _check_shapes(context, function, inputs, expectations, test.span)
    return ModelTest(function.name, test.title.value, inputs, tuple(expectations), test.span)


def _list(results: Iterable[str]) -> str:
    return f"its results are {', '.join(f'`{name}`' for name in results)}"


def _is_result(node: syntax.Expression, results: Iterable[str]) -> bool:
    return isinstance(node, syntax.Name) and node.name in results


def _check_shapes(
    context: Context,
    function: Function,
    inputs: Mapping[str, TestData],
    expectations: Sequence[Expectation],
    span: Span,
) -> None:
    """Checks that the sizes of data in the source agree with each other. Data in files is checked when it is read."""
    shapes = [inputs[a.name].shape if a.name in inputs else None for a in function.arguments]
    if None in shapes:
        return
    arrays = [np.broadcast_to(np.int8(0), shape) for shape in shapes if shape is not None]
    try:
        dims = bind_dims(function, arrays)
    except DimError as error:
        context.reporter.error("shape-mismatch", str(error), span)
        return
    for data in (e.data for e in expectations):
        wanted = data.type.concrete(dims)
        if data.shape not in (None, wanted):
            message = f"`{data.name}` has the shape {list(wanted)} for these inputs, not {list(data.shape or ())}"
            context.reporter.error("shape-mismatch", message, data.span)


def _tolerance(context: Context, scope: FileScope, node: syntax.Expression | None) -> float | Poison:
    if node is None:
        return 0.0
    value = context.evaluate(node, Frame(scope))
    if value is ERROR:
        return ERROR
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    message = f"a tolerance must be a non-negative number, not {describe(value)}"
    return context.reporter.error("bad-tolerance", message, node.span)


def _data(
    context: Context, scope: FileScope, name: str, type: TensorType, node: syntax.Expression | syntax.FileData
) -> TestData | Poison:
    if isinstance(node, syntax.FileData):
        path = find_file(context, scope, node.path)
        return ERROR if path is ERROR else TestData(name, type, node.span, path=path)
    function = _constant(context, scope, name, type.dtype, node)
    if function is ERROR:
        return ERROR
    actual = function.results[0].type
    fits = actual.rank == type.rank and all(
        a == s or isinstance(s, Poly) for a, s in zip(actual.shape, type.shape, strict=True)
    )
    if actual.dtype != type.dtype or not fits:
        message = f"`{name}` must be {type}, not {actual}"
        return context.reporter.error("shape-mismatch", message, node.span)
    return TestData(name, type, node.span, function=function)


def _constant(
    context: Context, scope: FileScope, name: str, dtype: DType, node: syntax.Expression
) -> Function | Poison:
    """Returns a function without arguments that computes the expression."""
    frame = Frame(scope)
    saved, context.writer = context.writer, Writer(count=context.writer.count)
    try:
        value = context.evaluate(node, frame)
        if not isinstance(value, Value) and not contains_error(value):
            value = literal(context, frame, value, dtype, node.span)
        body = context.writer.bodies[0].all_nodes
    finally:
        saved.count = context.writer.count
        context.writer = saved
    if contains_error(value):
        return ERROR
    assert isinstance(value, Value), value
    elements = 0
    for made in walk(body):
        for output in made.outputs:
            size = output.type.elements
            if isinstance(size, Poly):
                message = "the data of a test cannot depend on a dim"
                return context.reporter.error("not-constant", message, node.span)
            elements += size
    if elements > DATA_ELEMENTS:
        return context.reporter.error("too-large", "literals of this size must be stored in a file", node.span)
    return Function(name, (), body, (value,), (name,), node.span)


_AT_SIZES = frozenset({"memory", "states", "time", "operations"})
"""The metrics that depend on the sizes of dims."""


def read_budget(
    context: Context, scope: FileScope, functions: Mapping[str, Function], budget: syntax.Budget
) -> list[ModelBudget]:
    function = _model(context, scope, functions, budget.model)
    if function is ERROR:
        return []
    kept = {s for f in functions.values() for v in f.state_arguments for s in v.type.symbols()}
    session = sorted(kept, key=lambda symbol: symbol.name)
    found = [_limit(context, scope, function, session, limit) for limit in budget.limits]
    return [limit for limit in found if limit is not ERROR]


def _limit(
    context: Context, scope: FileScope, function: Function, session: Sequence[Symbol], limit: syntax.Limit
) -> ModelBudget | Poison:
    """Reads a limit of a model. The limit `states` concerns the states of all models, whose session dims are
    `session`."""
    report = context.reporter.error
    metric = limit.metric.name
    if metric not in METRICS:
        help_text = suggest(metric, METRICS) or f"known are {', '.join(METRICS)}"
        return report("unknown-metric", f"there is no metric `{metric}`", limit.metric.span, help=help_text)
    if limit.quantity.measure != METRICS[metric]:
        unit = f"`{limit.quantity.unit}`" if limit.quantity.unit else "a plain number"
        message = f"`{metric}` is measured in {METRICS[metric]}, not in {unit}"
        return report("wrong-unit", message, limit.quantity.span)
    symbols = {s.name: s for s in (session if metric == "states" else function.symbols())}
    dims: dict[str, int] = {}
    for argument in limit.arguments:
        if argument.name is None or argument.name.name not in symbols:
            name = "" if argument.name is None else argument.name.name
            owner = "a session" if metric == "states" else f"`{function.name}`"
            message = f"{owner} has no dim `{name}`" if name else "a size is given by name: `B=1`"
            return report("wrong-arguments", message, argument.value.span, help=suggest(name, symbols))
        symbol = symbols[argument.name.name]
        what = f"the size of `{symbol.name}`"
        value = demand_integer(context, context.evaluate(argument.value, Frame(scope)), argument.value.span, what)
        if value is ERROR:
            return ERROR
        if not symbol.low <= value <= symbol.high or value % symbol.multiple:
            message = f"`{symbol.name}` cannot be {value}"
            return report("bad-range", message, argument.value.span, f"declared as `{symbol}`")
        dims[symbol.name] = value
    missing = [f"`{name}`" for name in symbols if name not in dims]
    if missing and metric in _AT_SIZES:
        text = ", ".join(f"{name}=..." for name in symbols)
        message = f"`{metric}` depends on {', '.join(missing)}"
        return report("wrong-arguments", message, limit.span, help=f"`{metric}({text})`")
    quantity = limit.quantity
    return ModelBudget(
        function.name,
        metric,
        dims,
        limit.comparison,
        float(quantity.base_value),
        quantity.unit,
        quantity.measure,
        limit.span,
    )
