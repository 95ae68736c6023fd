"""Diagnostics about errors in the input: codes, spans, labels, notes, one help.

A diagnostic is data; `render` turns it into the text that a terminal shows. This module prints nothing, and does not
depend on the origin of a diagnostic.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from .lazy_dataclass import dataclass
from .wrapping import wrap

# A longer source line is shown in part, around the span.
_LINE_WIDTH = 160
_NO_WIDTH = 1 << 30
MOST_LISTED = 200
"""The most errors of a stage that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range in a source file. Lines and columns count from 1; `end_column` is one past the last character."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, other: Span) -> Span:
        """Returns the range from the start of `self` to the end of `other`, in the same file."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True, slots=True)
class Note:
    """An additional fact, and its source location."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning: `code` is a kebab-case word, `message` is self-contained, `label` is under the caret."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[Note, ...] = ()
    help: str = ""
    severity: str = "error"


class DiagnosticError(Exception):
    """One or more errors in the input. `sources` contains the text of the files that their spans point into."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources: dict[str, str] = dict(sources or {})
        assert self.diagnostics
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics, self.sources)


class MissingFileError(DiagnosticError, FileNotFoundError):
    """Errors with a path without a readable file among them, which the caller or a file gave."""


def failure(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str] | None = None) -> DiagnosticError:
    """Returns the exception of diagnostics, which is also a `FileNotFoundError` if a file is missing."""
    is_missing = any(d.code == "missing-file" and d.severity == "error" for d in diagnostics)
    return (MissingFileError if is_missing else DiagnosticError)(diagnostics, sources)


class NacreWarning(UserWarning):
    """A warning of the compiler, with the text that the command line prints."""


@dataclass
class Collector:
    """Gathers the errors of a stage, each once, so that one run reports all errors of a file. The first `MOST_LISTED`
    are listed, the others are counted."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    omitted: int = 0
    first_omitted: Span | None = None
    _seen: set[Diagnostic] = field(default_factory=set, repr=False)

    @property
    def is_full(self) -> bool:
        return len(self.diagnostics) >= MOST_LISTED

    def report(self, diagnostic: Diagnostic) -> None:
        if diagnostic in self._seen:
            return
        if self.is_full:
            self.omit(diagnostic.span)
            return
        self._seen.add(diagnostic)
        self.diagnostics.append(diagnostic)

    def omit(self, span: Span | None) -> None:
        """Counts an error without a diagnostic, because enough are listed."""
        self.omitted += 1
        self.first_omitted = self.first_omitted or span

    def raise_if_any(self, sources: Mapping[str, str] | None = None) -> None:
        if self.omitted:
            count = f"{self.omitted} more error{'s are' if self.omitted > 1 else ' is'} not listed"
            self.diagnostics.append(Diagnostic("too-many-errors", count, self.first_omitted))
        if self.diagnostics:
            raise failure(self.diagnostics, sources)


def render(diagnostic: Diagnostic, sources: Mapping[str, str]) -> str:
    """Returns the text of one diagnostic, with the source line and a caret under the span if the source is known."""
    return render_all([diagnostic], sources)


def render_all(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], width: int = _NO_WIDTH) -> str:
    """Returns the texts of diagnostics, with empty lines between. Their sentences fit the width; source lines stay."""
    diagnostics = list(diagnostics)
    files = {d.span.file for d in diagnostics if d.span is not None}
    lines = {file: text.split("\n") for file, text in sources.items() if file in files}
    return "\n\n".join(_render(d, lines, width) for d in diagnostics)


def _render(diagnostic: Diagnostic, sources: Mapping[str, Sequence[str]], width: int) -> str:
    lines = wrap(visible(diagnostic.message), f"{diagnostic.severity}[{diagnostic.code}]: ", " " * 4, width)
    span = diagnostic.span
    margin = ""
    if span is not None:
        source = sources.get(span.file, ())
        is_known = 1 <= span.line <= len(source)
        margin = " " * len(str(span.line)) if is_known else "  "
        lines.append(f"{margin}--> {span}")
        if is_known:
            text, carets = _excerpt(source[span.line - 1].removesuffix("\r"), span)
            lines.append(f"{margin} |")
            lines.append(f"{span.line} | {text}".rstrip())
            lines += _labelled(f"{margin} | ", carets, visible(diagnostic.label), width)
            if diagnostic.notes or diagnostic.help:
                lines.append(f"{margin} |")
        elif diagnostic.label:
            lines += wrap(visible(diagnostic.label), f"{margin} = ", f"{margin}   ", width)
    for note in diagnostic.notes:
        message = visible(note.message) + (f", at {note.span}" if note.span else "")
        lines += wrap(message, f"{margin} = ", f"{margin}   ", width)
    if diagnostic.help:
        lines += wrap(visible(diagnostic.help), f"{margin} = help: ", f"{margin}   ", width)
    return "\n".join(lines)


def _labelled(bar: str, carets: str, label: str, width: int) -> list[str]:
    """Returns the carets with their label, which has separate lines where it does not fit beside them."""
    line = f"{bar}{carets} {label}".rstrip()
    if not label or len(line) <= width:
        return [line]
    room = max(20, min(len(label), width // 2))
    pad = bar + " " * max(0, min(carets.index("^"), width - len(bar) - room))
    return [bar + carets, *wrap(label, pad, pad, width)]


def visible(text: str) -> str:
    """Returns `text` with a replacement character for each control character that a terminal would interpret."""
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)


def _excerpt(text: str, span: Span) -> tuple[str, str]:
    """Returns the source line, or the part of it around the span, and the carets to print under it."""
    start = min(span.column - 1, len(text))
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    end = max(start + 1, min(end, len(text) + 1))
    low, high = 0, len(text)
    if high > _LINE_WIDTH:
        low = max(0, min(start - _LINE_WIDTH // 4, high - _LINE_WIDTH))
        high = low + _LINE_WIDTH
        end = min(end, high)
    prefix, suffix = "..." if low else "", "..." if high < len(text) else ""
    text, start, end = visible(text[low:high]), start - low, end - low
    # Tabs stay tabs in the padding, so that the caret is under its column for any tab width.
    pad = "".join("\t" if c == "\t" else " " * _columns(c) for c in text[:start])
    # One more caret where the span reaches past the last character, for a missing token.
    carets = "^" * max(1, sum(_columns(c) for c in text[start:end]) + (end > len(text)))
    return prefix + text + suffix, " " * len(prefix) + pad + carets


def _columns(character: str) -> int:
    """Returns the number of terminal columns of a character."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
