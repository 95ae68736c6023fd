"""The converters of all layers, by their classes: one table of the families in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from ...writing.families import by_name
from ..writing.use import Convert, Converters
from . import (
    activations,
    attention,
    categories,
    cells,
    convolutions,
    dense,
    images,
    masks,
    normalization,
    pooling,
    recurrent,
    shapes,
)
from .wrappers import wrappers

FAMILIES: Mapping[str, Converters] = {
    "Dense layers and arithmetic": dense.CONVERTERS,
    "Activations": activations.CONVERTERS,
    "Convolutions": convolutions.CONVERTERS,
    "Pooling": pooling.CONVERTERS,
    "Normalization": normalization.CONVERTERS,
    "Recurrent layers": {**recurrent.CONVERTERS, **cells.CONVERTERS},
    "Attention": attention.CONVERTERS,
    "Shapes and training": {**shapes.CONVERTERS, **masks.CONVERTERS},
    "Images": images.CONVERTERS,
    "Categories": categories.CONVERTERS,
    "Wrappers": wrappers(lambda name: find_converter(name)),
}

_BY_NAME = by_name(FAMILIES)


def find_converter(name: str) -> Convert | None:
    """Returns the converter of a class of layers, or of operations on masks, or None."""
    return _BY_NAME.get(name, masks.OPERATIONS.get(name))


def keywords_of(name: str) -> frozenset[str]:
    """Returns the tensors that a class of layers takes by keyword."""
    return attention.KEYWORDS.get(name, frozenset()) | ({"mask"} if name in masks.TAKERS else frozenset())


def layer_names() -> list[str]:
    """Returns the classes of all layers with a converter."""
    return sorted(_BY_NAME)
