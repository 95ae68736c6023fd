"""Tables of text for people, which fit a width without cutting a figure or a name.

Where the rows are too wide, the columns of names move to a separate line above the figures of their row:

    time      share  kernel                            a_long_name
    1.25 ms   12.5%  a_long_name         becomes         1.25 ms   12.5%

A name that is longer than the width continues on the next line after a space; a word stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.lazy_dataclass import dataclass
from ...dialect.wrapping import WIDTH, wrap

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds a name, which may be long, or a figure, aligned to the right."""

    title: str
    is_name: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[list[str]]:
    """Returns the lines of the heading, and those of each row."""
    every = [[column.title for column in columns], *rows]
    if max(map(len, _aligned(columns, every, range(len(columns))))) <= width:
        return [[line] for line in _aligned(columns, every, range(len(columns)))]
    names = [i for i, column in enumerate(columns) if column.is_name]
    figures = [i for i, column in enumerate(columns) if not column.is_name]
    above = [_GAP.join(filter(None, (row[i].strip() for i in names))) for row in every]
    # The names of a row that are too long together have a line each.
    lines = [
        [line] if len(line) <= width else [part for i in names for part in _parts(row[i].strip(), width)]
        for line, row in zip(above, every, strict=True)
    ]
    below = _aligned(columns, every, figures) if figures else [""] * len(every)
    return [[*first, *([f"{_GAP}{second}"] if second else [])] for first, second in zip(lines, below, strict=True)]


def _parts(name: str, width: int) -> list[str]:
    return wrap(name, later=_GAP * 2, width=width) if name else []


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> list[str]:
    widths = {i: max(len(row[i]) for row in rows) for i in shown}
    return [
        _GAP.join(row[i].ljust(widths[i]) if columns[i].is_name else row[i].rjust(widths[i]) for i in shown).rstrip()
        for row in rows
    ]
