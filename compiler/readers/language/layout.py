"""Lays out entries as lines: the line breaks and the indentation of the canonical form of a source file.

A statement that fits stays on one line. One that does not is broken at its pipes, or before its loosest operators if
that is enough, or inside its longest brackets, one element per line, or as many numbers as fit. Brackets that hold a
comment, or that their author spread over lines, are always broken. This module reads no tokens: format.py has turned
them into entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from ....dialect.lazy_dataclass import dataclass

WIDTH = 100
STEP = 2
_LONGEST_ROW = 24
"""The longest brackets of numbers that share a line with others."""

# The looseness of a binary operator; a line that is too long breaks before the loosest.
LOOSENESS = {
    "PIPE": 0,
    "OR": 1,
    "AND": 2,
    **dict.fromkeys(("EQUAL", "DIFFERENT", "LESS", "AT_MOST", "MORE", "AT_LEAST"), 3),
    **dict.fromkeys(("PLUS", "MINUS"), 4),
    **dict.fromkeys(("STAR", "SLASH", "FLOOR", "PERCENT", "AT"), 5),
    "POWER": 6,
}


# --- entries and their parts ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Word:
    """A token, whether a space stands before it, and whether it is an operator between two operands."""

    text: str
    kind: str
    space: bool
    is_binary: bool
    starts_line: bool


@dataclass(slots=True)
class Segment:
    """An item between two commas inside brackets, with its comments."""

    parts: list[Word | Group] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: str = ""
    inside: list[str] = field(default_factory=list)  # while reading: on own lines after the last part

    def settle(self) -> None:
        """Moves a comment from the middle of an element to the lines above it."""
        self.before += self.inside
        self.inside = []


@dataclass(slots=True)
class Group:
    """Brackets and their content. With `keeps_comma`, the comma after a single element has a meaning, `(a,)`. With
    `is_spread`, the author gave each element a line."""

    opening: Word
    segments: list[Segment] = field(default_factory=list)
    closing: str = ""
    keeps_comma: bool = False
    is_spread: bool = False


Part = Word | Group


@dataclass(slots=True)
class Entry:
    """A comment on a separate line, or a statement or item: its lines, and its body if it has one."""

    chunks: list[Segment] = field(default_factory=list)  # more than one if the author's breaks are kept
    comment: str = ""
    after: str = ""
    body: list[Entry] | None = None
    body_comment: str = ""  # after the `{`
    on_one_line: bool = False
    blank_before: bool = False
    tail: Entry | None = None  # the rest of the statement after the `}` of its body

    @property
    def is_long(self) -> bool:
        return self.body is not None and not self.on_one_line


def _is_broken(parts: Sequence[Part]) -> bool:
    """Returns whether brackets must be broken, since a comment is in them, or since their author broke them."""
    return any(
        isinstance(part, Group)
        and (
            part.is_spread
            or any(segment.before or segment.after or _is_broken(segment.parts) for segment in part.segments)
        )
        for part in parts
    )


# --- from entries to lines --------------------------------------------------------------------------------------------


def _flat(parts: Sequence[Part], at_line_start: bool = True) -> str:
    text = "".join(_flat_part(part) for part in parts)
    return text[1:] if at_line_start and text.startswith(" ") else text


def _flat_part(part: Part) -> str:
    if isinstance(part, Word):
        return " " + part.text if part.space else part.text
    inside = ", ".join(_flat(segment.parts) for segment in part.segments if segment.parts)
    comma = "," if part.keeps_comma else ""
    return f"{_flat_part(part.opening)}{inside}{comma}{part.closing}"


def _lay(parts: Sequence[Part], indent: int, lead: str, suffix: str = "") -> list[str]:
    """Returns the lines of `parts`: the first begins with `lead`, the last ends in `suffix`, further ones are
    indented."""
    at_line_start = not lead.strip()
    text = lead + _flat(parts, at_line_start) + suffix
    if not _is_broken(parts) and (len(text) <= WIDTH or not parts):
        return [text]
    operators = {LOOSENESS[p.kind] for p in parts[1:] if isinstance(p, Word) and p.is_binary}
    pieces = _split(parts, min(operators)) if operators else [parts]
    starts = [lead if n == 0 else " " * (indent + STEP) for n in range(len(pieces))]
    is_pipe = bool(operators) and min(operators) == 0
    fits = all(len(s + _flat(p)) + len(suffix) <= WIDTH for s, p in zip(starts, pieces, strict=True))
    groups = [n for n, part in enumerate(parts) if isinstance(part, Group) and part.segments]
    if len(pieces) > 1 and (is_pipe or not groups or (fits and not _is_broken(parts))):
        lines: list[str] = []
        for n, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
            lines += _lay(piece, indent + STEP if n else indent, start, suffix if n == len(pieces) - 1 else "")
        return lines
    if not groups:
        return [text]
    commented = [n for n in groups if _is_broken([parts[n]])]
    broken = commented[0] if commented else max(groups, key=lambda n: len(_flat([parts[n]])))
    group = parts[broken]
    assert isinstance(group, Group), group
    opening = _flat_part(group.opening)
    if at_line_start and broken == 0:
        opening = opening.lstrip()
    lines = _lay(parts[:broken], indent, lead, opening)
    inner = indent + STEP
    if not group.is_spread and len(group.segments) > 1 and all(map(_is_number, group.segments)):
        lines += _filled([_flat(segment.parts) for segment in group.segments], inner)
        return lines + _lay(parts[broken + 1 :], indent, " " * indent + group.closing, suffix)
    elements = sum(bool(segment.parts) for segment in group.segments)
    for segment in group.segments:
        lines += [" " * inner + comment for comment in segment.before]
        if segment.parts:
            comma = "," if elements > 1 or group.keeps_comma or group.is_spread else ""
            lines += _lay(segment.parts, inner, " " * inner, comma)
        if segment.after:
            lines[-1] += "  " + segment.after
    return lines + _lay(parts[broken + 1 :], indent, " " * indent + group.closing, suffix)


def _is_number(segment: Segment) -> bool:
    """Returns whether an element is a number, or short brackets of numbers, without comments."""
    if segment.before or segment.after or not segment.parts:
        return False
    *sign, last = segment.parts
    if isinstance(last, Group):
        return not sign and len(_flat([last])) <= _LONGEST_ROW and all(map(_is_number, last.segments))
    signs = [word.kind for word in sign if isinstance(word, Word)]
    return len(signs) == len(sign) and signs in ([], ["MINUS"]) and last.kind in ("INT", "FLOAT")


def _filled(elements: Sequence[str], indent: int) -> list[str]:
    """Returns lines with as many elements as fit."""
    lines = [" " * indent + elements[0]]
    for element in elements[1:]:
        lines[-1] += ","
        if len(lines[-1]) + len(element) + 2 <= WIDTH:
            lines[-1] += " " + element
        else:
            lines.append(" " * indent + element)
    return lines


def _split(parts: Sequence[Part], looseness: int) -> list[Sequence[Part]]:
    cuts = [
        n
        for n, part in enumerate(parts)
        if n and isinstance(part, Word) and part.is_binary and LOOSENESS[part.kind] == looseness
    ]
    return [parts[a:b] for a, b in zip([0, *cuts], [*cuts, len(parts)], strict=True)]


def _one_line(entry: Entry) -> str | None:
    """Returns an entry on one line without its comment, if its author chose that and its form allows it."""
    if entry.comment or len(entry.chunks) != 1 or _is_broken(entry.chunks[0].parts):
        return None
    text = _flat(entry.chunks[0].parts)
    if entry.body is None:
        return text
    if not entry.body and not entry.body_comment and entry.tail is None:
        return text + " {}"
    inner = [_one_line(statement) for statement in entry.body]
    if not entry.on_one_line or any(line is None for line in inner) or any(e.after for e in entry.body):
        return None
    text = f"{text} {{ {'; '.join(line for line in inner if line is not None)} }}"
    rest = "" if entry.tail is None else _one_line(entry.tail)
    return None if rest is None else f"{text} {rest}".rstrip()


def _entry_lines(entry: Entry, indent: int) -> list[str]:
    margin = " " * indent
    if entry.comment:
        return [margin + entry.comment]
    short = _one_line(entry)
    if short is not None and entry.body is not None and len(margin + short) <= WIDTH:
        lines = [margin + short]
    else:
        lines = []
        for n, chunk in enumerate(entry.chunks):
            inner = indent + STEP if n else indent
            is_last = n == len(entry.chunks) - 1
            lines += [" " * inner + comment for comment in chunk.before]
            lines += _lay(chunk.parts, inner, " " * inner, " {" if is_last and entry.body is not None else "")
            if chunk.after:
                lines[-1] += "  " + chunk.after
        if entry.body is not None:
            if entry.body_comment:
                lines[-1] += "  " + entry.body_comment
            lines += _body_lines(entry.body, indent + STEP)
            lines.append(margin + "}")
            if entry.tail is not None:
                first, *rest = _entry_lines(entry.tail, indent)
                lines = [*lines[:-1], f"{margin}}} {first.lstrip()}", *rest]
    if entry.after:
        lines[-1] += "  " + entry.after
    return lines


def _body_lines(entries: list[Entry], indent: int) -> Iterator[str]:
    for position, entry in enumerate(entries):
        if position and entry.blank_before:
            yield ""
        yield from _entry_lines(entry, indent)


def file_lines(entries: list[Entry]) -> Iterator[str]:
    """Lays out a file like a body, but separates an item of several lines, together with the comments right above
    it."""
    laid = [_entry_lines(entry, 0) for entry in entries]
    long = [entry.body is not None and len(lines) > 1 for entry, lines in zip(entries, laid, strict=True)]
    for position, entry in enumerate(entries):
        if position:
            owner = position
            while entries[owner].comment and owner + 1 < len(entries) and not entries[owner + 1].blank_before:
                owner += 1
            is_attached = bool(entries[position - 1].comment)
            apart = long[position - 1] or (long[owner] and not is_attached)
            if entry.blank_before or apart:
                yield ""
        yield from laid[position]
