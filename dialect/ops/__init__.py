"""Every operator, by name: one table made of the families beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from ..operator import Operator
from . import binary, contraction, structure

_FAMILIES = (structure.OPERATORS, binary.OPERATORS, contraction.OPERATORS)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in _FAMILIES for operator in family}
assert len(OPERATORS) == sum(map(len, _FAMILIES)), "two operators have one name"
