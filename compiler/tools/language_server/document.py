"""One open file: its text, its syntax tree and graph, and the conversion between spans and positions of the protocol.

A span counts lines and columns from 1, in code points. A position of the protocol counts from 0, in UTF-16 code units
unless the editor requests others; `pygls` converts these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lsprotocol import types as protocol
from pygls.workspace import PositionCodec

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ...model.parameters import needed_checkpoints, open_parameters
from ...readers.language import syntax
from ...readers.language.study import Occurrence, Study, study
from ...weights import Checkpoint, open_checkpoint


@dataclass(slots=True)
class Document:
    """A file as the editor shows it. `readable` is the last study with a tree: while a statement is being typed, the
    text may have none."""

    path: Path
    text: str
    checkpoint: Path | None = None
    codec: PositionCodec = field(default_factory=PositionCodec)
    study: Study = field(init=False)
    readable: Study | None = None
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.update(self.text)

    def update(self, text: str) -> None:
        """Reads a new text of the file."""
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.study = study(text, self.path, self.checkpoint)
        if self.study.tree is not None:
            self.readable = self.study

    # --- positions ---

    def location(self, position: protocol.Position) -> tuple[int, int]:
        """Returns the line and the column of a position, as spans count them."""
        found = self.codec.position_from_client_units(self.lines, position)
        return found.line + 1, found.character + 1

    def range(self, span: Span) -> protocol.Range:
        return range_of(span, self.lines, self.codec)

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    # --- what was read ---

    def occurrence(self, line: int, column: int) -> Occurrence | None:
        """Returns the name at a location, or the one that ends there."""
        known = self.readable or self.study
        found = [each for span, each in known.occurrences.items() if contains(span, line, column)]
        return min(found, key=lambda each: size(each.span), default=None)

    def diagnostics(self) -> list[Diagnostic]:
        """Returns the diagnostics of `nacre check`, with the comparison with the checkpoint."""
        found = list(self.study.diagnostics)
        model = self.study.model
        if model is None or self.study.has_errors:
            return found
        try:
            paths = needed_checkpoints(model).values()
            if all(path is not None and (not isinstance(path, Path) or path.exists()) for path in paths):
                open_parameters(model)
        except DiagnosticError as error:
            found += error.diagnostics
        return found

    def open_checkpoint(self) -> Checkpoint | None:
        """Returns the checkpoint that the file names, or the one that the editor names; None if it cannot be read."""
        path = self.checkpoint
        tree = None if self.readable is None else self.readable.tree
        for item in () if tree is None else tree.items:
            if isinstance(item, syntax.Model) and path is None:
                named = (s.path.value for s in item.body if isinstance(s, syntax.Weights))
                path = next((self.path.parent / name for name in named), None)
        try:
            return None if path is None or not path.exists() else open_checkpoint(path)
        except DiagnosticError:
            return None


def contains(span: Span, line: int, column: int) -> bool:
    """Returns whether a location is in a span, or directly after it, where the cursor stands after a word."""
    return (span.line, span.column) <= (line, column) <= (span.end_line, span.end_column)


def size(span: Span) -> tuple[int, int]:
    """Returns a measure by which an inner span is smaller than one around it."""
    return span.end_line - span.line, span.end_column - span.column


def range_of(span: Span, lines: list[str], codec: PositionCodec) -> protocol.Range:
    """Returns the range of a span in the units that the editor counts."""
    start = protocol.Position(max(0, span.line - 1), max(0, span.column - 1))
    end = protocol.Position(max(0, span.end_line - 1), max(0, span.end_column - 1))
    if span.end_line > len(lines):
        return protocol.Range(start, end)
    return codec.range_to_client_units(lines, protocol.Range(start, end))
