"""What a user is told about a fault of the input: codes, spans, labels, notes, one help.

A diagnostic is data; `render` turns it into the text a terminal shows. Nothing here prints, and nothing here knows
where a diagnostic comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source file. Lines and columns count from 1; `end_column` is one past the last character."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, other: Span) -> Span:
        """The stretch from the start of `self` to the end of `other`, in the same file."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True, slots=True)
class Note:
    """A further fact, and where it comes from."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault: `code` is a kebab-case word, `message` stands alone, `label` stands under the caret."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[Note, ...] = ()
    help: str = ""
    severity: str = "error"


class DiagnosticError(Exception):
    """One or more faults of the input. `sources` holds the text of the files that their spans point into."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources: dict[str, str] = dict(sources or {})
        assert self.diagnostics
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics, self.sources)


@dataclass
class Collector:
    """Gathers the faults of a stage, each once, so that all of a file are told in one run."""

    diagnostics: list[Diagnostic] = field(default_factory=list)

    def report(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)

    def raise_if_any(self, sources: Mapping[str, str] | None = None) -> None:
        if self.diagnostics:
            raise DiagnosticError(self.diagnostics, sources)


def render(diagnostic: Diagnostic, sources: Mapping[str, str]) -> str:
    """The text of one diagnostic, with the source line and a caret under the span where the source is known."""
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"]
    span = diagnostic.span
    if span is not None:
        lines.append(f"  --> {span}")
        source = sources.get(span.file, "").splitlines()
        if 1 <= span.line <= len(source):
            text = source[span.line - 1]
            gutter = len(str(span.line))
            end = span.end_column if span.end_line == span.line else len(text) + 1
            # Tabs are kept in the padding, so that the caret stays under its column whatever a tab's width.
            pad = "".join("\t" if c == "\t" else " " for c in text[: span.column - 1])
            carets = "^" * max(1, min(end, len(text) + 2) - span.column)
            lines.append(f"{' ' * gutter} |")
            lines.append(f"{span.line} | {text}")
            lines.append(f"{' ' * gutter} | {pad}{carets}{' ' + diagnostic.label if diagnostic.label else ''}")
            if diagnostic.notes or diagnostic.help:
                lines.append(f"{' ' * gutter} |")
        elif diagnostic.label:
            lines.append(f"   = {diagnostic.label}")
    for note in diagnostic.notes:
        lines.append(f"   = {note.message}" + (f", at {note.span}" if note.span else ""))
    if diagnostic.help:
        lines.append(f"   = help: {diagnostic.help}")
    return "\n".join(lines)


def render_all(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    return "\n\n".join(render(d, sources) for d in diagnostics)
