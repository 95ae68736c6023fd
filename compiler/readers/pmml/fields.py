"""The fields of a PMML file as columns [B]: numbers as they are, text as the index of its value, booleans as 0 and 1.

A missing value is NaN. A mining schema replaces missing values, and treats values that the data dictionary does not
permit: they are errors (the prediction of the row is NaN), missing, kept, or replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....dialect.types import F32, F64
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .markup import Element

_NUMERIC = ("integer", "float", "double")
_CLOSURES = ("openOpen", "openClosed", "closedOpen", "closedClosed")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from `low` to `high`, and whether these belong to it. Without a margin, it includes infinity."""

    low: float
    high: float
    from_low: bool
    to_high: bool


def interval_of(element: Element) -> Interval:
    closure = element.attribute("closure")
    if closure not in _CLOSURES:
        element.fail(f"`closure` is `{closure}`")
    low, high = element.number("leftMargin", -np.inf), element.number("rightMargin", np.inf)
    is_below, is_above = "leftMargin" not in element.attributes, "rightMargin" not in element.attributes
    return Interval(low, high, is_below or closure.startswith("closed"), is_above or closure.endswith("Closed"))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the data dictionary. `values` are its permitted values, in order; empty if any is permitted."""

    name: str
    kind: str
    values: tuple[str, ...]
    missing: tuple[str, ...]
    intervals: tuple[Interval, ...]
    element: Element

    @property
    def is_numeric(self) -> bool:
        return self.kind in _NUMERIC

    def code(self, text: str, at: Element) -> float:
        """Returns the number that represents a value; -1 for an unknown value."""
        if self.is_numeric:
            number = at.parse_number(text, f"the value of `{self.name}`")
            return float(np.float32(number)) if self.kind == "float" else number
        return float(self.values.index(text)) if text in self.values else -1.0


@dataclass(frozen=True, slots=True)
class Column:
    """A field in a call: its values f64[B], and whether they may be missing, or outside of the permitted values."""

    field: Field
    values: Tensor
    has_missing: bool = True
    has_others: bool = False


@dataclass
class Scope:
    """The columns that a model reads, by name, and the rows whose prediction is NaN because a value is not
    permitted."""

    g: GraphWriter
    columns: dict[str, Column] = field(default_factory=dict)
    invalid: list[Tensor] = field(default_factory=list)

    def find(self, name: str, at: Element) -> Column:
        if name not in self.columns:
            at.fail(f"the field `{name}` is not known here")
        return self.columns[name]


def read_dictionary(root: Element) -> Mapping[str, Field]:
    found = {}
    for element in root.required("DataDictionary").all("DataField"):
        name, kind = element.attribute("name"), element.attribute("dataType")
        if kind not in (*_NUMERIC, "string", "boolean"):
            element.fail(f"the field `{name}` has the type `{kind}`, which is not supported", code="unsupported-trees")
        values: dict[str, list[str]] = {"valid": [], "invalid": [], "missing": []}
        for value in element.all("Value"):
            values[value.choice("property", "valid", "invalid", "missing")].append(value.attribute("value"))
        intervals = [interval_of(interval) for interval in element.all("Interval")]
        listed = values["valid"] or (["false", "true"] if kind == "boolean" else [])
        if len(set(listed)) < len(listed):
            element.fail(f"the field `{name}` has a value twice")
        found[name] = Field(name, kind, tuple(listed), tuple(values["missing"]), tuple(intervals), element)
    return found


def active_fields(schema: Element) -> Sequence[Element]:
    """Returns the fields of a mining schema that a model reads."""
    return [f for f in schema.all("MiningField") if f.attributes.get("usageType", "active") == "active"]


def target_of(schema: Element) -> str | None:
    names = [f.attribute("name") for f in schema.all("MiningField")
             if f.attributes.get("usageType") in ("target", "predicted")]  # fmt: skip
    return names[0] if names else None


def write_column(scope: Scope, own: Field, values: Tensor) -> Column:
    """Returns the column of an argument: text must have a list of values, and floats are rounded to their type."""
    g = scope.g
    if not own.is_numeric and not own.values:
        own.element.fail(
            f"the field `{own.name}` is text without a list of values, so its values have no numbers",
            code="unsupported-trees",
        )
    if own.kind == "float" and values.dtype != F32:
        values = g.cast(values, dtype=F32)
    values = values if values.dtype == F64 else g.cast(values, dtype=F64)
    for text in own.missing if own.is_numeric else ():
        number = own.code(text, own.element)
        values = g.where(g.equal(values, g.like(number, values)), g.like(np.nan, values), values)
    return Column(own, values, has_others=not own.is_numeric)


def apply_schema(scope: Scope, schema: Element) -> Scope:
    """Returns the fields of the surrounding model that a model reads."""
    inner = Scope(scope.g, {}, scope.invalid)
    for element in active_fields(schema):
        name = element.attribute("name")
        inner.columns[name] = _treat(scope, scope.find(name, element), element)
    return inner


def _treat(scope: Scope, column: Column, element: Element) -> Column:
    g, x, own = scope.g, column.values, column.field
    treatment = element.choice("invalidValueTreatment", "returnInvalid", "asIs", "asMissing", "asValue")
    element.choice("outliers", "asIs", "asMissingValues", "asExtremeValues")
    permitted = _permitted(g, own, x)
    has_missing, has_others = column.has_missing, column.has_others
    if permitted is not None:
        outside = g.logical_not(g.logical_or(permitted, g.isnan(x)))
        has_others = False
        if treatment == "returnInvalid":
            scope.invalid.append(outside)
        elif treatment == "asMissing":
            x, has_missing = g.where(outside, g.like(np.nan, x), x), True
        elif treatment == "asValue":
            x = g.where(outside, g.like(own.code(element.attribute("invalidValueReplacement"), element), x), x)
        elif not own.is_numeric:
            # No set contains a code beyond the known values.
            x, has_others = g.where(outside, g.like(float(len(own.values)), x), x), True
    if "missingValueReplacement" in element.attributes:
        replacement = own.code(element.attributes["missingValueReplacement"], element)
        x, has_missing = g.where(g.isnan(x), g.like(replacement, x), x), False
    if element.attributes.get("missingValueTreatment") == "returnInvalid" and has_missing:
        scope.invalid.append(g.isnan(x))
        has_missing = False
    outliers = element.attributes.get("outliers", "asIs")
    if outliers != "asIs" and own.is_numeric:
        low, high = (element.number(name) for name in ("lowValue", "highValue"))
        if outliers == "asExtremeValues":
            bounded = g.minimum(g.maximum(x, g.like(low, x)), g.like(high, x))
            x = g.where(g.isnan(x), x, bounded)
        else:
            beyond = g.logical_or(g.less(x, g.like(low, x)), g.greater(x, g.like(high, x)))
            x, has_missing = g.where(beyond, g.like(np.nan, x), x), True
    return replace(column, values=x, has_missing=has_missing, has_others=has_others)


def _permitted(g: GraphWriter, own: Field, x: Tensor) -> Tensor | None:
    """Returns where values are permitted; None if all are."""
    if not own.is_numeric:
        inside = g.logical_and(g.greater_equal(x, g.like(0.0, x)), g.less(x, g.like(float(len(own.values)), x)))
        return g.logical_and(inside, g.equal(g.floor(x), x))
    parts = []
    if own.values:
        listed = known(np.asarray([own.code(text, own.element) for text in own.values]), F64)
        parts.append(g.any(g.equal(g.unsqueeze(x, axes=(1,)), listed), axis=(1,)))
    for interval in own.intervals:
        above = (g.greater_equal if interval.from_low else g.greater)(x, g.like(interval.low, x))
        below = (g.less_equal if interval.to_high else g.less)(x, g.like(interval.high, x))
        parts.append(g.logical_and(above, below))
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = g.logical_or(total, part)
    return total


def words_of(array: Element) -> list[str]:
    """Returns the elements of an `Array`: words, or text in quotation marks."""
    found = [
        plain if plain else re.sub(r"\\(.)", r"\1", quoted)
        for quoted, plain in _QUOTED.findall(array.text)
    ]  # fmt: skip
    if "n" in array.attributes and array.number("n") != len(found):
        array.fail(f"`Array` has {len(found)} elements, and declares {array.attributes['n']}")
    return found
