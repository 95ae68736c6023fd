"""Derived fields that look values up: `Discretize` has intervals of a number, `MapValues` a table of several fields.

    Discretize    a in [0, 10) -> "low"      the first interval that holds the number, else `defaultValue`
    MapValues     (red, 2) -> 7              the first row whose cells equal the fields, else `defaultValue`

A missing operand gives `mapMissingTo`. Without these attributes the result is missing. Text becomes the index of the
value among all results, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....dialect.types import F64
from ..writing.tensors import Tensor, known
from .fields import Scope, interval_of
from .markup import Element

LOOK_UPS = ("Discretize", "MapValues")
_DEFAULTS = ("mapMissingTo", "defaultValue")
Encode = Callable[[str, Element], float]
"""Returns the number of a result."""


def results_of(element: Element) -> tuple[str, ...]:
    """Returns the texts that a look-up may give, each once."""
    texts = [text for text, _ in _outputs(element)]
    texts += [element.attributes[name] for name in _DEFAULTS if name in element.attributes]
    return tuple(dict.fromkeys(texts))


def write_look_up(scope: Scope, element: Element, encode: Encode) -> Tensor:
    """Returns the numbers of the results, f64[B]."""
    g = scope.g
    missing, default = (
        encode(element.attributes[name], element) if name in element.attributes else np.nan for name in _DEFAULTS
    )
    outputs = np.asarray([encode(text, at) for text, at in _outputs(element)], np.float64)
    matches, is_missing = (_bins if element.name == "Discretize" else _rows)(scope, element)
    first = g.argmax(g.cast(matches, dtype=F64), axis=1)
    chosen = g.gather(known(outputs), first, axis=0, mode="clamp")
    found = g.where(g.any(matches, axis=(1,)), chosen, known(default, F64))
    return g.where(is_missing, known(missing, F64), found)


def _outputs(element: Element) -> Sequence[tuple[str, Element]]:
    """Returns the texts of the results, row by row, and their elements."""
    if element.name == "Discretize":
        found = [(part.attribute("binValue"), part) for part in element.all("DiscretizeBin")]
    else:
        column = element.attribute("outputColumn")
        found = [(_cell(row, column), row) for row in _table(element)]
    if not found:
        element.fail(f"`{element.name}` has no results")
    return found


def _bins(scope: Scope, element: Element) -> tuple[Tensor, Tensor]:
    """Returns where a number is in an interval, [B, intervals], and where it is missing."""
    g, column = scope.g, scope.find(element.attribute("field"), element)
    if not column.field.is_numeric:
        element.fail(f"the field `{column.field.name}` is text, which has no intervals", code="unsupported-trees")
    bins = [interval_of(part.required("Interval")) for part in element.all("DiscretizeBin")]
    low, high = (known(np.asarray([getattr(each, end) for each in bins], np.float64)) for end in ("low", "high"))
    from_low, to_high = (known(np.asarray([getattr(each, has) for each in bins])) for has in ("from_low", "to_high"))
    x = g.unsqueeze(column.values, axes=(1,))
    above = g.logical_or(g.greater(x, low), g.logical_and(from_low, g.equal(x, low)))
    below = g.logical_or(g.less(x, high), g.logical_and(to_high, g.equal(x, high)))
    return g.logical_and(above, below), g.isnan(column.values)


def _rows(scope: Scope, element: Element) -> tuple[Tensor, Tensor]:
    """Returns where the fields are equal to the cells of a row, [B, rows], and where a field is missing."""
    g, rows = scope.g, _table(element)
    pairs = list(element.all("FieldColumnPair"))
    if not pairs:
        element.fail("`MapValues` reads no fields")
    matches, missing = list[Tensor](), list[Tensor]()
    for pair in pairs:
        column, name = scope.find(pair.attribute("field"), pair), pair.attribute("column")
        cells = np.asarray([column.field.code(_cell(row, name), row) for row in rows], np.float64)
        if not column.field.is_numeric:
            # No value is equal to NaN, so no row contains a text that the field does not define.
            cells[cells < 0] = np.nan
        matches.append(g.equal(g.unsqueeze(column.values, axes=(1,)), known(cells)))
        missing.append(g.isnan(column.values))
    for more, others in ((matches, g.logical_and), (missing, g.logical_or)):
        while len(more) > 1:
            more[:2] = [others(more[0], more[1])]
    return matches[0], missing[0]


def _table(element: Element) -> list[Element]:
    if element.first("TableLocator") is not None:
        element.fail("the table is outside of the file (`TableLocator`)", code="unsupported-trees")
    return list(element.required("InlineTable").all("row"))


def _cell(row: Element, column: str) -> str:
    found = row.first(column)
    if found is None:
        row.fail(f"a row has no cell `{column}`")
    return found.text.strip()
