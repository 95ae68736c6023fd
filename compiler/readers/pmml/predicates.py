"""Predicates of PMML: as tests that a node of a tree makes, and as columns for all others.

A predicate is true, false, or unknown, if it reads a missing value. A test compares one column with a threshold, or
looks a category up in a set, so a node of `tree_ensemble` computes it. Every other predicate becomes a column of its
own, which is 1, 0 or NaN, and the node tests that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from ....dialect.types import BOOL, F64
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .fields import Column, Scope, words_of
from .markup import Element

PREDICATES = ("SimplePredicate", "SimpleSetPredicate", "CompoundPredicate", "True", "False")
_ORDERS = ("lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual")
_MOST_NESTED = 200


class Missing(Enum):
    """The result of a test for a missing value."""

    TRUE, FALSE, UNKNOWN = range(3)


@dataclass(frozen=True, slots=True)
class Test:
    """`x < threshold` or, with a set, `x in members` for the numbers of categories; reversed if `is_reversed`.

    The column is a field, by name, or a tensor that is made for the predicate.
    """

    column: str
    threshold: float = 0.0
    members: frozenset[int] | None = None
    is_reversed: bool = False
    missing: Missing = Missing.UNKNOWN

    def is_complement_of(self, other: Test) -> bool:
        """Whether this test is true where the other is false, false where it is true, and unknown where it is
        unknown."""
        return self.is_reversed != other.is_reversed and self == replace(other, is_reversed=self.is_reversed)


@dataclass
class Predicates:
    """Reads the predicates of one model; `made` are the columns that it makes, by their names."""

    scope: Scope
    next_after: Callable[[float], float]
    made: dict[str, Tensor]

    def read(self, element: Element) -> Test | bool:
        """Returns a predicate as a test, or as true or false."""
        if element.name in ("True", "False"):
            return element.name == "True"
        found = self._direct(element)
        return self.column_test(self.as_column(element)) if found is None else found

    def column_test(self, column: Tensor) -> Test:
        name = f" {len(self.made)}"
        self.made[name] = column
        return Test(name, 0.5, is_reversed=True)

    def as_column(self, element: Element) -> Tensor:
        g = self.scope.g
        true, false = self.write(element)
        one, zero, unknown = (known(x, F64) for x in (1.0, 0.0, np.nan))
        return g.where(true, one, g.where(false, zero, unknown))

    # Tests

    def _direct(self, element: Element) -> Test | None:
        if element.name == "SimplePredicate":
            return self._simple_test(element)
        if element.name == "SimpleSetPredicate":
            return self._set_test(element)
        return self._guarded_test(element)

    def _simple_test(self, element: Element) -> Test | None:
        operator, column = element.attribute("operator"), self.scope.find(element.attribute("field"), element)
        name = element.attribute("field")
        if operator in ("isMissing", "isNotMissing"):
            # Nothing is less than minus infinity.
            is_missing = operator == "isMissing"
            return Test(name, -np.inf, None, not is_missing, Missing.TRUE if is_missing else Missing.FALSE)
        if operator in ("equal", "notEqual") and not column.field.is_numeric:
            return Test(name, 0.0, self._codes(column, [element.attribute("value")], element), operator == "notEqual")
        if operator not in _ORDERS or not column.field.is_numeric:
            return None
        value = column.field.code(element.attribute("value"), element)
        cut = self.next_after(value) if operator in ("lessOrEqual", "greaterThan") else value
        return Test(name, cut, None, operator.startswith("greater")) if np.isfinite(cut) else None

    def _set_test(self, element: Element) -> Test | None:
        column = self.scope.find(element.attribute("field"), element)
        is_in = element.choice("booleanOperator", "isIn", "isNotIn") == "isIn"
        if column.field.is_numeric:
            return None
        members = self._codes(column, words_of(element.required("Array")), element)
        return Test(element.attribute("field"), 0.0, members, not is_in)

    def _codes(self, column: Column, words: Sequence[str], element: Element) -> frozenset[int]:
        codes = [int(column.field.code(word, element)) for word in words]
        if min(codes, default=0) < 0:
            word = words[codes.index(-1)]
            element.fail(f"`{word}` is not a value of the field `{column.field.name}`")
        return frozenset(codes)

    def _guarded_test(self, element: Element) -> Test | None:
        """Returns a test of one field beside a statement about its missing values: `x < 1 or isMissing(x)`."""
        parts = [child for child in element.children if child.name in PREDICATES]
        operator = element.attribute("booleanOperator")
        if len(parts) != 2:
            return None
        first, second = ((None if p.name == "CompoundPredicate" else self.read_simply(p)) for p in parts)
        if not isinstance(first, Test) or first.missing is not Missing.UNKNOWN or second is None:
            return None
        if operator == "surrogate" and isinstance(second, bool):
            return replace(first, missing=Missing.TRUE if second else Missing.FALSE)
        if not isinstance(second, Test) or second.column != first.column or second.missing is Missing.UNKNOWN:
            return None
        wanted = {"or": Missing.TRUE, "and": Missing.FALSE}.get(operator)
        return replace(first, missing=wanted) if second.missing is wanted else None

    def read_simply(self, element: Element) -> Test | bool | None:
        return element.name == "True" if element.name in ("True", "False") else self._direct(element)

    # Columns

    def write(self, element: Element, nested: int = 0) -> tuple[Tensor, Tensor]:
        """Returns where a predicate is true, and where it is false."""
        g = self.scope.g
        if nested > _MOST_NESTED:
            element.fail(f"predicates are nested more than {_MOST_NESTED} times", code="too-large")
        if element.name in ("True", "False"):
            return known(element.name == "True", BOOL), known(element.name == "False", BOOL)
        if element.name == "CompoundPredicate":
            parts = [self.write(child, nested + 1) for child in element.children if child.name in PREDICATES]
            if len(parts) < 2:
                element.fail(f"a compound predicate has {len(parts)} parts")
            combine = _COMBINED.get(element.attribute("booleanOperator"))
            if combine is None:
                element.fail(f"`booleanOperator` is `{element.attribute('booleanOperator')}`")
            total = parts[0]
            for part in parts[1:]:
                total = combine(g, total, part)
            return total
        column = self.scope.find(element.attribute("field"), element)
        is_known = g.logical_not(g.isnan(column.values))
        if element.name == "SimpleSetPredicate":
            words = words_of(element.required("Array"))
            holds = self._equals_any(column, words, element)
            if element.choice("booleanOperator", "isIn", "isNotIn") == "isNotIn":
                holds = g.logical_not(holds)
        elif element.attribute("operator") in ("isMissing", "isNotMissing"):
            is_missing = element.attribute("operator") == "isMissing"
            return (g.logical_not(is_known), is_known) if is_missing else (is_known, g.logical_not(is_known))
        else:
            holds = self._compare(column, element)
        return g.logical_and(is_known, holds), g.logical_and(is_known, g.logical_not(holds))

    def _compare(self, column: Column, element: Element) -> Tensor:
        g, operator, x = self.scope.g, element.attribute("operator"), column.values
        if operator in ("equal", "notEqual"):
            holds = self._equals_any(column, [element.attribute("value")], element)
            return holds if operator == "equal" else g.logical_not(holds)
        compare = {"lessThan": g.less, "lessOrEqual": g.less_equal, "greaterThan": g.greater,
                   "greaterOrEqual": g.greater_equal}.get(operator)  # fmt: skip
        if compare is None:
            element.fail(f"the operator `{operator}` is unknown")
        if not column.field.is_numeric:
            element.fail(f"the field `{column.field.name}` is text, which has no order", code="unsupported-trees")
        return compare(x, g.like(column.field.code(element.attribute("value"), element), x))

    def _equals_any(self, column: Column, words: Sequence[str], element: Element) -> Tensor:
        g, x = self.scope.g, column.values
        if not column.field.is_numeric:
            self._codes(column, words, element)
        members = known(np.asarray([column.field.code(word, element) for word in words], np.float64))
        return g.any(g.equal(g.unsqueeze(x, axes=(1,)), members), axis=(1,))


Parts = tuple[Tensor, Tensor]


def _and(g: GraphWriter, a: Parts, b: Parts) -> Parts:
    return g.logical_and(a[0], b[0]), g.logical_or(a[1], b[1])


def _or(g: GraphWriter, a: Parts, b: Parts) -> Parts:
    return g.logical_or(a[0], b[0]), g.logical_and(a[1], b[1])


def _xor(g: GraphWriter, a: Parts, b: Parts) -> Parts:
    differ = g.logical_or(g.logical_and(a[0], b[1]), g.logical_and(a[1], b[0]))
    return differ, g.logical_or(g.logical_and(a[0], b[0]), g.logical_and(a[1], b[1]))


def _surrogate(g: GraphWriter, a: Parts, b: Parts) -> Parts:
    """The second predicate counts where the first one is unknown."""
    is_unknown = g.logical_not(g.logical_or(*a))
    true, false = (g.logical_or(a[side], g.logical_and(is_unknown, b[side])) for side in (0, 1))
    return true, false


_COMBINED = {"and": _and, "or": _or, "xor": _xor, "surrogate": _surrogate}
