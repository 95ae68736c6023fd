"""Loops over the rows of a work item that holds more rows than a tile: one by one, and tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .forms import Form, constant, variable
from .text import Writer

Rows = int | str
"""A number of rows, or the name of a run-time value."""


@contextmanager
def each_row(writer: Writer, rows: Rows) -> Iterator[Form]:
    if rows == 1:
        with writer.scope(indent=False):
            yield constant(0)
        return
    end = rows if isinstance(rows, str) else writer.size(rows)
    with writer.loop(writer.size(0), end, 1) as row:
        yield variable(row)


def in_tiles(writer: Writer, rows: Rows, height: int, write: Callable[[Form, int], None]) -> None:
    """Writes tiles of whole height, and one tile of the remaining rows."""
    if height == 1:
        with each_row(writer, rows) as row:
            write(row, 1)
        return
    if isinstance(rows, int):
        whole = writer.size(rows - rows % height)
    else:
        left = writer.let(f"arith.remui {rows}, {writer.size(height)} : index")
        whole = writer.let(f"arith.subi {rows}, {left} : index")
    with writer.loop(writer.size(0), whole, height) as first:
        write(variable(first), height)
    if isinstance(rows, int):
        if rows % height:
            with writer.scope(indent=False):
                write(constant(rows - rows % height), rows % height)
        return
    writer.switch(left, range(height - 1, 0, -1), lambda count: write(variable(whole), count))


def in_whole_tiles(writer: Writer, rows: Rows, height: int, write: Callable[[Form, Form, int], None]) -> None:
    """Writes tiles of whole height for at least that many rows. The last tile is moved back, over rows of the tile
    before it, where the height does not divide the rows. `write` receives the row that a tile would begin with, the
    distance that it is moved by, and its rows."""
    if isinstance(rows, int):
        in_tiles(writer, rows, height, lambda first, count: write(first, constant(0), count))
        return
    last = writer.let(f"arith.subi {rows}, {writer.size(height)} : index")
    with writer.loop(writer.size(0), rows, height) as first:
        begin = writer.let(f"arith.minui {first}, {last} : index")
        write(variable(first), variable(begin) + variable(first, -1), height)
