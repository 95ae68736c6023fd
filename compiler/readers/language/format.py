"""The canonical form of a source file: `nacre fmt`.

It works on tokens, so that every comment, parenthesis and literal keeps its text and position; only spaces, line
breaks, trailing commas and the spelling of floats change. These choices remain with the author: blank lines (one at
most), a short body on one line, a line for each operand of the loosest operator of a statement, such as a pipe, and a
line for each element of brackets whose last element has a comma after it. Invalid text is refused with its
diagnostics, never formatted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lark import Token

from ....dialect.diagnostics import Collector
from .arrange import tokenize
from .layout import LOOSENESS, Entry, Group, Segment, Word, file_lines
from .parse import normalise, parse
from .tokens import CLOSING, CONTINUES, HYPER_CLOSE, HYPER_OPEN, NEWLINE, OPENING, PICKED, REDUCE, SOFT_WORDS

_ATOMS = frozenset(
    ("NAME", "INT", "FLOAT", "STRING", "TRUE", "FALSE", "NONE", "RPAR", REDUCE, PICKED, "RSQB", HYPER_CLOSE)
)
_ARITHMETIC = frozenset(("PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "PERCENT", "POWER"))
_TIGHT_AFTER = frozenset({*OPENING, "DOT", "RANGE"})
_TIGHT_BEFORE = frozenset({*CLOSING, "COMMA", "DOT", "RANGE", HYPER_OPEN})


def format_source(text: str, file: str = "<input>") -> str:
    """Returns the canonical form of `text`. Raises DiagnosticError if it does not parse."""
    parse(text, file)
    tokens = tokenize(normalise(text), file, Collector())
    lines = file_lines(_Reader(tokens).entries())
    return "".join(line + "\n" for line in lines)


# --- from tokens to entries -------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.last_line = 0  # the line on which the last token ended

    def _take(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        if token.type != NEWLINE:
            self.last_line = token.end_line or 0
        return token

    def _peek(self) -> str:
        return self.tokens[self.position].type if self.position < len(self.tokens) else ""

    def entries(self) -> list[Entry]:
        """Reads entries up to the `}` that ends them, or the end of the file."""
        entries: list[Entry] = []
        while self._peek() not in ("", "RBRACE"):
            token = self.tokens[self.position]
            if token.type in (NEWLINE, "SEMICOLON"):
                self._take()
                continue
            gap = (token.line or 0) - self.last_line
            blank = bool(entries) and gap > 1
            if token.type == "COMMENT":
                text = _comment(self._take())
                if gap == 0 and entries and not entries[-1].after and not entries[-1].comment:
                    entries[-1].after = text
                else:
                    entries.append(Entry(comment=text, blank_before=blank))
            else:
                entries.append(self._statement(blank))
        return entries

    def _statement(self, blank: bool) -> Entry:
        start = self.position
        while self._peek() not in ("", NEWLINE, "SEMICOLON", "LBRACE", "RBRACE"):
            self._take()
        tokens = self.tokens[start : self.position]
        entry = Entry(blank_before=blank)
        if tokens[-1].type == "COMMENT":
            entry.after = _comment(tokens.pop())
        entry.chunks = _chunks(tokens)
        if self._peek() == "LBRACE":
            line = self._take().line
            if self._peek() == "COMMENT" and self.tokens[self.position].line == line:
                entry.body_comment = _comment(self._take())
            entry.body = self.entries()
            entry.on_one_line = self._take().line == line and not entry.body_comment
            if self._peek() not in ("", NEWLINE, "SEMICOLON", "RBRACE", "COMMENT"):
                entry.tail = self._statement(False)
                entry.on_one_line &= entry.tail.body is None or entry.tail.on_one_line
        return entry


def _comment(token: Token) -> str:
    text = str(token).rstrip()
    return re.sub(r"^#(?=\w)", "# ", text)


def _words(tokens: list[Token]) -> Iterator[Word | str]:
    """Yields the words of a statement with the spaces between them, and its comments as plain strings."""
    brackets: list[tuple[str, bool]] = []  # type of the opening one, and whether it follows an operand
    before: Token | None = None  # not a comment
    before_is_operand = False
    unary = False
    line = tokens[0].line
    starts_as_keyword = len(tokens) > 1 and tokens[1].type not in ("ASSIGN", "COMMA")
    is_range = starts_as_keyword and tokens[0].type in ("DIM", "REPEAT")
    for token in tokens:
        kind = token.type
        if kind == "COMMENT":
            yield _comment(token)
            continue
        inside, is_subscript = brackets[-1] if brackets else ("", False)
        is_tight = inside == HYPER_OPEN or (inside == "LSQB" and is_subscript) or (is_range and not inside)
        is_binary = kind in CONTINUES and before_is_operand
        was = before.type if before is not None else ""
        if before is None or unary or was in _TIGHT_AFTER or kind in _TIGHT_BEFORE:
            space = False
        elif kind in ("LPAR", "LSQB"):
            space = not before_is_operand and not (is_tight and was in _ARITHMETIC | {"COLON"})
            space = space and not (was == "ASSIGN" and inside)
        elif was == "COMMA":
            space = True
        elif "COLON" in (kind, was):
            space = was == "COLON" and inside != "LSQB"
        elif "ASSIGN" in (kind, was):
            space = not inside
        else:
            space = not (is_tight and (kind in _ARITHMETIC or was in _ARITHMETIC))
        yield Word(_spelling(token), kind, space, is_binary, token.line != line)
        unary = kind == "MINUS" and not before_is_operand
        if kind in OPENING:
            brackets.append((kind, before_is_operand))
        elif kind in CLOSING:
            brackets.pop()
        # A soft word is a keyword at the start of a statement that does not assign to it, and after an operand.
        is_keyword = starts_as_keyword if before is None else before_is_operand
        before_is_operand = kind in _ATOMS or (kind in SOFT_WORDS and not is_keyword)
        before, line = token, token.end_line


def _spelling(token: Token) -> str:
    if token.type != "FLOAT":
        return str(token)
    mantissa, _, exponent = token.lower().partition("e")
    whole, dot, fraction = mantissa.partition(".")
    text = f"{whole or '0'}.{fraction or '0'}" if dot else whole
    return f"{text}e{exponent.removeprefix('+')}" if exponent else text


def _kept_breaks(words: Sequence[Word | str]) -> frozenset[str]:
    """Returns the operators before which a statement is broken as its author broke it: the loosest ones of it, if a
    line begins with one. The words are those outside brackets."""
    operators = [word for word in words if isinstance(word, Word) and word.is_binary]
    if not operators or any(isinstance(word, Word) and word.kind == "COMMA" for word in words):
        return frozenset()
    loosest = min(LOOSENESS[word.kind] for word in operators)
    kept = [word for word in operators if LOOSENESS[word.kind] == loosest]
    return frozenset(word.kind for word in kept) if any(word.starts_line for word in kept) else frozenset()


def _chunks(tokens: list[Token]) -> list[Segment]:
    """Returns a statement as the lines that its author's comments and breaks require; usually one."""
    chunks = [Segment()]
    stack: list[Group] = []
    words = list(_words(tokens))
    depths = _depths(words)
    breaks = _kept_breaks([word for word, depth in zip(words, depths, strict=True) if depth == 0])
    comments: list[str] = []  # on separate lines, outside brackets
    for position, word in enumerate(words):
        segment = stack[-1].segments[-1] if stack else chunks[-1]
        if isinstance(word, str):
            if stack:
                _place_comment(stack[-1], word, own_line=_is_own_line(tokens, position))
            elif not comments and not _is_own_line(tokens, position):
                segment.after = word
            else:
                comments.append(word)
            continue
        if not stack and ((word.is_binary and word.kind in breaks) or comments or segment.after):
            segment = Segment(before=comments)
            chunks.append(segment)
            comments = []
        if word.kind not in CLOSING:
            segment.settle()
        if word.kind in OPENING:
            is_plain = word.kind == "LPAR" and not _is_call(words, position)
            group = Group(word, [Segment()], keeps_comma=is_plain)
            segment.parts.append(group)
            stack.append(group)
        elif word.kind in CLOSING:
            group = stack.pop()
            group.is_spread = word.starts_line and len(group.segments) > 1 and not group.segments[-1].parts
            _close(group, word.text)
        elif word.kind == "COMMA" and stack:
            stack[-1].segments.append(Segment())
        else:
            segment.parts.append(word)
    return chunks


def _depths(words: Sequence[Word | str]) -> list[int]:
    depths, depth = [], 0
    for word in words:
        kind = word.kind if isinstance(word, Word) else ""
        depth -= kind in CLOSING
        depths.append(depth)
        depth += kind in OPENING
    return depths


def _is_own_line(tokens: list[Token], position: int) -> bool:
    return position == 0 or tokens[position - 1].end_line != tokens[position].line


def _is_call(words: Sequence[Word | str], position: int) -> bool:
    before = next((w for w in reversed(words[:position]) if isinstance(w, Word)), None)
    word = words[position]
    assert isinstance(word, Word)
    return before is not None and not word.space and before.kind in _ATOMS | SOFT_WORDS


def _place_comment(group: Group, text: str, own_line: bool) -> None:
    last = group.segments[-1]
    before_last = group.segments[-2] if len(group.segments) > 1 else None
    if not own_line and last.parts and not last.after:
        last.after = text
    elif last.parts:
        last.inside.append(text)
    elif not own_line and not last.before and before_last is not None and not before_last.after:
        before_last.after = text  # after the comma
    else:
        last.before.append(text)


def _close(group: Group, closing: str) -> None:
    group.closing = closing
    last = group.segments[-1]
    ends_in_comma = not last.parts and len(group.segments) > 1
    if not last.parts and not last.before:
        group.segments.pop()
    if last.inside:
        group.segments.append(Segment(before=last.inside))
    elements = sum(bool(segment.parts) for segment in group.segments)
    group.keeps_comma = group.keeps_comma and ends_in_comma and elements == 1
