"""The converters of all operators, by their names: one table made of the families beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from ..writing.use import Convert, Converters
from . import (
    activations,
    arithmetic,
    comparisons,
    contractions,
    control_flow,
    convolutions,
    indexing,
    joining,
    pooling,
    quantization,
    reductions,
    resizing,
    shapes,
    slicing,
    softmax,
    unary,
)

FAMILIES: Mapping[str, Converters] = {
    "Contractions": contractions.CONVERTERS,
    "Convolutions": convolutions.CONVERTERS,
    "Pooling": pooling.CONVERTERS,
    "Quantization": quantization.CONVERTERS,
    "Arithmetic": arithmetic.CONVERTERS,
    "Unary functions": unary.CONVERTERS,
    "Activations": {**activations.CONVERTERS, **softmax.CONVERTERS},
    "Comparisons and logic": comparisons.CONVERTERS,
    "Reductions": reductions.CONVERTERS,
    "Shapes": shapes.CONVERTERS,
    "Slicing": slicing.CONVERTERS,
    "Joining": joining.CONVERTERS,
    "Indexing": indexing.CONVERTERS,
    "Resizing": resizing.CONVERTERS,
    "Control flow": control_flow.CONVERTERS,
}

_BY_NAME: Mapping[str, Convert] = {name: convert for family in FAMILIES.values() for name, convert in family.items()}
assert len(_BY_NAME) == sum(map(len, FAMILIES.values())), "two families convert one operator"


def find_converter(name: str) -> Convert | None:
    """Returns the converter of an operator, or None."""
    return _BY_NAME.get(name)


def operator_names() -> list[str]:
    """Returns the names of all operators with a converter."""
    return sorted(_BY_NAME)
