"""The converters of all operations, by their names: one table made of the families beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from ..writing.use import Convert, Converters
from . import (
    addressing,
    bits,
    contractions,
    control_flow,
    elementwise,
    normalization,
    ordering,
    reductions,
    shapes,
    windows,
)

FAMILIES: Mapping[str, Converters] = {
    "Elementwise": elementwise.CONVERTERS,
    "Bits and roundings": bits.CONVERTERS,
    "Shapes": shapes.CONVERTERS,
    "Contractions": contractions.CONVERTERS,
    "Reductions": reductions.CONVERTERS,
    "Windows": windows.CONVERTERS,
    "Normalization and linear algebra": normalization.CONVERTERS,
    "Gathers and scatters": addressing.CONVERTERS,
    "Ordering": ordering.CONVERTERS,
    "Control flow": control_flow.CONVERTERS,
}

_BY_NAME: Mapping[str, Convert] = {name: convert for family in FAMILIES.values() for name, convert in family.items()}
assert len(_BY_NAME) == sum(map(len, FAMILIES.values())), "two families convert one operation"


def find_converter(name: str) -> Convert | None:
    """Returns the converter of an operation, or None."""
    return _BY_NAME.get(name)


def operation_names() -> list[str]:
    """Returns the names of all operations with a converter."""
    return sorted(_BY_NAME)
