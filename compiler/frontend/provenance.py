"""Where a size comes from: the notes under a diagnostic that is about sizes.

A number is traced to the hyper-parameter that has its value, in the block where the fault is or in those that led to
it; a dim to its declaration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...dialect.diagnostics import Note
from ...dialect.dims import INFINITY, Size, format_size, symbols
from .context import Context
from .values import Frame, Hyper

NOTES = 4


def _frames(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.caller


def describe_hyper(context: Context, size: Size, name: str, hyper: Hyper) -> Note:
    """`384 is `width`, given at model.nacre:41:38 (c.hidden_size)`."""
    given = "by default" if hyper.by_default else "given"
    text = f" ({hyper.text})" if hyper.text not in (format_size(size), name, "") else ""
    return Note(f"{format_size(size)} is `{name}`, {given} at {hyper.span}{text}")


def trace_size(context: Context, frame: Frame, size: Size) -> Note | None:
    """One note on a size, or None where nothing is known of it."""
    for place in _frames(frame):
        for name, hyper in place.hypers.items():
            if hyper.value == size and not isinstance(hyper.value, bool):
                return describe_hyper(context, size, name, hyper)
    for symbol in sorted(symbols(size), key=lambda s: s.name):
        if symbol.name in context.program.dims:
            high = "" if symbol.high == INFINITY else str(symbol.high)
            text = f"`{symbol.name}` is any of {symbol.low}..{high}"
            if symbol.multiple != 1:
                text += f" that is a multiple of {symbol.multiple}"
            return Note(f"{text}, declared at {context.program.dims[symbol.name][1]}")
    return None


def size_notes(context: Context, frame: Frame, sizes: Iterable[Size], text: str) -> list[Note]:
    """Notes on those of the sizes that the text of a diagnostic mentions."""
    notes: list[Note] = []
    for size in dict.fromkeys(sizes):
        mentioned = re.search(rf"(?<![\w.-]){re.escape(format_size(size))}(?![\w.])", text)
        if size in (0, 1) or not mentioned or len(notes) == NOTES:
            continue
        note = trace_size(context, frame, size)
        if note is not None and note not in notes:
            notes.append(note)
    return notes
