"""`RegressionModel`: linear sums of fields and their link functions, alone or at the end of a chain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....dialect.types import F64
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .fields import Scope
from .markup import Element
from .results import Result, of_probabilities
from .scores import Classes

_LINKS: dict[str, Callable[[GraphWriter, Tensor], Tensor]] = {
    "none": lambda g, x: x,
    "softmax": lambda g, x: g.sigmoid(x),
    "logit": lambda g, x: g.sigmoid(x),
    "exp": lambda g, x: g.exp(x),
}
"""The link functions of a number."""


def write_regression(scope: Scope, model: Element, classes: Classes | None, rows: Tensor) -> Result:
    """Writes a model; `classes` are None for numbers, and `rows` is a column, for the number of rows."""
    g, link = scope.g, model.attributes.get("normalizationMethod", "none")
    tables = list(model.all("RegressionTable"))
    sums = [_sum(scope, table, rows) for table in tables]
    if classes is None:
        if len(tables) != 1:
            model.fail(f"a regression has {len(tables)} tables, expected 1")
        if link not in _LINKS:
            model.fail(f"`normalizationMethod` is `{link}`, which is not supported", code="unsupported-trees")
        return Result(_LINKS[link](g, sums[0]))
    positions = [classes.index(table.attribute("targetCategory"), table) for table in tables]
    if sorted(positions) != list(range(len(classes.names))) or len(positions) < 2:
        model.fail(f"the model has tables of {len(set(positions))} classes, and the target has {len(classes.names)}")
    if link in ("softmax", "simplemax"):
        scores = g.stack(*sums, axis=1)
        total = g.softmax(scores, axis=1) if link == "softmax" else _shares(g, scores)
    elif len(tables) == 2 and link in ("none", "logit"):
        # The probability of the second class is 1 minus that of the first.
        first = _LINKS[link](g, sums[0])
        total = g.stack(first, g.subtract(g.like(1.0, first), first), axis=1)
    else:
        message = f"`normalizationMethod` is `{link}` for {len(tables)} classes, which is not supported"
        model.fail(message, code="unsupported-trees")
    order = np.argsort(positions)
    return of_probabilities(g, g.gather(total, known(order), axis=1, mode="clamp"), classes.names)


def _shares(g: GraphWriter, x: Tensor) -> Tensor:
    return g.divide(x, g.sum(x, axis=1, keepdims=True))


def _sum(scope: Scope, table: Element, rows: Tensor) -> Tensor:
    g = scope.g
    total = g.broadcast_to(known(table.number("intercept"), F64), shape=rows.shape)
    for term in table.all("NumericPredictor", "CategoricalPredictor", "PredictorTerm"):
        if term.name == "PredictorTerm":
            parts = [scope.find(ref.attribute("field"), ref) for ref in term.all("FieldRef")]
            if not parts:
                term.fail("a term has no fields")
        else:
            parts = [scope.find(term.attribute("name"), term)]
        if term.name == "CategoricalPredictor":
            (column,) = parts
            code = column.field.code(term.attribute("value"), term)
            added = g.cast(g.equal(column.values, g.like(code, column.values)), dtype=F64)
        else:
            text = next((c for c in parts if not c.field.is_numeric), None)
            if text is not None:
                term.fail(f"the field `{text.field.name}` is text, which has no number")
            added = parts[0].values
            for column in parts[1:]:
                added = g.multiply(added, column.values)
            exponent = term.number("exponent", 1.0)
            added = added if exponent == 1.0 else g.power(added, known(exponent, F64))
        total = g.add(total, g.multiply(added, known(term.number("coefficient"), F64)))
    return total
