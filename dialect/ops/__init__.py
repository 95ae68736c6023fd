"""Every operator, by name: one table made of the families beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from ..operator import Operator
from . import (
    activation,
    binary,
    comparison,
    contraction,
    cumulative,
    normalization,
    reduction,
    structure,
    unary,
)

_FAMILIES = (
    structure.OPERATORS,
    binary.OPERATORS,
    comparison.OPERATORS,
    unary.OPERATORS,
    activation.OPERATORS,
    reduction.OPERATORS,
    cumulative.OPERATORS,
    normalization.OPERATORS,
    contraction.OPERATORS,
)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in _FAMILIES for operator in family}
assert len(OPERATORS) == sum(map(len, _FAMILIES)), "two operators have one name"
