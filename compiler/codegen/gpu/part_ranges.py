"""The parts of a reduction whose length is that of a call: blocks share it, and another launch joins their totals.

    sum of x[3, T]    T = 1000: a part for each row, which is the result; the other launch has no blocks
                      T = 100,000: 98 parts of 1024 elements for each row; totals[3, 98], which the other launch adds
                      T = 1,000,000: 326 parts of 3072 elements for each row

The number of parts depends on the sizes of the call alone, so that a call always returns the same bits. With `r` rows
of `n` elements, memory for `most` totals and at least `least` elements in a part, which the schedule sets, a part has

    n / (most / r) elements, rounded up to a multiple of `least`

A reduction with fewer than `FEWEST` parts has one, since the second launch takes longer than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.lazy_dataclass import dataclass
from ...lower.part_memory import FEWEST
from .nest import PARTS, Nest
from .text import Text


@dataclass(frozen=True, slots=True)
class Division:
    """The number of parts of each reduction of a call, and the elements of a part."""

    parts: str
    each: str

    def is_whole(self, text: Text) -> str:
        """Returns whether a part is the whole reduction."""
        return text.let(f"arith.cmpi eq, {self.parts}, {text.constant(1)} : index")


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a row that has a `number` among the `count` parts of all rows: its elements are those from `begin` to
    `end`."""

    number: str
    row: str
    count: str
    begin: str
    end: str
    is_first: str
    is_whole: str


def divide_reduction(text: Text, nest: Nest, rows: str, length: str, most: int = 0) -> Division:
    """Returns the parts of reductions of `length` elements, for a number of results: `most` of each, or as many as
    there is memory for."""
    assert nest.parts is not None, nest.name
    one, step = text.constant(1), text.constant(nest.parts.least)
    wanted = text.index("divui", text.constant(nest.parts.most), text.index("maxui", rows, one))
    if most:
        wanted = text.index("minui", wanted, text.constant(most))
    share = text.index("ceildivui", length, text.index("maxui", wanted, one))
    each = text.multiply(text.index("maxui", text.index("ceildivui", share, step), one), step)
    parts = text.index("ceildivui", length, each)
    is_whole = text.below(parts, text.constant(FEWEST))
    parts = text.let(f"arith.select {is_whole}, {one}, {parts} : index")
    return Division(parts, text.let(f"arith.select {is_whole}, {length}, {each} : index"))


def divide_nest(text: Text, nest: Nest, sizes: Sequence[str], most: int = 0) -> tuple[str, str, Division]:
    """Returns the number of results of an op, the elements of each, and their parts."""
    results, length = (
        text.multiply(text.constant(1), *(sizes[loop] for loop in loops)) for loops in (nest.outer, nest.reductions)
    )
    return results, length, divide_reduction(text, nest, results, length, most)


def take_part(text: Text, division: Division, place: tuple[str, str, str], rows: str, length: str) -> Part:
    """Returns a part of a row. Its place is its number among all parts, its row, and its number in the row."""
    number, row, part = place
    begin = text.multiply(part, division.each)
    end = text.index("minui", text.add(begin, division.each), length)
    is_first = text.let(f"arith.cmpi eq, {part}, {text.constant(0)} : index")
    count = text.multiply(rows, division.parts)
    return Part(number, row, count, begin, end, is_first, division.is_whole(text))


def number_results(text: Text, nest: Nest, sizes: Sequence[str], positions: Sequence[str]) -> str:
    """Returns the number of a result in the order in which totals are joined, from its positions in the loops."""
    number = text.constant(0)
    for loop in nest.outer:
        number = text.add(text.multiply(number, sizes[loop]), positions[loop])
    return number


def memory_of(text: Text, nest: Nest) -> tuple[str, str]:
    """Returns the memory for totals, and its type."""
    assert nest.parts is not None, nest.name
    element, most = nest.results[0].element, nest.parts.most
    type = f"memref<{most}x{element}>"
    cast = f"memref.reinterpret_cast {PARTS} to offset: [0], sizes: [{most}], strides: [1]"
    return text.let(f"{cast} : memref<{element}> to {type}"), type


def store_part(text: Text, nest: Nest, number: str, value: str) -> None:
    """Stores the total of a part by its number among all parts: those of a result are neighbours."""
    memory, type = memory_of(text, nest)
    text.line(f"memref.store {value}, {memory}[{number}] : {type}")
