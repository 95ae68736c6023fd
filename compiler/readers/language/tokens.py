"""Lexes text into tokens, each checked on its own: characters, strings, numbers. Also defines shared sets of tokens.

The lexer is lark's, from the terminals of the grammar. An invalid token is reported and becomes an INVALID token, on
which the parser drops the statement without a second report. arrange.py handles relations between tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from lark import Token

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from .grammar import grammar

INVALID = "INVALID"
NEWLINE = "_NEWLINE"
HYPER_OPEN = "_HYPER_OPEN"
HYPER_CLOSE = "_HYPER_CLOSE"
REDUCE = "REDUCE"
PICKED = "PICKED"

MAX_TOKENS = 400_000
MAX_LENGTH = 1 << 16  # of a word or a string
MAX_DIGITS = 40  # of a number, far above what any literal needs


def token_types(names: str) -> frozenset[str]:
    return frozenset(names.split())


OPENING = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE", HYPER_OPEN: HYPER_CLOSE}
CLOSING = {close: opening for opening, close in OPENING.items()}
SOFT_WORDS = token_types(
    "LANGUAGE CONFIG AS DIM MULTIPLE IMPORT BLOCK MODEL FROM TRANSPOSE WEIGHTS TEST GIVEN EXPECT WITHIN SIGNED FILE"
    " BUDGET STATE TRAIN QUANTIZE GRAD ACTIVATIONS TO KEEP CALIBRATE ON BY REQUIRE SCAN WITH COLLECT PREFIX FOR"
    " MINIMIZE GROUP FREEZE CLIP ACCUMULATE EXCHANGE"
)
HARD_WORDS = token_types("TRUE FALSE NONE AND OR NOT IN IF ELSE PARAM USE REPEAT WHILE RETURN")
NAMES = SOFT_WORDS | {"NAME"}
WORDS = NAMES | HARD_WORDS
# A line that begins with one of these continues the statement of the line before.
CONTINUES = token_types(
    "PIPE PLUS MINUS STAR SLASH FLOOR PERCENT POWER AT EQUAL DIFFERENT LESS AT_MOST MORE AT_LEAST AND OR"
)
# Words that begin a statement or an item, each with the tokens that must follow; otherwise the word is a name.
STARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("BLOCK", "MODEL", "TEST", "BUDGET", "DIM", "GIVEN", "STATE", "TRAIN", "QUANTIZE"), NAMES),
    **dict.fromkeys(("CONFIG", "IMPORT", "WEIGHTS"), frozenset({"STRING"})),
    "EXPECT": NAMES | {"STRING"},
    "GRAD": frozenset({"LBRACE"}),
    **dict.fromkeys(("ACTIVATIONS", "KEEP"), NAMES | {"STRING"}),
    "CALIBRATE": frozenset({"ON"}),
    "REQUIRE": NAMES,
    "SCAN": NAMES,
    "MINIMIZE": NAMES,
    **dict.fromkeys(("GROUP", "FREEZE"), frozenset({"STRING"})),
    **dict.fromkeys(("CLIP", "ACCUMULATE"), NAMES | {"INT", "FLOAT"}),
    **dict.fromkeys(
        ("PARAM", "USE", "REPEAT", "WHILE", "RETURN"), WORDS | {"INT", "FLOAT", "STRING", "LPAR", "LSQB", "MINUS"}
    ),
}
ITEM_STARTS = frozenset({"BLOCK", "MODEL", "TEST", "BUDGET", "DIM", "CONFIG", "IMPORT", "TRAIN", "QUANTIZE"})
BODY_STARTS = frozenset({"BLOCK", "MODEL", "TRAIN", "TEST", "BUDGET", "QUANTIZE", "REPEAT", "WHILE", "GRAD"})

# Control characters, and characters that change the direction of the text, are errors everywhere.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STRANGE_HELP = {  # it contains characters that look alike, hence the `noqa`
    "×": "multiplication is written `*`",  # noqa: RUF001  (a likely mistake)
    "·": "multiplication is written `*`",
    "÷": "division is written `/`",
    "−": "a minus is the ASCII character `-`",  # noqa: RUF001  (a likely mistake)
    "–": "a minus is the ASCII character `-`",  # noqa: RUF001  (a likely mistake)
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "→": "write `->`",
    "…": "write three dots `...`",
    "“": 'strings are enclosed in ASCII double quotes `"`',
    "”": 'strings are enclosed in ASCII double quotes `"`',
    "‘": 'strings are enclosed in ASCII double quotes `"`',  # noqa: RUF001  (a likely mistake)
    "’": 'strings are enclosed in ASCII double quotes `"`',  # noqa: RUF001  (a likely mistake)
    "'": 'strings are enclosed in double quotes `"`',
    "`": 'strings are enclosed in double quotes `"`',
    "&": "write `and`",
    "|": "write `or`, or `|>` for a pipe",
    "!": "write `not`",
    "^": "a power is written `**`",
    "~": "write `not`",
    "?": "a condition is written `a if condition else b`, and an unknown size is a name: `dim n in 1..64`",
    "$": "names consist of letters, digits and `_`",
    "\\": "a statement continues inside brackets, or on a line that begins with an operator",
    "\u00a0": "this is a no-break space; use an ordinary one",
    "\ufeff": "a byte order mark is allowed only as the first character of a file",
}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def span_of(token: Token, file: str) -> Span:
    assert token.line is not None and token.column is not None, token
    assert token.end_line is not None and token.end_column is not None, token
    return Span(file, token.line, token.column, token.end_line, token.end_column)


def string_value(token: Token) -> str:
    """Returns the text of a STRING token."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])


def describe_character(character: str) -> str:
    """Returns the character in backticks, or the code point if a terminal would show nothing."""
    if character.isprintable() and not character.isspace():
        return f"`{character}`"
    name = unicodedata.name(character, "").lower()
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")


# --- one token at a time ----------------------------------------------------------------------------------------------


def read_tokens(text: str, file: str, collector: Collector) -> Iterator[Token]:
    """Yields lark's tokens; invalid ones are reported and become INVALID. Raises DiagnosticError after `MAX_TOKENS`."""
    previous: Token | None = None
    for number, token in enumerate(grammar().lex(text)):
        if number == MAX_TOKENS:
            message = f"a source file has at most {MAX_TOKENS:,} tokens"
            error = Diagnostic("too-large", message, span_of(token, file), help="`repeat` and blocks make it shorter")
            collector.report(error)
            raise DiagnosticError([error], {file: text})
        mistake = _error_of(token, previous, file)
        if mistake is not None:
            # A run of strange characters is one error.
            touching = previous is not None and previous.type == INVALID and previous.end_pos == token.start_pos
            if not (touching and token.type == "STRANGE"):
                collector.report(mistake)
            token = Token.new_borrow_pos(INVALID, str(token), token)
        yield token
        previous = token


def _error_of(token: Token, previous: Token | None, file: str) -> Diagnostic | None:
    span = span_of(token, file)
    if len(token) > MAX_LENGTH and token.type not in ("COMMENT", "INT", "FLOAT"):
        message = f"a word or string has at most {MAX_LENGTH:,} characters, not {len(token):,}"
        return Diagnostic("too-large", message, span)
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
    if token.type == "SINGLE_QUOTES":
        return Diagnostic("bad-quotes", "strings are enclosed in double quotes", span, help=f'write `"{token[1:-1]}"`')
    if token.type in ("INT", "FLOAT"):
        return _bad_number(token, span)
    # `8MiB` is a quantity; `0x10` and `1abc` are a number and a name without a space between them.
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
    """Returns a part of a one-line span, in characters from its start."""
    return Span(span.file, span.line, span.column + start, span.line, span.column + end)


def _bad_character(character: str, span: Span) -> Diagnostic:
    help_text = _STRANGE_HELP.get(character, "")
    if not help_text and character.isalpha():
        help_text = "names are written with ASCII letters, digits and `_`"
    return Diagnostic("bad-character", f"{describe_character(character)} is not allowed here", span, help=help_text)


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
