"""The converters of all operators, by the name of an overload: one table of the families in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from ...writing.families import by_name
from ..writing.use import Convert, Converters
from . import (
    activations,
    arithmetic,
    attention,
    comparisons,
    contractions,
    convolutions,
    creation,
    distances,
    gradients,
    indexing,
    joining,
    linear_algebra,
    normalization,
    ordering,
    padding,
    pooling,
    recurrent,
    reductions,
    resizing,
    sampling,
    scattering,
    selection,
    shapes,
    slicing,
    special,
    unary,
)

FAMILIES: Mapping[str, Converters] = {
    "Functions of one element": unary.CONVERTERS,
    "Special functions": special.CONVERTERS,
    "Arithmetic": arithmetic.CONVERTERS,
    "Comparisons and logic": comparisons.CONVERTERS,
    "Activations": activations.CONVERTERS,
    "Reductions": reductions.CONVERTERS,
    "Shapes": shapes.CONVERTERS,
    "Slicing": slicing.CONVERTERS,
    "Joining and splitting": joining.CONVERTERS,
    "Padding": padding.CONVERTERS,
    "Indexing": indexing.CONVERTERS,
    "Selections by data": selection.CONVERTERS,
    "Scattering": scattering.CONVERTERS,
    "Ordering": ordering.CONVERTERS,
    "Creation": creation.CONVERTERS,
    "Contractions": contractions.CONVERTERS,
    "Linear algebra": linear_algebra.CONVERTERS,
    "Convolutions": convolutions.CONVERTERS,
    "Pooling": pooling.CONVERTERS,
    "Normalization": normalization.CONVERTERS,
    "Attention": attention.CONVERTERS,
    "Recurrent layers": recurrent.CONVERTERS,
    "Resizing and sampling": {**resizing.CONVERTERS, **sampling.CONVERTERS},
    "Distances and bags": distances.CONVERTERS,
    "Gradients": gradients.CONVERTERS,
}

_BY_NAME = by_name(FAMILIES)


def find_converter(name: str) -> Convert | None:
    """Returns the converter of an overload, or None."""
    return _BY_NAME.get(name)


def operator_names() -> list[str]:
    """Returns the names of all overloads with a converter."""
    return sorted(_BY_NAME)
