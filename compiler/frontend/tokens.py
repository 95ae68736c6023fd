"""Text to tokens: what lark's lexer yields, checked and put into the shape that the grammar expects.

Three things are decided here because a grammar of one token's foresight cannot: which newlines end a statement, which
`<` opens hyper-parameters, and which opening bracket was forgotten when a closing one does not fit. A fault is reported
and leaves a FAULT token, on which the parser gives up that statement without a second report. Nothing here knows what a
statement looks like beyond the word that it begins with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from lark import Lark, Token

from ...dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Note, Span

FAULT = "FAULT"
NEWLINE = "_NEWLINE"
HYPER_OPEN = "_HYPER_OPEN"
HYPER_CLOSE = "_HYPER_CLOSE"

MAX_NESTING = 60  # open brackets
MAX_DIGITS = 40  # of a number, far above what any literal needs

OPENING = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE", HYPER_OPEN: HYPER_CLOSE}
CLOSING = {close: opening for opening, close in OPENING.items()}
SOFT_WORDS = frozenset(
    "LANGUAGE CONFIG AS DIM MULTIPLE IMPORT BLOCK MODEL FROM TRANSPOSE WEIGHTS TEST GIVEN EXPECT WITHIN FILE BUDGET"
    " STATE TRAIN QUANTIZE GRAD".split()
)
HARD_WORDS = frozenset("TRUE FALSE NONE AND OR NOT IN IF ELSE PARAM USE REPEAT RETURN".split())
NAMES = SOFT_WORDS | {"NAME"}
WORDS = NAMES | HARD_WORDS
# A line that begins with one of these goes on with the statement of the line before.
CONTINUES = frozenset(
    "PIPE PLUS MINUS STAR SLASH FLOOR PERCENT POWER AT EQUAL DIFFERENT LESS AT_MOST MORE AT_LEAST AND OR".split()
)
# Words that begin a statement or an item, each with what has to follow for it to be that and not a name.
STARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("BLOCK", "MODEL", "TEST", "BUDGET", "DIM", "GIVEN", "STATE", "TRAIN", "QUANTIZE"), NAMES),
    **dict.fromkeys(("CONFIG", "IMPORT", "WEIGHTS"), frozenset({"STRING"})),
    "EXPECT": NAMES | {"STRING"},
    "GRAD": frozenset({"LBRACE"}),
    **dict.fromkeys(("PARAM", "USE", "REPEAT", "RETURN"), WORDS | {"INT", "FLOAT", "STRING", "LPAR", "LSQB", "MINUS"}),
}
ITEM_STARTS = frozenset({"BLOCK", "MODEL", "TEST", "BUDGET", "DIM", "CONFIG", "IMPORT"})
# What may stand between the `<` and the `>` around hyper-parameters.
_IN_HYPERS = WORDS - {"PARAM", "USE", "REPEAT", "RETURN"} | frozenset(
    "INT FLOAT STRING COMMA DOT ASSIGN PLUS MINUS STAR SLASH FLOOR PERCENT POWER".split()
)

# Control characters, and those that reorder the text around them, are faults wherever they stand.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STRANGE_HELP = {
    "×": "multiplication is written `*`",
    "·": "multiplication is written `*`",
    "÷": "division is written `/`",
    "−": "a minus is the ASCII character `-`",
    "–": "a minus is the ASCII character `-`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "→": "write `->`",
    "…": "write three dots `...`",
    "“": 'strings stand between ASCII double quotes `"`',
    "”": 'strings stand between ASCII double quotes `"`',
    "‘": 'strings stand between ASCII double quotes `"`',
    "’": 'strings stand between ASCII double quotes `"`',
    "'": 'strings stand between double quotes `"`',
    "`": 'strings stand between double quotes `"`',
    "&": "write `and`",
    "|": "write `or`, or `|>` for a pipe",
    "!": "write `not`",
    "^": "a power is written `**`",
    "~": "write `not`",
    "?": "a condition is written `a if condition else b`",
    "$": "names hold letters, digits and `_`",
    "\\": "a statement goes on inside brackets, or on a line that begins with an operator",
    "\u00a0": "this is a no-break space; use an ordinary one",
    "\ufeff": "a byte order mark is allowed only as the first character of a file",
}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class _KeepTrivia:
    """Tells lark to keep terminals that no rule mentions."""

    always_accept = ("COMMENT", "UNCLOSED_STRING", "STRANGE")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def grammar() -> Lark:
    text = resources.files(__package__).joinpath("nacre.lark").read_text(encoding="utf-8")
    return Lark(
        text,
        parser="lalr",
        lexer="basic",
        start="file",
        propagate_positions=True,
        maybe_placeholders=False,
        postlex=_KeepTrivia(),  # type: ignore[arg-type]  # lark's PostLex is an abstract class, used by its shape only
    )


def span_of(token: Token, file: str) -> Span:
    assert token.line is not None and token.column is not None, token
    assert token.end_line is not None and token.end_column is not None, token
    return Span(file, token.line, token.column, token.end_line, token.end_column)


def string_value(token: Token) -> str:
    """The text that a STRING token stands for."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])


def describe_character(character: str) -> str:
    """`×`, or the code point where a terminal would show nothing."""
    if character.isprintable() and not character.isspace():
        return f"`{character}`"
    name = unicodedata.name(character, "").lower()
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")


def tokenize(text: str, file: str, collector: Collector) -> list[Token]:
    """All tokens of `text`, whose lines end in plain newlines; comments are among them, useless newlines are not."""
    return _Arranger(list(_checked(text, file, collector)), file, collector).run()


# --- one token at a time ----------------------------------------------------------------------------------------------


def _checked(text: str, file: str, collector: Collector) -> Iterator[Token]:
    """lark's tokens, the faulty ones reported and turned into FAULT."""
    previous: Token | None = None
    for token in grammar().lex(text):
        fault = _fault_of(token, previous, file)
        if fault is not None:
            # A run of strange characters is one fault.
            touching = previous is not None and previous.type == FAULT and previous.end_pos == token.start_pos
            if not (touching and token.type == "STRANGE"):
                collector.report(fault)
            token = Token.new_borrow_pos(FAULT, str(token), token)
        yield token
        previous = token


def _fault_of(token: Token, previous: Token | None, file: str) -> Diagnostic | None:
    span = span_of(token, file)
    if token.type in ("STRING", "COMMENT"):
        bad = _FORBIDDEN.search(token)
        if bad is not None:
            return _bad_character(token[bad.start()], _inside(span, bad.start(), bad.end()))
    if token.type == "STRING":
        return _bad_escape(token, span)
    if token.type == "STRANGE":
        return _bad_character(str(token), span)
    if token.type == "UNCLOSED_STRING":
        return Diagnostic(
            "unclosed-string", "string is not closed on its line", span, 'no `"` follows', help=r"a newline is `\n`"
        )
    if token.type in ("INT", "FLOAT"):
        return _bad_number(token, span)
    # `8MiB` is a quantity; `0x10` and `1abc` are a number and a name that stand too close.
    touches = previous is not None and previous.end_pos == token.start_pos and previous.type in ("INT", "FLOAT")
    if touches and previous is not None and token.type in WORDS and (token[0] in "_xXeEjL" or token[-1].isdigit()):
        return Diagnostic(
            "bad-number",
            f"`{previous}{token}` is not a number",
            span_of(previous, file).to(span),
            help="numbers are decimal: 16, 1_000, 0.5, 1e-5",
        )
    return None


def _inside(span: Span, start: int, end: int) -> Span:
    """A part of a one-line span, in characters from its start."""
    return Span(span.file, span.line, span.column + start, span.line, span.column + end)


def _bad_character(character: str, span: Span) -> Diagnostic:
    help_text = _STRANGE_HELP.get(character, "")
    if not help_text and character.isalpha():
        help_text = "names are written with ASCII letters, digits and `_`"
    return Diagnostic("bad-character", f"{describe_character(character)} cannot stand here", span, help=help_text)


def _bad_escape(token: Token, span: Span) -> Diagnostic | None:
    for match in re.finditer(r"\\(.)", token[1:-1]):
        if match[1] not in _ESCAPES:
            part = _inside(span, match.start() + 1, match.end() + 1)
            known = r"the escapes are \n, \t, \" and \\"
            return Diagnostic("bad-escape", f"`{match[0]}` is not an escape of a string", part, help=known)
    return None


def _bad_number(token: Token, span: Span) -> Diagnostic | None:
    shown = str(token) if len(token) <= MAX_DIGITS else f"{token[:10]}... ({len(token)} characters)"
    if "__" in token or re.search(r"_($|[^0-9])", token):
        return Diagnostic("bad-number", f"`{shown}` has a `_` that is not between two digits", span)
    if len(token) > MAX_DIGITS:
        return Diagnostic("number-too-large", f"`{shown}` has too many digits", span)
    if token.type == "INT" and int(token) >= 2**63:
        return Diagnostic("number-too-large", f"`{shown}` does not fit 64 bits", span, "2**63 and above")
    if token.type == "FLOAT" and float(token) == float("inf"):
        return Diagnostic("number-too-large", f"`{shown}` does not fit a 64-bit float", span, "above 1.8e308")
    return None


# --- brackets, newlines, hyper-parameters -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Open:
    """A bracket that waits for its partner, and the column that its line begins at."""

    token: Token
    indent: int

    @property
    def close(self) -> str:
        return OPENING[self.token.type]


class _Arranger:
    """One walk over the tokens, with a stack of open brackets."""

    def __init__(self, tokens: list[Token], file: str, collector: Collector) -> None:
        self.tokens = tokens
        self.file = file
        self.collector = collector
        self.output: list[Token] = []
        self.open: list[_Open] = []
        self.at_start = True  # of a statement
        self.head = ""  # type of the token that the statement began with
        self.indent = 1  # column of the first token of the line
        self.hyper_closes: set[int] = set()  # indices of `>` that close hyper-parameters

    def run(self) -> list[Token]:
        line = 0
        for index, token in enumerate(self.tokens):
            if token.type not in (NEWLINE, "COMMENT") and token.line != line:
                line, self.indent = token.line or 0, token.column or 1
                self._end_forgotten_brackets(index)
            self._one(index, token)
        if self.tokens:
            self._unclosed(0, Token.new_borrow_pos(NEWLINE, "\n", self.tokens[-1]), at_end=True)
        return self.output

    def _one(self, index: int, token: Token) -> None:
        kind = token.type
        if kind == "COMMENT":
            self.output.append(token)
        elif kind == NEWLINE:
            if not self._in_brackets and not self.at_start and self._next_type(index) not in CONTINUES:
                self._emit(token)
        elif kind == "LESS" and self._opens_hypers(index):
            self._push(Token.new_borrow_pos(HYPER_OPEN, "<", token))
        elif index in self.hyper_closes:
            self._pop(Token.new_borrow_pos(HYPER_CLOSE, ">", token))
        elif kind in OPENING:
            if kind == "LBRACE":
                self._unclosed(self._block_depth, token)
            self._push(token)
        elif kind in CLOSING:
            self._pop(token)
        elif kind in ("SEMICOLON", "ARROW"):
            self._unclosed(self._block_depth, token)
            self._emit(token)
        elif kind in WORDS and self._is_plain_name(index):
            self._emit(Token.new_borrow_pos("NAME", str(token), token))
        else:
            self._emit(token)

    def _emit(self, token: Token) -> None:
        if self.at_start:
            self.head = token.type
        self.output.append(token)
        self.at_start = token.type in (NEWLINE, "SEMICOLON", "LBRACE")

    # What surrounds the current token.

    @property
    def _block_depth(self) -> int:
        """How many of the open brackets lead to the innermost `{`, it included."""
        return max((i + 1 for i, o in enumerate(self.open) if o.token.type == "LBRACE"), default=0)

    @property
    def _in_brackets(self) -> bool:
        return bool(self.open) and self.open[-1].token.type != "LBRACE"

    def _next(self, index: int) -> Token | None:
        """The next token on any line, comments aside."""
        for token in self.tokens[index + 1 :]:
            if token.type not in (NEWLINE, "COMMENT"):
                return token
        return None

    def _next_type(self, index: int) -> str:
        token = self._next(index)
        return token.type if token is not None else ""

    def _is_plain_name(self, index: int) -> bool:
        """After a dot, and before `=` in brackets, every word is a name: `c.block`, `f(x, dim=1)`."""
        if self.tokens[index].type == "NAME":
            return False
        after_dot = bool(self.output) and self.output[-1].type == "DOT"
        return after_dot or (self._in_brackets and self._next_type(index) == "ASSIGN")

    def _starts_statement(self, index: int) -> bool:
        following = STARTS.get(self.tokens[index].type)
        if following is None or index + 1 >= len(self.tokens):
            return False
        return self.tokens[index + 1].type in following

    # Hyper-parameters.

    def _opens_hypers(self, index: int) -> bool:
        """Is this `<` one of `Block<a, b>`? In `use`, `block` and `model` it is; elsewhere if it touches the name
        before it and its `>` has a `(` behind it. `a < b > (c)` would be a chain of comparisons, which is no text."""
        token, before = self.tokens[index], self.tokens[index - 1] if index else None
        if before is None or before.type not in WORDS:
            return False
        declared = not self._in_brackets and self.head in ("USE", "BLOCK", "MODEL")
        if not declared and before.end_pos != token.start_pos:
            return False
        close = self._find_hyper_close(index)
        if close is None:
            if declared:
                self._report_unclosed(token, None)
                self._emit(Token.new_borrow_pos(FAULT, "<", token))
            return False
        if not declared and self._next_type(close) != "LPAR":
            return False
        self.hyper_closes.add(close)
        return True

    def _find_hyper_close(self, start: int) -> int | None:
        stack: list[str] = []
        for index in range(start + 1, len(self.tokens)):
            kind = self.tokens[index].type
            if kind == "MORE" and (not stack or stack[-1] == "MORE"):
                if not stack:
                    return index
                stack.pop()
            elif kind == "LESS" and not (stack and stack[-1] != "MORE"):
                stack.append("MORE")
            elif kind in ("LPAR", "LSQB"):
                stack.append(OPENING[kind])
            elif stack and kind == stack[-1]:
                stack.pop()
            elif kind not in _IN_HYPERS and kind not in (NEWLINE, "COMMENT") and not (stack and kind in CONTINUES):
                return None
        return None

    # Brackets.

    def _push(self, token: Token) -> None:
        self.open.append(_Open(token, self.indent))
        if len(self.open) > MAX_NESTING:
            span = span_of(token, self.file)
            self.collector.report(Diagnostic("too-deep", f"more than {MAX_NESTING} brackets are open here", span))
            raise DiagnosticError(self.collector.diagnostics)
        self._emit(token)

    def _pop(self, token: Token) -> None:
        floor = 0 if token.type == "RBRACE" else self._block_depth
        partners = [i for i in range(floor, len(self.open)) if self.open[i].close == token.type]
        if partners:
            self._unclosed(partners[-1] + 1, token)
            self.open.pop()
            self._emit(token)
            return
        text, span = str(token), span_of(token, self.file)
        if len(self.open) > floor:
            opening = self.open.pop().token
            note = Note(f"`{opening}` was opened here", span_of(opening, self.file))
            message = f"`{text}` does not close `{opening}`"
            wanted = {"RPAR": ")", "RSQB": "]", HYPER_CLOSE: ">", "RBRACE": "}"}[OPENING[opening.type]]
            self.collector.report(Diagnostic("unmatched-bracket", message, span, f"expected `{wanted}`", (note,)))
        else:
            self.collector.report(Diagnostic("unmatched-bracket", f"`{text}` closes nothing", span))
        self._emit(Token.new_borrow_pos(FAULT, text, token))

    def _end_forgotten_brackets(self, index: int) -> None:
        """At the first token of a line: a word that begins a statement shows that a bracket was left open."""
        token = self.tokens[index]
        if not self._starts_statement(index):
            return
        if self._in_brackets:
            self._unclosed(self._block_depth, token)
        outer = self._block_depth
        if token.type in ITEM_STARTS and outer and self.indent <= self.open[outer - 1].indent:
            self._unclosed(0, token)

    def _unclosed(self, keep: int, seen: Token, at_end: bool = False) -> None:
        """Reports and closes all open brackets but the outermost `keep`, because of the token `seen`."""
        while len(self.open) > keep:
            opening = self.open.pop().token
            self._report_unclosed(opening, None if at_end else seen)
            if opening.type == "LBRACE":
                self._emit(Token.new_borrow_pos(NEWLINE, "\n", seen))
                self._emit(Token.new_borrow_pos("RBRACE", "}", seen))
            else:
                self._emit(Token.new_borrow_pos(FAULT, "", seen))
            if seen.type not in OPENING and seen.type not in CLOSING and seen.type not in ("SEMICOLON", "ARROW"):
                self._emit(Token.new_borrow_pos(NEWLINE, "\n", seen))

    def _report_unclosed(self, opening: Token, seen: Token | None) -> None:
        notes: tuple[Note, ...] = ()
        if seen is not None:
            notes = (Note(f"`{seen}` comes before its end", span_of(seen, self.file)),)
        span = span_of(opening, self.file)
        self.collector.report(Diagnostic("unclosed-bracket", f"`{opening}` is never closed", span, notes=notes))
