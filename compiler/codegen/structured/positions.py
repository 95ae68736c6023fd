"""The positions of an index map: the index of a tensor along each axis, in terms of a structured op's loops.

    (d0, d1, d2) -> (d0 + d1 * 2, d2 floordiv 32, d2 mod 32)      Index, and the two halves of a Panel
    (d0, d1, d2) -> (d0 floordiv 2 + 1)                           Other

Kernels that the compiler writes have the first kinds alone; a text from outside may have any expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from ....dialect.emitter import ZERO, Index, loop
from ....dialect.lazy_dataclass import dataclass

_TERM = re.compile(r"(?:d(\d+)(?: \* (-?\d+))?|(-?\d+))")
_PANEL = re.compile(r"(.+) (floordiv|mod) (\d+)")
_LOOP = re.compile(r"d(\d+)")


class Divided(Protocol):
    """A position that a linear form determines, such as that of a panel."""

    @property
    def index(self) -> Index: ...


@dataclass(frozen=True, slots=True)
class Panel:
    """`index floordiv width`, or `index mod width` if `within`: an axis that is stored in panels."""

    index: Index
    width: int
    within: bool


@dataclass(frozen=True, slots=True)
class Other:
    """Any other expression of the loops `d0`, `d1` and so on, as MLIR prints it. No linear form determines it."""

    text: str


Position = Index | Panel | Other


def read_map(map: Any) -> tuple[Position, ...]:
    """Returns the positions of an affine map, a `Position` for each result."""
    return tuple(_read_position(str(result)) for result in map.results)


def _read_position(text: str) -> Position:
    panel = _PANEL.fullmatch(text)
    if panel is None:
        return _read_linear(text) or Other(text)
    inner, kind, width = panel.groups()
    index = _read_linear(inner.strip("()"))
    return Other(text) if index is None else Panel(index, int(width), kind == "mod")


def _read_linear(text: str) -> Index | None:
    total = ZERO
    for part in text.split(" + "):
        term = _TERM.fullmatch(part.strip("() "))
        if term is None:
            return None
        number, factor, constant = term.groups()
        total = total + (int(constant) if number is None else loop(int(number)) * int(factor or 1))
    return total


def write_position(position: Position) -> str:
    """Returns a position as MLIR reads it."""
    if isinstance(position, Other):
        return position.text
    if isinstance(position, Panel):
        return f"({write_position(position.index)}) {'mod' if position.within else 'floordiv'} {position.width}"
    terms = [f"d{number}" if factor == 1 else f"d{number} * {factor}" for number, factor in position.coefficients]
    return " + ".join([*terms, *([str(position.constant)] if position.constant or not terms else [])])


def is_permutation(map: Sequence[Position], loops: int) -> bool:
    """Returns whether each of a number of loops is one of the positions, and nothing else is."""
    return len(map) == loops and {plain(position) for position in map} == set(range(loops))


def picks_loops(map: Sequence[Position]) -> bool:
    """Returns whether the positions are different loops."""
    found = [plain(position) for position in map]
    return None not in found and len(set(found)) == len(found)


def shifted(position: Position, distance: int) -> Position:
    """Returns a position plus a distance."""
    return position + distance if isinstance(position, Index) else Other(f"({write_position(position)}) + {distance}")


def linear(position: Index | Divided) -> Index:
    """Returns the linear form of a position, or the one that determines it."""
    return position if isinstance(position, Index) else position.index


def coefficient_of(position: Index | Divided, number: int) -> int:
    """Returns the coefficient of a loop in the linear form of a position."""
    for other, coefficient in linear(position).coefficients:
        if other == number:
            return coefficient
    return 0


def plain(position: object) -> int | None:
    """Returns the loop that a position is the variable of; None for any other position."""
    if isinstance(position, Index) and position.constant == 0 and len(position.coefficients) == 1:
        (number, coefficient), *_ = position.coefficients
        return number if coefficient == 1 else None
    return None


def loops_of(position: Position) -> frozenset[int]:
    """Returns the loops that a position depends on."""
    if isinstance(position, Other):
        return frozenset(map(int, _LOOP.findall(position.text)))
    return frozenset(number for number, _ in linear(position).coefficients)
