"""Formats figures for people, and the headline of a table of measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from ...dialect.types import Array
from ...dialect.wrapping import WIDTH
from ...runtime.loader import Entry
from ..base.text_tables import Column, table_lines
from ..tools.profile.machine import processor


def show_seconds(value: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def show_duration(value: float) -> str:
    """Returns a time of a run, which may take hours."""
    if value < 60:
        return show_seconds(value)
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def show_bytes(value: int) -> str:
    size, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def headline(entry: Entry, inputs: Sequence[Array], threads: int, device: str = "cpu") -> str:
    """Names an entry, the sizes of its dims, and the threads of the CPU or the GPU that compute it."""
    sizes = ", ".join(f"{name}={size}" for name, size in entry.bind(*inputs).items())
    where = f"{threads} thread{'s' * (threads != 1)} of {processor()}" if device == "cpu" else f"on {device}"
    return f"{entry.name}{f' at {sizes}' if sizes else ''}, {where}"


def titled_table(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = WIDTH
) -> Iterator[Text]:
    """Yields the title, the heading and the rows of a table."""
    head, *others = table_lines(columns, rows, width)
    yield Text(title, "bold")
    yield Text("\n".join(head), "dim")
    for lines in others:
        yield Text("\n".join(lines))
