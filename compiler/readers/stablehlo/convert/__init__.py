"""The converters of all operations, by their names: one table of the families in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...writing.families import by_name
from ..writing.items import ComplexTensor, Item
from ..writing.records import OperationRecord
from ..writing.use import Convert, Converters
from . import (
    addressing,
    bits,
    collectives,
    complex_numbers,
    contractions,
    control_flow,
    elementwise,
    normalization,
    ordering,
    reductions,
    shapes,
    structure,
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
    "Complex numbers": complex_numbers.CONVERTERS,
    "Tuples and tokens": structure.CONVERTERS,
    "Between devices": collectives.CONVERTERS,
    "Control flow": control_flow.CONVERTERS,
}

_BY_NAME = by_name(FAMILIES)

_ELEMENTWISE = frozenset({"constant", *elementwise.CONVERTERS, *bits.CONVERTERS})


def is_elementwise(name: str) -> bool:
    """Returns whether an operation computes each element of its result from those at the same index."""
    return name in _ELEMENTWISE


def find_converter(name: str) -> Convert | None:
    """Returns the converter of an operation, or None."""
    return _BY_NAME.get(name)


def find_converter_of(operation: OperationRecord, items: Sequence[Item]) -> Convert | None:
    """Returns the converter of an operation for its operands: for complex numbers, the one that takes or returns
    them."""
    of_complex = complex_numbers.OF_COMPLEX.get(operation.name)
    returns_complex = any(record.is_complex for _, record in operation.results)
    if of_complex is not None and (returns_complex or any(isinstance(item, ComplexTensor) for item in items)):
        return of_complex
    return find_converter(operation.name)


def operation_names() -> list[str]:
    """Returns the names of all operations with a converter."""
    return sorted(_BY_NAME)
