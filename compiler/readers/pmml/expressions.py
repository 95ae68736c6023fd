"""Derived fields as columns: references, constants, arithmetic, piecewise linear functions, and look-ups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from ....dialect.types import F32, F64
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .fields import Column, Field, Scope
from .markup import Element
from .tables import LOOK_UPS, results_of, write_look_up

_EXPRESSIONS = ("FieldRef", "Constant", "Apply", "NormContinuous", "NormDiscrete", *LOOK_UPS)
_MOST_NESTED = 200


def _numbers(compare: Callable[..., Tensor]) -> Callable[[GraphWriter, Sequence[Tensor]], Tensor]:
    """Converts a comparison to a number: 1, 0, or NaN if an operand is missing."""

    def write(g: GraphWriter, x: Sequence[Tensor]) -> Tensor:
        unknown = g.logical_or(g.isnan(x[0]), g.isnan(x[1]))
        return g.where(unknown, known(np.nan, F64), g.cast(compare(g, x[0], x[1]), dtype=F64))

    return write


def _folded(name: str) -> Callable[[GraphWriter, Sequence[Tensor]], Tensor]:
    return lambda g, x: reduce(getattr(g, name), x)


def _single(name: str) -> Callable[[GraphWriter, Sequence[Tensor]], Tensor]:
    return lambda g, x: getattr(g, name)(x[0])


_FUNCTIONS: Mapping[str, tuple[tuple[int, int], Callable[[GraphWriter, Sequence[Tensor]], Tensor]]] = {
    **{name: ((2, 2), _folded(op)) for name, op in (
        ("+", "add"), ("-", "subtract"), ("*", "multiply"), ("/", "divide"), ("pow", "power"))},
    **{name: ((1, 64), _folded(op)) for name, op in (
        ("sum", "add"), ("product", "multiply"), ("min", "minimum"), ("max", "maximum"))},
    **{name: ((1, 1), _single(op)) for name, op in (
        ("exp", "exp"), ("ln", "log"), ("sqrt", "sqrt"), ("abs", "abs"), ("floor", "floor"), ("ceil", "ceil"))},
    **{name: ((2, 2), _numbers(compare)) for name, compare in (
        ("equal", lambda g, a, b: g.equal(a, b)), ("notEqual", lambda g, a, b: g.not_equal(a, b)),
        ("lessThan", lambda g, a, b: g.less(a, b)), ("lessOrEqual", lambda g, a, b: g.less_equal(a, b)),
        ("greaterThan", lambda g, a, b: g.greater(a, b)), ("greaterOrEqual", lambda g, a, b: g.greater_equal(a, b)))},
    "isMissing": ((1, 1), lambda g, x: g.cast(g.isnan(x[0]), dtype=F64)),
    "isNotMissing": ((1, 1), lambda g, x: g.cast(g.logical_not(g.isnan(x[0])), dtype=F64)),
    "if": ((2, 3), lambda g, x: g.where(
        g.isnan(x[0]), known(np.nan, F64),
        g.where(g.not_equal(x[0], known(0.0, F64)), x[1], x[2] if len(x) > 2 else known(np.nan, F64)))),
}  # fmt: skip
"""The functions of `Apply`: the minimum and maximum number of arguments, and the function that writes the nodes."""


def derive(scope: Scope, owner: Element | None) -> None:
    """Adds the derived fields of a dictionary or of local transformations."""
    for element in owner.all("DerivedField") if owner is not None else ():
        name = element.attribute("name")
        scope.columns[name] = derived_column(scope, element, name)


def derived_column(scope: Scope, element: Element, name: str) -> Column:
    expression = element.first(*_EXPRESSIONS)
    if expression is None:
        shown = ", ".join(child.name for child in element.children if child.name != "Extension") or "no expression"
        element.fail(f"the field `{name}` has {shown}, which is not supported", code="unsupported-trees")
    kind = element.attributes.get("dataType", "double")
    source = expression.attributes.get("field") if expression.name == "FieldRef" else None
    if source is not None and "mapMissingTo" not in expression.attributes:
        own = scope.find(source, expression)
        if not own.field.is_numeric or kind == own.field.kind:
            return own
    if kind == "string" and expression.name in LOOK_UPS:
        texts = results_of(expression)
        own_field = Field(name, kind, texts, (), (), element)
        return Column(own_field, write_look_up(scope, expression, lambda text, _: float(texts.index(text))))
    if kind not in ("double", "float", "integer", "boolean"):
        element.fail(f"the field `{name}` has the type `{kind}`, which is not supported", code="unsupported-trees")
    g, values = scope.g, write_expression(scope, expression)
    if not values.shape:
        rows = next((column.values.shape for column in scope.columns.values()), None)
        if rows is None:
            element.fail(f"the field `{name}` is a constant of a model without fields", code="unsupported-trees")
        values = g.broadcast_to(values, shape=rows)
    if kind == "float":
        values = g.cast(g.cast(values, dtype=F32), dtype=F64)
    return Column(Field(name, "float" if kind == "float" else "double", (), (), (), element), values)


def write_expression(scope: Scope, element: Element, nested: int = 0) -> Tensor:
    g = scope.g
    if nested > _MOST_NESTED:
        element.fail(f"expressions are nested more than {_MOST_NESTED} times", code="too-large")
    if element.name == "Constant":
        return known(element.parse_number(_constant(element), "a constant"), F64)
    if element.name == "Apply":
        name = element.attribute("function")
        if name not in _FUNCTIONS:
            element.fail(f"the function `{name}` is not supported", code="unsupported-trees")
        parts = [write_expression(scope, child, nested + 1) for child in element.all(*_EXPRESSIONS)]
        (least, most), write = _FUNCTIONS[name]
        if not least <= len(parts) <= most:
            element.fail(f"the function `{name}` has {len(parts)} arguments")
        found = write(g, parts)
        for missing in ("mapMissingTo", "defaultValue"):
            if missing in element.attributes:
                found = _replaced(g, found, element.number(missing))
        return found
    if element.name in LOOK_UPS:
        return write_look_up(scope, element, lambda text, at: at.parse_number(text, f"a result of `{element.name}`"))
    column = scope.find(element.attribute("field"), element)
    if element.name == "NormDiscrete":
        code = column.field.code(element.attribute("value"), element)
        is_equal = g.cast(g.equal(column.values, g.like(code, column.values)), dtype=F64)
        found = g.where(g.isnan(column.values), column.values, is_equal)
    elif not column.field.is_numeric:
        element.fail(f"the field `{column.field.name}` is text, which has no number", code="unsupported-trees")
    else:
        found = column.values if element.name == "FieldRef" else _pieces(g, column.values, element)
    return _replaced(g, found, element.number("mapMissingTo")) if "mapMissingTo" in element.attributes else found


def _constant(element: Element) -> str:
    return element.text or element.attributes.get("value", "")


def _replaced(g: GraphWriter, x: Tensor, value: float) -> Tensor:
    return g.where(g.isnan(x), known(value, F64), x)


def _pieces(g: GraphWriter, x: Tensor, element: Element) -> Tensor:
    """A piecewise linear function. Outside its points it is extrapolated, constant or missing, as `outliers` says."""
    points = [(p.number("orig"), p.number("norm")) for p in element.all("LinearNorm")]
    rises = all(a[0] < b[0] for a, b in itertools.pairwise(points))
    if len(points) < 2 or not rises:
        element.fail("`NormContinuous` needs two points or more, in rising order")
    outliers = element.choice("outliers", "asIs", "asExtremeValues", "asMissingValues")
    result = None
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        slope = g.divide(g.subtract(x, known(x0, F64)), known(x1 - x0, F64))
        line = g.add(known(y0, F64), g.multiply(slope, known(y1 - y0, F64)))
        result = line if result is None else g.where(g.less(x, known(x0, F64)), result, line)
    assert result is not None, element
    (low, first), (high, last) = points[0], points[-1]
    ends = (known(first, F64), known(last, F64)) if outliers == "asExtremeValues" else (known(np.nan, F64),) * 2
    if outliers == "asIs":
        return result
    inner = g.where(g.less(x, known(low, F64)), ends[0], result)
    return g.where(g.greater(x, known(high, F64)), ends[1], inner)
