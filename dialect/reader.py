"""A cursor over text: words, strings, numbers, brackets, and errors with their spans. It does not depend on a
grammar."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable
from typing import NoReturn

from .diagnostics import Collector, Diagnostic, DiagnosticError, Span
from .printer import WORD

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_FOUND = re.compile(r'%?[\w.]+|"[^"\n]*"?|\S')
INTEGER = re.compile(r"-?[0-9]+(?!\w|\.(?!\.))")

DEEPEST = 40
"""The deepest nesting of brackets. The printer writes no deeper text, and reading it would exhaust the stack."""
LONGEST_INTEGER = 30


class Reader:
    """Primitives for a recursive parser. A syntax error ends parsing; other errors are collected in `errors`."""

    syntax_code = "syntax"

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.position = 0
        self.depth = 0
        self.errors = Collector()
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def _line_and_column(self, position: int) -> tuple[int, int]:
        line = bisect.bisect_right(self.line_starts, position)
        return line, position - self.line_starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        return Span(self.file, *self._line_and_column(start), *self._line_and_column(end))

    def report(self, code: str, message: str, start: int, end: int, label: str = "", help: str = "") -> None:
        self.errors.report(Diagnostic(code, message, self.span(start, end), label, help=help))

    def fail(self, message: str, start: int | None = None, *, code: str = "", help: str = "") -> NoReturn:
        """Stops with an error at `start`, by default at the next token."""
        label = ""
        if start is None:
            start = self.position
            found = _FOUND.match(self.text, start)
            end = found.end() if found else start
            label = f"found `{found.group()}`" if found else "unexpected end of the text"
        else:
            end = max(start, self.position)
        self.report(code or self.syntax_code, message, start, end, label, help)
        raise DiagnosticError(self.errors.diagnostics, {self.file: self.text})

    def skip(self) -> None:
        """Skips space and comments."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def peek(self, literal: str) -> bool:
        self.skip()
        if not self.text.startswith(literal, self.position):
            return False
        after = self.text[self.position + len(literal) : self.position + len(literal) + 1]
        return not (literal[-1].isalnum() and (after.isalnum() or after == "_"))

    def accept(self, literal: str) -> bool:
        if not self.peek(literal):
            return False
        self.position += len(literal)
        return True

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            self.fail(f"expected `{literal}`")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def string(self) -> str | None:
        self.skip()
        start = self.position
        match = self.take(_STRING)
        if match is None:
            return None
        try:
            value = json.loads(match.group())
        except ValueError:
            self.fail("malformed string", start)
        assert isinstance(value, str)
        return value

    def name(self, what: str, bare: re.Pattern[str] = WORD) -> str:
        quoted = self.string()
        if quoted is not None:
            return quoted
        match = self.take(bare)
        return match.group() if match else self.fail(f"expected {what}")

    def integer(self, what: str) -> int:
        start = self.position
        match = self.take(INTEGER)
        if match is None:
            self.fail(f"expected {what}")
        if len(match.group()) > LONGEST_INTEGER:
            self.fail("this number is too large", start)
        return int(match.group())

    def list(self, item: Callable[[], None], close: str) -> None:
        """Parses items between commas up to the closing bracket; a trailing comma is allowed."""
        while not self.accept(close):
            item()
            if not self.accept(","):
                self.expect(close)
                return

    def deeper(self, start: int) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail("brackets are nested too deeply", start)
