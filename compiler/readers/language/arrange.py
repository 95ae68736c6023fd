"""Prepares tokens for the grammar, which has one token of lookahead.

This step makes the three decisions that need more: which newlines end a statement, which `<` open hyper-parameters, and
where a missing opening bracket of an unmatched closing one belongs. Of a statement it knows only the first word. An
error is reported and leaves an INVALID token.

    x = f(a,        the newline inside brackets ends nothing
          b)        this one ends the statement
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lark import Token

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Note, Span
from ....dialect.lazy_dataclass import dataclass
from .tokens import (
    BODY_STARTS,
    CLOSING,
    CONTINUES,
    HYPER_CLOSE,
    HYPER_OPEN,
    INVALID,
    ITEM_STARTS,
    NAMES,
    NEWLINE,
    OPENING,
    PICKED,
    REDUCE,
    STARTS,
    WORDS,
    read_tokens,
    span_of,
    token_types,
)

MAX_NESTING = 60  # open brackets
MAX_HYPERS = 300  # tokens between the `<` and the `>` around hyper-parameters
# Tokens that may stand between the `<` and the `>` around hyper-parameters.
_IN_HYPERS = WORDS - {"PARAM", "USE", "REPEAT", "WHILE", "RETURN"} | token_types(
    "INT FLOAT STRING COMMA DOT ASSIGN PLUS MINUS STAR SLASH FLOOR PERCENT POWER"
)

_EQUALITY = token_types("EQUAL DIFFERENT")
"""Comparisons that may stand there in a declaration. In an expression, `a<b and c == d and e>(f)` has none."""


def tokenize(text: str, file: str, collector: Collector) -> list[Token]:
    """Returns all tokens of `text`, whose lines end in plain newlines. Comments are included, insignificant newlines
    are not."""
    return _Arranger(list(read_tokens(text, file, collector)), file, collector).run()


@dataclass(frozen=True, slots=True)
class _Open:
    """An unmatched opening bracket, and the first column of its line."""

    token: Token
    indent: int
    is_reported: bool = False  # as unclosed
    is_branch: bool = False  # of an `if`
    holds_loop: bool = False  # contains a loop, which is reported

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
        self.previous: Token | None = None  # the last token, comments aside
        self.head = ""  # type of the token that the statement began with
        self.head_indent = 1  # the column of its line
        self.has_header = False  # does a body follow this kind of statement?
        self.length = 0  # the number of its tokens so far
        self.indent = 1  # column of the first token of the line
        self.is_conditional = False  # does the statement have an `if` or `else` before the current token?
        self.hyper_closes: set[int] = set()  # indices of `>` that close hyper-parameters
        self.faulty_line = 0  # the last line with an INVALID token; its further bracket errors are not reported

    def run(self) -> list[Token]:
        line = 0
        for index, token in enumerate(self.tokens):
            if token.type not in (NEWLINE, "COMMENT") and token.line != line:
                line, self.indent = token.line or 0, token.column or 1
                self._end_forgotten_brackets(index)
            self._one(index, token)
        if self.tokens:
            end = Token.new_borrow_pos(NEWLINE, "\n", self.tokens[-1])
            self._unclosed(0, end, at_end=True)
            if not self.at_start:
                self._emit(end)
        return self.output

    def _one(self, index: int, token: Token) -> None:
        kind = token.type
        if kind == "COMMENT":
            self.output.append(token)
        elif kind == INVALID:
            self.faulty_line = token.line or 0
            self._emit(token)
            if token.startswith('"'):
                # The string contains the rest of its line, including the line's closing brackets.
                while self._in_brackets and self.open[-1].token.line == token.line:
                    self.open.pop()
        elif kind == NEWLINE:
            continues = CONTINUES | {"ELSE"}
            if not self._in_brackets and not self.at_start and self._next_type(index) not in continues:
                self._begin_forgotten_body(self._next(index), token)
                if not self.at_start:
                    self._emit(token)
        elif kind == "LESS":
            if self._opens_hypers(index):
                self._push(Token.new_borrow_pos(HYPER_OPEN, "<", token))
            elif not (self.open and self.open[-1].is_reported):
                self._emit(token)
        elif index in self.hyper_closes or (kind == "MORE" and self.open and self.open[-1].is_reported):
            self._pop(Token.new_borrow_pos(HYPER_CLOSE, ">", token))
        elif kind in OPENING:
            if kind == "LBRACE" and not (self.open and self.open[-1].holds_loop):
                self._unclosed(self._block_depth, token)
            self._push(token)
        elif kind in CLOSING:
            self._pop(token)
        elif kind in ("SEMICOLON", "ARROW"):
            self._unclosed(self._block_depth, token)
            self._emit(token)
        elif kind in ("SCAN", "REPEAT") and self._is_operand(index):
            self._report_loop(token)
        elif kind in NAMES and self._reduces(index):
            self._emit(Token.new_borrow_pos(REDUCE, str(token), token))
        elif kind in NAMES and self._is_picked(index):
            self._emit(Token.new_borrow_pos(PICKED, str(token), token))
        elif kind in WORDS and self._is_plain_name(index):
            self._emit(Token.new_borrow_pos("NAME", str(token), token))
        else:
            self._emit(token)

    def _emit(self, token: Token) -> None:
        if self.at_start:
            self.head, self.head_indent, self.length, self.is_conditional = token.type, self.indent, 0, False
        self.is_conditional |= token.type in ("IF", "ELSE")
        self.length += 1
        if self.length <= 2:
            self.has_header = self.length == 2 and self.head in BODY_STARTS and token.type in STARTS[self.head]
        self.output.append(token)
        self.previous = token
        self.at_start = token.type in (NEWLINE, "SEMICOLON", "LBRACE")

    # Context of the current token.

    @property
    def _block_depth(self) -> int:
        """The number of open brackets up to and including the innermost `{`."""
        return max((i + 1 for i, o in enumerate(self.open) if o.token.type == "LBRACE"), default=0)

    @property
    def _in_brackets(self) -> bool:
        return bool(self.open) and self.open[-1].token.type != "LBRACE"

    def _next(self, index: int) -> Token | None:
        """Returns the next token on any line, skipping comments."""
        for following in range(index + 1, len(self.tokens)):
            if self.tokens[following].type not in (NEWLINE, "COMMENT"):
                return self.tokens[following]
        return None

    def _next_type(self, index: int) -> str:
        token = self._next(index)
        return token.type if token is not None else ""

    def _is_plain_name(self, index: int) -> bool:
        """Returns whether the token is a name. After a dot, and before `=` in brackets, every word is: `c.block`, `f(x,
        dim=1)`."""
        if self.tokens[index].type == "NAME":
            return False
        is_attribute = self.previous is not None and self.previous.type == "DOT"
        return is_attribute or (self._in_brackets and self._next_type(index) == "ASSIGN")

    def _reduces(self, index: int) -> bool:
        """Returns whether `sum(i) x` begins here: a call of plain names after `=`, directly followed by an operand."""
        if self.previous is None or self.previous.type != "ASSIGN" or self._in_brackets or self.head == "EXPECT":
            return False
        position, wanted = index + 1, "LPAR"
        while position < len(self.tokens) and self.tokens[position].type in (NAMES if wanted == "NAME" else {wanted}):
            position += 1
            wanted = "COMMA" if wanted == "NAME" else "NAME"
        if wanted != "COMMA" or position + 1 >= len(self.tokens) or self.tokens[position].type != "RPAR":
            return False
        following = self.tokens[position + 2].type if position + 2 < len(self.tokens) else ""
        # A name before `=` begins another statement.
        return self.tokens[position + 1].type in NAMES | {"INT", "FLOAT", "LPAR"} and following != "ASSIGN"

    def _is_picked(self, index: int) -> bool:
        """Returns whether the value of a branch begins here with a part of a tensor: `x[:, 0]`, without `=` after."""
        if not (self.at_start and self.open and self.open[-1].is_branch and self._next_type(index) == "LSQB"):
            return False
        depth = 0
        for position in range(index + 1, len(self.tokens)):
            kind = self.tokens[position].type
            depth += (kind == "LSQB") - (kind == "RSQB")
            if depth == 0 and kind == "RSQB":
                return self._next_type(position) != "ASSIGN"
            if kind in ("LBRACE", "RBRACE", INVALID):
                return False
        return False

    def _is_operand(self, index: int) -> bool:
        """Returns whether a loop begins here as an operand inside brackets: `(scan t in ...`."""
        kinds = [token.type for token in self.tokens[index + 1 : index + 3]]
        begins = self.previous is not None and self.previous.type in (*OPENING, "COMMA", "ASSIGN")
        return self._in_brackets and begins and len(kinds) == 2 and kinds[0] in NAMES and kinds[1] == "IN"

    def _report_loop(self, token: Token) -> None:
        message = f"a `{token}` cannot be an operand: it is the whole value of an assignment or `return`"
        help_text = f"give its value a name before this statement: `y = {token} ... {{ ... }} collect ...`"
        self.collector.report(Diagnostic("syntax", message, span_of(token, self.file), help=help_text))
        self.open[-1] = replace(self.open[-1], holds_loop=True)
        self._emit(Token.new_borrow_pos(INVALID, str(token), token))

    def _starts_statement(self, index: int) -> bool:
        following = STARTS.get(self.tokens[index].type)
        if following is None or index + 1 >= len(self.tokens):
            return False
        return self.tokens[index + 1].type in following

    def _starts_assignment(self, index: int) -> bool:
        """Returns whether `y = ...` begins here: inside brackets, on a line without indentation, and not after a
        comma."""
        return (
            self.tokens[index].type in NAMES
            and self._next_type(index) == "ASSIGN"
            and self.previous is not None
            and self.previous.type not in (*OPENING, *CONTINUES, "COMMA", "ASSIGN", "COLON")
            and self.indent <= self.open[-1].indent
        )

    # Hyper-parameters.

    def _opens_hypers(self, index: int) -> bool:
        """Returns whether this `<` opens hyper-parameters, as in `Block<a, b>`. In `use`, `block` and `model` it does;
        elsewhere it must touch the name before it, and a `(` must follow its `>`. `a < b > (c)` would chain
        comparisons, which is invalid."""
        token, before = self.tokens[index], self.tokens[index - 1] if index else None
        if before is None or before.type not in WORDS:
            return False
        in_header = self.head in ("BLOCK", "MODEL", "TRAIN") and self.length == 2  # and not the name of a value
        declared = not self._in_brackets and (self.head == "USE" or in_header)
        if not declared and before.end_pos != token.start_pos:
            return False
        close = self._find_hyper_close(index, _IN_HYPERS | _EQUALITY if declared else _IN_HYPERS)
        if close is None:
            if declared:
                self._report_unclosed(token, None)
                self._emit(Token.new_borrow_pos(INVALID, "<", token))
                # Its lines still belong together, until a line begins a statement.
                self.open.append(_Open(Token.new_borrow_pos(HYPER_OPEN, "<", token), self.indent, is_reported=True))
            return False
        if not declared and self._next_type(close) != "LPAR":
            return False
        self.hyper_closes.add(close)
        return True

    def _find_hyper_close(self, start: int, kinds: Collection[str]) -> int | None:
        stack: list[str] = []
        for index in range(start + 1, min(start + MAX_HYPERS, len(self.tokens))):
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
            elif kind not in kinds and kind not in (NEWLINE, "COMMENT") and not (stack and kind in CONTINUES):
                return None
        return None

    # Brackets.

    def _push(self, token: Token) -> None:
        self.open.append(_Open(token, self.indent, is_branch=token.type == "LBRACE" and self.is_conditional))
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
        if token.line == self.faulty_line:
            if len(self.open) > floor:
                self.open.pop()
        elif len(self.open) > floor:
            opening = self.open.pop().token
            note = Note(f"`{opening}` was opened here", span_of(opening, self.file))
            message = f"`{text}` does not close `{opening}`"
            wanted = {"RPAR": ")", "RSQB": "]", HYPER_CLOSE: ">", "RBRACE": "}"}[OPENING[opening.type]]
            self.collector.report(Diagnostic("unmatched-bracket", message, span, f"expected `{wanted}`", (note,)))
        else:
            self.collector.report(Diagnostic("unmatched-bracket", f"`{text}` closes nothing", span))
        self._emit(Token.new_borrow_pos(INVALID, text, token))

    def _begin_forgotten_body(self, following: Token | None, where: Token, is_told: bool = False) -> None:
        """Begins a missing body at the end of a header: without a `{`, but with lines of deeper indentation, one was
        omitted."""
        if not self.has_header or self.previous is None or self.previous.type == "RBRACE" or following is None:
            return
        if following.type in ("LBRACE", "RBRACE") or (following.column or 0) <= self.head_indent:
            return
        span = span_of(self.previous, self.file)
        span = Span(self.file, span.end_line, span.end_column, span.end_line, span.end_column + 1)
        if not is_told and span.line != self.faulty_line:
            message = "header has no `{` at its end, and lines that belong to it"
            help_text = "a body is enclosed in `{` and `}`" if self.previous.type == "COLON" else ""
            self.collector.report(Diagnostic("syntax", message, span, help=help_text))
        self._emit(Token.new_borrow_pos(INVALID, "", where))
        self._push(Token.new_borrow_pos("LBRACE", "{", where))
        # The closing bracket may be missing too, which is then not reported.
        self.open[-1] = replace(self.open[-1], is_reported=True)

    def _end_forgotten_brackets(self, index: int) -> None:
        """Closes missing brackets at the first token of a line. A word that begins a statement proves that one was left
        open."""
        token = self.tokens[index]
        is_statement = self._starts_statement(index)
        ends_brackets = self._in_brackets and (is_statement or self._starts_assignment(index))
        if ends_brackets:
            self._unclosed(self._block_depth, token)
            self._begin_forgotten_body(token, token, is_told=True)
        outer = self._block_depth
        is_item = is_statement and token.type in ITEM_STARTS
        ends_bodies = is_item and outer > 0 and self.indent <= self.open[outer - 1].indent
        if ends_bodies:
            self._unclosed(0, token)
        if (ends_brackets or ends_bodies) and not self.at_start:
            self._emit(Token.new_borrow_pos(NEWLINE, "\n", token))

    def _unclosed(self, keep: int, seen: Token, at_end: bool = False) -> None:
        """Reports and closes all open brackets except the outermost `keep`, because of the token `seen`."""
        while len(self.open) > keep:
            bracket = self.open.pop()
            opening = bracket.token
            if not bracket.is_reported:
                self._report_unclosed(opening, None if at_end else seen)
            if opening.type == "LBRACE":
                self._emit(Token.new_borrow_pos(NEWLINE, "\n", seen))
                self._emit(Token.new_borrow_pos("RBRACE", "}", seen))
            else:
                self._emit(Token.new_borrow_pos(INVALID, "", seen))

    def _report_unclosed(self, opening: Token, seen: Token | None) -> None:
        if opening.line == self.faulty_line:
            return
        notes: tuple[Note, ...] = ()
        if seen is not None:
            notes = (Note(f"`{seen}` comes before its end", span_of(seen, self.file)),)
        span = span_of(opening, self.file)
        self.collector.report(Diagnostic("unclosed-bracket", f"`{opening}` is never closed", span, notes=notes))
