"""Shows the difference of two texts: as a unified diff, or side by side if the terminal is wide enough."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import zip_longest

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROW = 110
"""A terminal of fewer columns has no room for two texts."""
_CONTEXT = 3
_ALIKE = 0.5
"""Lines with a lower similarity are shown as different lines, not as one changed line."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_WORD = re.compile(r"[\w.]+|\s+|.")
_Line = tuple[str, Text]
_Opcode = tuple[str, int, int, int, int]


def colour_difference(difference: str) -> str:
    """Colours the lines of a unified diff; click omits the colours if the output is not a terminal."""
    lines = []
    for line in difference.splitlines():
        colour = _STYLES.get(line[:1])
        lines.append(click.style(line, fg=colour) if colour else line)
    return "".join(f"{line}\n" for line in lines)


def show_difference(before: str, after: str, names: tuple[str, str], console: Console) -> None:
    """Prints the differences of two texts; nothing if they are equal."""
    old, new = before.splitlines(), after.splitlines()
    if not console.is_terminal or console.width < NARROW:
        lines = difflib.unified_diff(old, new, *names, lineterm="", n=_CONTEXT)
        click.echo(colour_difference("".join(f"{line}\n" for line in lines)), nl=False)
        return
    groups = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT))
    if groups:
        console.print(_table(old, new, groups, names))


def _table(
    old: Sequence[str], new: Sequence[str], groups: Sequence[Sequence[_Opcode]], names: tuple[str, str]
) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(name, ratio=1, overflow="fold")
    for number, group in enumerate(groups):
        if number:
            table.add_section()
            table.add_row("", Text("...", "dim"), "", Text("...", "dim"))
        for opcode in group:
            for left, right in zip_longest(*_columns(old, new, opcode), fillvalue=("", Text())):
                table.add_row(*left, *right)
    return table


def _columns(old: Sequence[str], new: Sequence[str], opcode: _Opcode) -> tuple[list[_Line], list[_Line]]:
    kind, *ranges = opcode
    a, b = range(*ranges[:2]), range(*ranges[2:])
    if kind == "equal":
        return [(str(i + 1), Text(old[i])) for i in a], [(str(i + 1), Text(new[i])) for i in b]
    left = [(str(i + 1), Text(old[i], _STYLES["-"])) for i in a]
    right = [(str(i + 1), Text(new[i], _STYLES["+"])) for i in b]
    for (_, one), (_, other) in zip(left, right, strict=False):
        _mark_words(one, other)
    return left, right


def _mark_words(one: Text, other: Text) -> None:
    """Highlights the words that occur in only one of two adjacent lines."""
    left, right = _WORD.findall(one.plain), _WORD.findall(other.plain)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return
    for kind, *ranges in matcher.get_opcodes():
        if kind != "equal":
            for text, words, (start, end) in ((one, left, ranges[:2]), (other, right, ranges[2:])):
                text.stylize("bold reverse", sum(map(len, words[:start])), sum(map(len, words[:end])))
