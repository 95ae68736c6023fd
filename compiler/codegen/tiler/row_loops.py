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
