"""Elementary functions that kernels call: one of a dtype's library, on single numbers or on vectors."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from ....dialect.lazy_dataclass import dataclass
from ..isa import FUSED
from .double_math import DOUBLE
from .vector_math import SINGLE
from .vector_math.library import Library

LIBRARIES: Mapping[str, Library] = {library.element: library for library in (SINGLE, DOUBLE)}


@dataclass(frozen=True, slots=True)
class Elementary:
    """name: the operation of the math dialect. element: the element type. lanes: None for single numbers."""

    name: str
    element: str
    lanes: int | None = None

    @property
    def symbol(self) -> str:
        return LIBRARIES[self.element].symbol(self.name, self.lanes)

    def declare(self) -> str:
        return LIBRARIES[self.element].declare(self.name, self.lanes)

    def emit(self, features: frozenset[str] = FUSED) -> str:
        return LIBRARIES[self.element].emit(self.name, self.lanes, features)


def find_elementary(
    operation: str, element: str, features: AbstractSet[str], lanes: int | None = None
) -> Elementary | None:
    """Returns the function that computes an operation of the math dialect, by its name with the dialect, or None. The C
    library computes the others."""
    library, name = LIBRARIES.get(element), operation.removeprefix("math.")
    known = library is not None and name in library.formulas and library.runs_on(features)
    return Elementary(name, element, lanes) if known and name != operation else None
