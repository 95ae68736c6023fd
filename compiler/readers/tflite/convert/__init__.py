"""The converters of all operators, by their names: one table of the families in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from ...writing.families import by_name
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

_BY_NAME = by_name(FAMILIES)


def find_converter(name: str) -> Convert | None:
    """Returns the converter of an operator, or None."""
    return _BY_NAME.get(name)


def operator_names() -> list[str]:
    """Returns the names of all operators with a converter."""
    return sorted(_BY_NAME)
