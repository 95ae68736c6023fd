"""Results that are remembered: of functions of one object, by its identity, and the data of parameters.

Graphs are large and do not change: a comparison of two takes as long as most of what is computed of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from .types import Array, DType

Object = TypeVar("Object")
Result = TypeVar("Result")


def by_identity(compute: Callable[[Object], Result], most: int = 256) -> Callable[[Object], Result]:
    """Returns a function that computes the same, once for each object. It forgets all results once it has `most`."""
    # The object is kept beside its result: another one cannot take its identity.
    found: dict[int, tuple[Object, Result]] = {}

    def remembered(subject: Object) -> Result:
        known = found.get(id(subject))
        if known is None:
            if len(found) >= most:
                found.clear()
            known = found[id(subject)] = subject, compute(subject)
        return known[1]

    return remembered


@dataclass
class KeptParameters:
    """The data of parameters, for interpreters that run graphs with the same parameters and read them from one source.
    Data beyond `most` bytes are not kept."""

    most: int = 1 << 26
    _arrays: dict[tuple[str, DType | None], Array] = field(default_factory=dict)
    _bytes: int = 0

    def get(self, name: str, precision: DType | None) -> Array | None:
        return self._arrays.get((name, precision))

    def add(self, name: str, precision: DType | None, array: Array) -> None:
        if self._bytes + array.nbytes <= self.most:
            self._arrays[name, precision] = array
            self._bytes += array.nbytes
