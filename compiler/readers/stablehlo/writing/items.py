"""Values of StableHLO while a file is read: tensors, and those that the graph writes as several tensors or as none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...writing.tensors import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ComplexTensor:
    """A tensor of complex numbers: two tensors of one shape."""

    real: Tensor
    imaginary: Tensor

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        return self.real, self.imaginary


@dataclass(frozen=True, slots=True, eq=False)
class ItemTuple:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A value that orders side effects. An artifact has none."""


Item: TypeAlias = Tensor | ComplexTensor | ItemTuple | Token


def describe(item: Item) -> str:
    """Returns the kind of an item for a message."""
    if isinstance(item, Tensor):
        return str(item.type)
    return {ComplexTensor: "complex numbers", ItemTuple: "a tuple", Token: "a token"}[type(item)]


def flatten(items: Sequence[Item]) -> list[Tensor]:
    """Returns the tensors of items, in order."""
    found: list[Tensor] = []
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, ComplexTensor):
            found += item.parts
        elif isinstance(item, ItemTuple):
            found += flatten(item.items)
    return found


def rebuild(items: Sequence[Item], tensors: Sequence[Tensor]) -> list[Item]:
    """Returns items like the given ones, with other tensors. It is the inverse of `flatten`."""
    return _rebuild(items, iter(tensors))


def _rebuild(items: Sequence[Item], tensors: Iterator[Tensor]) -> list[Item]:
    made: list[Item] = []
    for item in items:
        if isinstance(item, Tensor):
            made.append(next(tensors))
        elif isinstance(item, ComplexTensor):
            made.append(ComplexTensor(next(tensors), next(tensors)))
        elif isinstance(item, ItemTuple):
            made.append(ItemTuple(tuple(_rebuild(item.items, tensors))))
        else:
            made.append(item)
    return made
