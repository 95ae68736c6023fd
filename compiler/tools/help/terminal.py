"""Lays out sections for a terminal, in 80 columns: paragraphs, tables, and examples, which are indented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ....dialect.wrapping import fit, wrap
from .sections import LANGUAGE, OTHERS, Section, callable_operators, names_of

INDENT = 4
"""Columns to the left of an example."""


def lay_out(section: Section) -> str:
    """Returns a section as plain text."""
    lines = [f"{_plain(section.heading)}  ({section.page}.md)", ""]
    lines = [*wrap(lines[0], later="    "), ""]
    for part in filter(None, _parts(section.lines)):
        lines += [*_part(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields paragraphs, lists, tables and examples; an example begins with its fence."""
    part: list[str] = []
    in_code = False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
            if in_code:
                yield part
                part = [line]
            continue
        if not line and not in_code:
            yield part
            part = []
            continue
        part.append(line)
    yield part


def _part(lines: Sequence[str]) -> Iterator[str]:
    if lines[0].startswith("```"):
        for line in lines[1:]:
            yield from fit(f"{' ' * INDENT}{line}".rstrip()).splitlines() or [""]
    elif lines[0].startswith("|"):
        for line in lines:
            cells = [_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if any(cells) and not set("".join(cells)) <= set("-: "):
                yield from wrap("   ".join(cells), "  ", "      ")
    elif lines[0].startswith("- "):
        items = re.split(r"\n(?=- )", "\n".join(lines))
        for item in items:
            yield from wrap(_plain(" ".join(item.split())), later="  ")
    else:
        yield from wrap(_plain(" ".join(lines)))


def _plain(text: str) -> str:
    """Removes the marks of links and emphasis; backticks stay."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(?<![`*])\*\*([^*`\s][^*`]*)\*\*", r"\1", text.replace("\\|", "|"))


@lru_cache(None)
def explain_operator(name: str) -> str:
    """Returns the section of an operator as plain text."""
    return lay_out(names_of("operators")[name])


_LISTED = (("artifact", "Targets"), ("precision", "Lower precision"))
"""The sections about targets and precisions, which the first line of the overview names."""


def overview() -> str:
    """Returns the words of each kind; operators that only passes create have a section, and are not listed."""
    kinds = {
        "Constructs": sorted({word for words in LANGUAGE.values() for word in words}),
        "Operators": sorted(callable_operators()),
        "Passes": sorted(names_of("passes")),
        "Diagnostics": sorted(names_of("diagnostics")),
        "Python": sorted(names_of("python")),
        "Topics": sorted({word for word, where in OTHERS.items() if where not in _LISTED} - set(names_of("passes"))),
    }
    lines = ["`nacre help WORD` explains a word of these, a command, a target or a precision.", ""]
    for kind, words in kinds.items():
        lines += [f"{kind}:", *_indented(" ".join(words)), ""]
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return wrap(text, "  ", "  ")
