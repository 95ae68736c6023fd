"""Text to syntax tree, with every syntax error of the file in one run.

Tokens are fed to the parser one by one. At each statement the state of the parser is kept.
At an unexpected token, the error is reported, the statement is dropped, and parsing continues after it from this state.
An invalid header is replaced by an empty one, so that its body is still read. Every input gives a tree or a
DiagnosticError.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from lark import Token, Tree

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from ....dialect.lazy_dataclass import dataclass
from ...base.similar import missing_file
from .arrange import tokenize
from .build import build
from .explain import Mistake, explain
from .lalr import Parser
from .syntax import File
from .tokens import INVALID, NEWLINE, PICKED, REDUCE, span_of

MAX_BYTES = 16 << 20
_KEPT_TREES, _KEPT_TEXT = 64, 1 << 18
"""The number of trees that are kept, and the greatest length of their texts."""
_ENDS = (NEWLINE, "SEMICOLON", "RBRACE")
# Replacements for an invalid header, by the content of its body.
_EMPTY_HEADERS = {
    ("file", "TEST"): "TEST NAME STRING",
    ("file", "BUDGET"): "BUDGET NAME",
    ("file", "QUANTIZE"): "QUANTIZE NAME",
    ("body", "MINIMIZE"): "MINIMIZE NAME WITH NAME LPAR RPAR",
    ("file", ""): "BLOCK NAME LPAR RPAR ARROW NAME",
    ("body", ""): "REPEAT NAME IN INT RANGE INT",
}
_CONSTRUCTS = {"TEST": "test", "BUDGET": "budget", "QUANTIZE": "policy", "MINIMIZE": "update"}
"""The kind of braces that follow a word. Braces after any other word contain statements."""
_EMPTY_TEXTS = {"STRING": '""', "INT": "0", "NAME": "_"}


def parse(text: str, file: str) -> File:
    """Returns the tree of a source file; `file` is its name in diagnostics. Raises DiagnosticError."""
    text = normalise(text)
    result, collector = _parse(text, file)
    _raise_if_any(collector, {file: text})
    assert result is not None, file
    return result


def parse_recovered(text: str, file: str) -> tuple[File | None, list[Diagnostic]]:
    """Returns the tree of the statements without syntax errors, and the errors. The tree is None where the text cannot
    be read to its end."""
    text = normalise(text)
    result, collector = _parse(text, file)
    try:
        _raise_if_any(collector, {file: text})
    except DiagnosticError as error:
        return result, list(error.diagnostics)
    return result, []


def _parse(text: str, file: str) -> tuple[File | None, Collector]:
    """Returns the tree, and a collector of the errors. Trees are immutable, so that of a text without errors is kept:
    the models of a program import the same files."""
    try:
        return (_parse_kept if len(text) <= _KEPT_TEXT else _parse_correct)(text, file), Collector()
    except _IncorrectError as error:
        return error.result, error.collector


class _IncorrectError(Exception):
    """Carries the tree and the errors of a text, so that they are not kept."""

    def __init__(self, result: File | None, collector: Collector) -> None:
        super().__init__()
        self.result, self.collector = result, collector


def _parse_correct(text: str, file: str) -> File:
    result, collector = _parse_anew(text, file)
    if result is None or collector.diagnostics:
        raise _IncorrectError(result, collector)
    return result


_parse_kept = lru_cache(maxsize=_KEPT_TREES)(_parse_correct)


def _parse_anew(text: str, file: str) -> tuple[File | None, Collector]:
    collector = Collector()
    try:
        tokens = [token for token in tokenize(text, file, collector) if token.type != "COMMENT"]
        tree = _Parser(tokens, file, collector).run()
        return build(tree, file, collector), collector
    except DiagnosticError:
        return None, collector  # too deep to continue; the reason is in the collector


def parse_bytes(data: bytes, file: str) -> File:
    """Parses the bytes of a file like `parse`; they must be UTF-8."""
    return parse(decode(data, file), file)


_LIBRARY = b"\x7fELF"
"""The first bytes of shared libraries."""


def normalise(text: str) -> str:
    """Removes a byte order mark and converts newlines: spans count in this text."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def decode(data: bytes, file: str) -> str:
    """Returns the text of a source file. Raises DiagnosticError for bytes that are not UTF-8, for more than
    `MAX_BYTES`, and for a shared library."""
    if data.startswith(_LIBRARY):
        help_text = "name the model file; `nacre inspect` describes an artifact"
        message = f"`{file}` is a shared library, not a model file"
        raise DiagnosticError([Diagnostic("compiled-already", message, help=help_text)])
    if len(data) > MAX_BYTES:
        message = f"`{file}` has {len(data):,} bytes, a source file has at most {MAX_BYTES:,}"
        raise DiagnosticError([Diagnostic("too-large", message, help="store large tensors in a checkpoint")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = normalise(data[: error.start].decode("utf-8"))
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        byte = data[error.start]
        help_text = "source files are UTF-8"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            help_text = "this looks like UTF-16; save the file as UTF-8"
        elif b"\0" in data[:4096]:
            help_text = "this looks like a binary file"
        span = Span(file, line, column, line, column + 1)
        message = f"byte 0x{byte:02x} at offset {error.start} is not UTF-8"
        sources = {file: normalise(data.decode("utf-8", "replace"))}
        raise DiagnosticError([Diagnostic("not-utf8", message, span, help=help_text)], sources) from None


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises DiagnosticError if it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise missing_file(path) from None
    except (OSError, ValueError) as error:
        reason = (
            (error.strerror or "the system refuses access").lower() if isinstance(error, OSError) else "no such name"
        )
        raise DiagnosticError([Diagnostic("missing-file", f"`{path}` cannot be read: {reason}")]) from None
    return decode(data, str(path))


def _raise_if_any(collector: Collector, sources: dict[str, str]) -> None:
    """Raises all diagnostics, in the order of the text."""
    collector.diagnostics.sort(key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0))
    collector.raise_if_any(sources)


@dataclass(slots=True)
class _Level:
    """The content of one pair of braces, or of the file: its kind, and the current statement."""

    construct: str
    state: Parser
    start: int


class _Parser:
    def __init__(self, tokens: list[Token], file: str, collector: Collector) -> None:
        self.tokens = tokens
        self.file = file
        self.collector = collector
        self.state = Parser()
        self.levels = [_Level("file", self.state, 0)]
        self.at_start = True
        self.partners = _partners(tokens)

    def run(self) -> Tree[Token]:
        index = 0
        while index < len(self.tokens):
            index = self._step(index)
        last = self.tokens[-1] if self.tokens else Token(NEWLINE, "\n")
        return self.state.finish(last)

    def _step(self, index: int) -> int:
        """Consumes the token at `index`; returns the index of the next one."""
        token, level = self.tokens[index], self.levels[-1]
        if self.at_start:
            level.state, level.start = self.state.copy(), index
        if token.type == INVALID:  # has been reported
            return self._recover(index)
        if not self.state.feed(token):
            if self.collector.is_full:
                self.collector.omit(span_of(token, self.file))  # an explanation takes longer than the parse
            elif not self._has_known_error(index):
                accepted = _accepted(self.state)
                mistake = Mistake(self.tokens, level.start, index, accepted, level.construct, self.file)
                self.collector.report(explain(mistake))
            return self._recover(index)
        if token.type == "LBRACE":
            construct = _CONSTRUCTS.get(self.tokens[level.start].type, "body")
            self.levels.append(_Level(construct, self.state, index + 1))
        elif token.type == "RBRACE":
            self.levels.pop()
        self.at_start = token.type in (NEWLINE, "SEMICOLON", "LBRACE")
        return index + 1

    def _has_known_error(self, index: int) -> bool:
        """Returns whether the rest of the statement contains a reported error that explains this one."""
        while index < len(self.tokens) and self.tokens[index].type not in (*_ENDS, "LBRACE"):
            if self.tokens[index].type == INVALID:
                return True
            index += 1
        return False

    def _recover(self, index: int) -> int:
        """Drops the statement that failed at `index`; returns the index to continue at."""
        level = self.levels[-1]
        # A loop inside brackets: its body belongs to the statement.
        is_operand = self.tokens[index].type == INVALID and self.tokens[index] in ("scan", "repeat")
        self.state = level.state.copy()
        while index < len(self.tokens) and self.tokens[index].type not in (*_ENDS, "LBRACE"):
            index += 1
        if [token.type for token in self.tokens[index : index + 2]] == [NEWLINE, "LBRACE"]:
            index += 1
        self.at_start = True
        if index < len(self.tokens) and self.tokens[index].type == "LBRACE":
            head = self.tokens[level.start].type
            header = _EMPTY_HEADERS.get((level.construct, head)) or _EMPTY_HEADERS.get((level.construct, ""))
            if header is None or is_operand:
                return self._end_of_statement(index)
            for kind in header.split():
                text = _EMPTY_TEXTS.get(kind, "")
                accepted = self.state.feed(Token.new_borrow_pos(kind, text, self.tokens[index]))
                assert accepted, kind
            self.at_start = False
        return index

    def _end_of_statement(self, index: int) -> int:
        while index < len(self.tokens) and self.tokens[index].type not in _ENDS:
            index = self.partners.get(index, index) + 1
        return index


def _accepted(state: Parser) -> frozenset[str]:
    # Tokens that `arrange.py` inserts or marks are not words that a message can propose.
    return state.accepts() - {REDUCE, PICKED}


def _partners(tokens: list[Token]) -> dict[int, int]:
    """Returns the closing bracket of each `[` and `{`."""
    partners: dict[int, int] = {}
    waiting: dict[str, list[int]] = {"RSQB": [], "RBRACE": []}
    for index, token in enumerate(tokens):
        if token.type in ("LSQB", "LBRACE"):
            waiting["RSQB" if token.type == "LSQB" else "RBRACE"].append(index)
        elif waiting.get(token.type):
            partners[waiting[token.type].pop()] = index
    return partners
