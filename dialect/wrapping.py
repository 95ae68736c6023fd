"""Breaks lines at spaces, so that they fit a width, and counts nouns. A word that is longer than the width stays whole.

A line does not break at `NO_BREAK`, such as the one between a number and its unit; in the result, it is a space.
"""

from __future__ import annotations

NO_BREAK = "\N{NO-BREAK SPACE}"
WIDTH = 80
"""Columns of a line where the output is no terminal."""


def wrap(text: str, first: str = "", later: str = "", width: int = WIDTH) -> list[str]:
    """Returns the lines of a text, with `first` before the first line and `later` before the others. Spaces between
    words stay where no line breaks."""
    lines, line = [], first
    empty = True
    for number, word in enumerate(text.split(" ")):
        between = "" if empty and number == 0 else " "
        if not empty and word and len(line) + len(between) + len(word) > width:
            lines.append(line.rstrip())
            line, between = later, ""
        line += between + word
        empty = empty and not word
    return [each.replace(NO_BREAK, " ") for each in (*lines, line.rstrip())]


def fit(text: str, width: int = WIDTH) -> str:
    """Returns a text whose longer lines continue four columns to the right of their own indentation."""
    return "\n".join(part for line in text.split("\n") for part in _fitted(line, width))


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a number with its noun: `1 leaf`, `2,000 leaves`. The plural is `many`, or `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _fitted(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line.replace(NO_BREAK, " ")]
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line.lstrip(), indent, f"{indent}    ", width)
