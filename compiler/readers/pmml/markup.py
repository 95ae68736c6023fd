"""Parses XML into elements with their lines, and reads attributes with errors that name them.

A document type declaration is refused, so that no entity is ever expanded and no other file is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span

_MOST_NESTED = 4096
_WITH_TEXT, _ROW = ("Array", "Constant"), "row"
"""The elements whose text is kept, and the one whose children are cells with text."""


@dataclass(slots=True, eq=False)
class Element:
    """An element: its name without namespace, its attributes and children, and its position in the file."""

    name: str
    attributes: Mapping[str, str]
    span: Span
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def fail(self, message: str, code: str = "bad-tree", help: str = "") -> NoReturn:
        raise DiagnosticError([Diagnostic(code, message, self.span, help=help)])

    def all(self, *names: str) -> Iterator[Element]:
        return (child for child in self.children if child.name in names)

    def first(self, *names: str) -> Element | None:
        return next(self.all(*names), None)

    def required(self, name: str) -> Element:
        found = self.first(name)
        if found is None:
            self.fail(f"`{self.name}` has no `{name}`")
        return found

    def attribute(self, name: str) -> str:
        if name not in self.attributes:
            self.fail(f"`{self.name}` has no attribute `{name}`")
        return self.attributes[name]

    def choice(self, name: str, default: str, *others: str) -> str:
        """Returns an attribute that has the default value or one of `others`; any other value is an error."""
        found = self.attributes.get(name, default)
        if found not in (default, *others):
            self.fail(f"`{self.name}` has `{name}` = `{found}`, which is not supported", code="unsupported-trees")
        return found

    def number(self, name: str, default: float | None = None) -> float:
        if default is not None and name not in self.attributes:
            return default
        return self.parse_number(self.attribute(name), f"`{name}` of `{self.name}`")

    def parse_number(self, text: str, what: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if math.isnan(found):
            self.fail(f"{what} is `{text:.40}`, not a number")
        return found


class _Builder:
    """The elements that are open while a file is parsed."""

    def __init__(self, file: str) -> None:
        self.file, self.open = file, list[Element]()
        self.root: Element | None = None
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _span(self) -> Span:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        return Span(self.file, line, column, line, column + 1)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        element = Element(name.rpartition(" ")[2], attributes, self._span())
        if len(self.open) >= _MOST_NESTED:
            element.fail(f"elements are nested more than {_MOST_NESTED} times", code="too-large")
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, _: str) -> None:
        self.open.pop()

    def _text(self, text: str) -> None:
        if self.open[-1].name in _WITH_TEXT or (len(self.open) > 1 and self.open[-2].name == _ROW):
            self.open[-1].text += text

    def _refuse(self, *_: object) -> None:
        message = "the file declares a document type, which may define entities; this is refused"
        raise DiagnosticError([Diagnostic("bad-tree", message, self._span())])


def parse(path: Path) -> Element:
    """Returns the root element of a file. Raises DiagnosticError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror or error}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    builder = _Builder(str(path))
    try:
        builder.parser.Parse(data, True)
    except expat.ExpatError as error:
        span = Span(str(path), error.lineno, error.offset + 1, error.lineno, error.offset + 2)
        message = f"`{path}` is not XML: {expat.errors.messages[error.code]}"
        raise DiagnosticError([Diagnostic("bad-tree", message, span)]) from error
    except (ValueError, LookupError) as error:
        raise DiagnosticError([Diagnostic("bad-tree", f"`{path}` is not XML: {error}")]) from error
    assert builder.root is not None, path
    return builder.root
