"""Messages for unexpected tokens: the expected tokens in words, and a help for common mistakes.

Words of other languages, forgotten names, operators at the end of a line: each is one entry of a table below. Nothing
here changes the parse, and nothing here is needed to accept a correct file.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from itertools import pairwise

from lark import Token
from lark.lexer import PatternStr

from ....dialect.diagnostics import Diagnostic, Span
from ....dialect.lazy_dataclass import dataclass
from .grammar import grammar
from .tokens import (
    CONTINUES,
    HYPER_CLOSE,
    HYPER_OPEN,
    ITEM_STARTS,
    NAMES,
    NEWLINE,
    SOFT_WORDS,
    STARTS,
    WORDS,
    span_of,
)

_EXPRESSION = NAMES | {
    "IF",
    "REPEAT",
    "INT",
    "FLOAT",
    "STRING",
    "LPAR",
    "LSQB",
    "MINUS",
    "NOT",
    "TRUE",
    "FALSE",
    "NONE",
}
_AFTER_EXPRESSION = CONTINUES | {"DOT", "LPAR", "LSQB", "IF", HYPER_OPEN}
_END_OF_STATEMENT = {NEWLINE, "SEMICOLON", "RBRACE", "$END"}

_CONSTRUCTS = {
    "file": "`block`, `model`, `train`, `dim`, `config`, `import`, `test`, `budget`, `quantize` or "
    "a constant `name = ...`",
    "body": "`param`, `state`, `use`, `weights`, `repeat`, `return` or `name = ...`",
    "update": "`group`, `freeze`, `clip`, `accumulate` or `exchange`",
    "test": "`given` or `expect`",
    "budget": "a limit such as `memory(B=1) <= 8 MiB`",
    "policy": "`weights`, `activations`, `keep`, `calibrate` or `require`",
}
_POLICY_STARTS = ("ACTIVATIONS", "KEEP", "CALIBRATE", "REQUIRE")
_WRONG_STARTS = {
    **dict.fromkeys(("IF", "ELSE"), "a choice is an expression: `name = a if condition else b`"),
    **dict.fromkeys(("INT", "FLOAT", "STRING", "TRUE", "FALSE", "NONE"), "a value needs a name: `name = ...`"),
}
# Words that begin a statement in other languages, and the equivalents of this language.
_FOREIGN = {
    **dict.fromkeys(
        ("def", "fn", "func", "function", "class", "module", "layer"),
        "a block is `block Name(x: f32[...]) -> f32[...] { ... }`",
    ),
    **dict.fromkeys(("for", "loop", "foreach"), "a loop is `repeat i in 0..n { ... }`"),
    **dict.fromkeys(("let", "var", "const", "val", "auto"), "a value is assigned without a keyword: `name = ...`"),
    **dict.fromkeys(("dims", "axis", "symbol"), "a symbolic size is `dim B in 1..64`"),
    **dict.fromkeys(("parameter", "parameters", "params"), "a parameter is `param name: f32[...]`"),
    **dict.fromkeys(("include", "using", "require"), 'another file is imported by `import "file.nacre"`'),
    **dict.fromkeys(("yield", "output", "result", "ret"), "a block ends with `return value`"),
    **dict.fromkeys(("assert", "check"), 'a check of a model is `test model "title" { given ...; expect ... }`'),
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """The context of an unexpected token: the tokens of the file, the start of the statement, and the failing
    position."""

    tokens: list[Token]
    start: int
    at: int
    accepted: frozenset[str]  # terminals that would have been valid
    construct: str  # a key of _CONSTRUCTS
    file: str

    @property
    def found(self) -> Token:
        return self.tokens[self.at]

    @property
    def head(self) -> Token:
        return self.tokens[self.start]

    @property
    def before(self) -> Token | None:
        return self.tokens[self.at - 1] if self.at > self.start else None

    @property
    def statement(self) -> list[Token]:
        """The accepted tokens of the statement."""
        return self.tokens[self.start : self.at]

    @property
    def wants_expression(self) -> bool:
        return {"NAME", "INT", "LPAR"} <= self.accepted

    @property
    def ends_here(self) -> bool:
        """Whether the statement could have ended instead."""
        return NEWLINE in self.accepted and self.at > self.start


def explain(error: Mistake) -> Diagnostic:
    if error.before is not None and error.found.type == NEWLINE:
        # Under the column after the last word, not under a comment that follows it.
        end = span_of(error.before, error.file)
        span = Span(error.file, end.end_line, end.end_column, end.end_line, end.end_column + 1)
    else:
        span = span_of(error.found, error.file)
    found = _describe(error.found)
    if error.at == error.start:
        message = f"{'an item' if error.construct == 'file' else 'a statement'} cannot begin with {found}"
        return Diagnostic("syntax", message, span, help=_help(error) or f"expected {_CONSTRUCTS[error.construct]}")
    return Diagnostic("syntax", f"expected {_expected(error)}, found {found}", span, help=_help(error))


def _describe(token: Token) -> str:
    if token.type == NEWLINE:
        return "the end of the line"
    text = str(token) if len(token) <= 40 else f"{token[:37]}..."
    return f"the string {text}" if token.type == "STRING" else f"`{text}`"


def _spelling(terminal: str) -> str:
    if terminal in (HYPER_OPEN, HYPER_CLOSE):
        return "`<`" if terminal == HYPER_OPEN else "`>`"
    pattern = grammar().get_terminal(terminal).pattern
    assert isinstance(pattern, PatternStr), terminal
    return f"`{pattern.value}`"


def _expected(error: Mistake) -> str:
    rest = set(error.accepted)
    parts = []
    if error.wants_expression:
        parts.append("an expression")
        rest -= _EXPRESSION | {"DOTS", "COLON"}
    elif "NAME" in rest:
        parts.append("a name")
        rest -= NAMES
    if "PLUS" in rest or "PIPE" in rest:
        rest -= _AFTER_EXPRESSION
    if {"INT", "FLOAT"} & rest:
        parts.append("a number")
    if "STRING" in rest:
        parts.append("a string")
    rest -= {"INT", "FLOAT", "STRING"}
    if error.at == error.start + 1:
        # The first word of a statement may be an assignment target; the message says so only if the word is not a
        # keyword.
        rest -= {"LSQB"}
        rest -= {"COMMA", "ASSIGN"} if error.head.type in STARTS and len(rest) + len(parts) > 2 else {"COMMA"}
    elif "RPAR" in rest or HYPER_CLOSE in rest:
        rest -= {"ASSIGN"}
    ending = rest & _END_OF_STATEMENT
    if NEWLINE in ending:
        rest -= _END_OF_STATEMENT
    # Commas first, then words, then brackets.
    parts += sorted(map(_spelling, rest), key=lambda text: (text != "`,`", not text[1].isalpha(), text))
    if NEWLINE in ending:
        parts.append("the end of the line")
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " or " + parts[-1]


# --- known mistakes ---------------------------------------------------------------------------------------------------


def _misplaced(error: Mistake) -> str:
    kind, text = error.head.type, str(error.head)
    if error.at > error.start + 1:
        return ""
    is_first = error.at == error.start
    if error.construct == "body" and kind in ITEM_STARTS and not is_first and error.found.type in STARTS[kind]:
        return f"`{text}` is only allowed at the top level of a file"
    if error.construct in ("test", "budget", "policy", "update") and is_first:
        return f"expected {_CONSTRUCTS[error.construct]}"
    if error.construct == "file" and kind in ("PARAM", "USE", "REPEAT", "RETURN", "WEIGHTS"):
        return f"`{text}` is only allowed in the body of a block or model"
    if kind in ("GIVEN", "EXPECT") and error.construct != "test" and not is_first and error.found.type in STARTS[kind]:
        return f"`{text}` is only allowed in a `test`"
    if kind in _POLICY_STARTS and error.construct != "policy" and not is_first and error.found.type in STARTS[kind]:
        return f"`{text}` is only allowed in a `quantize`"
    return _WRONG_STARTS.get(kind, "") if is_first else ""


def _foreign_word(error: Mistake) -> str:
    if error.head.type != "NAME" or error.at != error.start + 1 or error.found.type not in WORDS | {"STRING"}:
        return ""
    word = str(error.head)
    if word in _FOREIGN:
        return _FOREIGN[word]
    known = [t.pattern.value for t in grammar().terminals if t.name in WORDS and isinstance(t.pattern, PatternStr)]
    near = get_close_matches(word.lower(), known, 1, 0.7)
    return f"did you mean `{near[0]}`?" if near else ""


def _misspelt_word(error: Mistake) -> str:
    if error.found.type not in NAMES or error.at == error.start:
        return ""
    if error.before is not None and str(error.before) == "lambda":
        return _FOREIGN["def"]
    words = [
        _spelling(terminal) for terminal in error.accepted if terminal in WORDS and terminal not in NAMES - SOFT_WORDS
    ]
    near = get_close_matches(f"`{error.found}`", words, 1, 0.75)
    return f"did you mean {near[0]}?" if near else ""


def _file_without_quotes(error: Mistake) -> str:
    if "STRING" in error.accepted and not error.wants_expression and error.found.type in WORDS:
        return "text and file names are enclosed in double quotes"
    return ""


def _several_loop_names(error: Mistake) -> str:
    word = error.tokens[error.at - 2] if error.at >= error.start + 2 else None
    if error.found.type == "COMMA" and word is not None and word.type in ("FOR", "REPEAT"):
        return f"a loop has one name; the parts of a pair are `{error.before}[0]` and `{error.before}[1]`"
    return ""


def _fixed_dim(error: Mistake) -> str:
    if error.head.type == "DIM" and error.found.type == "ASSIGN" and error.at == error.start + 2:
        return f"a known size is a constant, `{error.before} = ...`; a dim has a range, `in 1..64`"
    return ""


def _call_without_parentheses(error: Mistake) -> str:
    before, two_before = error.before, error.tokens[error.at - 2] if error.at >= 2 else None
    is_word = before is not None and before.type == "NAME" and error.found.type in {*NAMES, "INT", "FLOAT"}
    if not is_word or two_before is None or two_before.type not in ("ASSIGN", "RETURN", "LBRACE", *CONTINUES):
        return ""
    return f"a call has parentheses, `{before}({error.found})`, and statements on one line are separated by `;`"


def _call_in_use(error: Mistake) -> str:
    if error.head.type == "USE" and error.found.type == "LPAR":
        return "hyper-parameters are enclosed in `<...>`; the instance is called later: `y = name(x)`"
    return ""


def _loop(error: Mistake) -> str:
    return "a loop is `repeat i in 0..n { ... }`" if error.head.type in ("REPEAT", "FOR") else ""


def _dangling_operator(error: Mistake) -> str:
    if error.found.type != NEWLINE or error.before is None:
        return ""
    if error.before.type in CONTINUES:
        return f"a statement continues on the next line if that line begins with the operator: `{error.before} ...`"
    if error.before.type == "COMMA":
        return "a list continues on the next line only inside brackets"
    return ""


def _brace_on_next_line(error: Mistake) -> str:
    if error.found.type == NEWLINE and "LBRACE" in error.accepted:
        return "the `{` must be on the same line as the header"
    return ""


def _chained_comparison(error: Mistake) -> str:
    comparisons = {"LESS", "MORE", "AT_MOST", "AT_LEAST", "EQUAL", "DIFFERENT"}
    if error.found.type in comparisons and any(token.type in comparisons for token in error.statement):
        return "comparisons do not chain: `a < b and b < c`"
    return ""


def _block_after_pipe(error: Mistake) -> str:
    if error.found.type == "LESS" and [token.type for token in error.statement[-2:]] == ["PIPE", "NAME"]:
        name = error.before
        return f"a block is called through an instance: `use f = {name}<...>`, and then `x |> f`"
    return ""


def _foreign_comment(error: Mistake) -> str:
    """Recognises `// ...` on a separate line, which continues the line before."""
    for before, token in pairwise(error.statement):
        if token.type == "FLOOR" and token.line == error.found.line and before.line != token.line:
            return "a comment begins with `#`"
    return "a comment begins with `#`" if error.found.type == "FLOOR" and error.at == error.start else ""


def _operator_after_pipe(error: Mistake) -> str:
    if error.found.type in CONTINUES and any(token.type == "PIPE" for token in error.statement):
        return "`|>` has the lowest precedence: use parentheses, `(x |> f) + y`"
    return ""


def _augmented_assignment(error: Mistake) -> str:
    following = error.tokens[error.at + 1 : error.at + 2]
    if error.at != error.start + 1 or error.found.type not in CONTINUES or not following:
        return ""
    return f"write `{error.head} = {error.head} {error.found} ...`" if following[0].type == "ASSIGN" else ""


def _equality(error: Mistake) -> str:
    if error.found.type == "ASSIGN" and error.at > error.start + 1 and (error.ends_here or "ELSE" in error.accepted):
        return "equality is written `==`; assignments do not chain"
    return ""


def _annotation(error: Mistake) -> str:
    if error.found.type == "COLON" and error.at == error.start + 1 and error.head.type in NAMES:
        return "only `param` and the inputs and results of blocks state a type"
    return ""


def _expression_statement(error: Mistake) -> str:
    if (
        error.head.type in NAMES
        and error.construct == "body"
        and error.at == error.start + 1
        and error.found.type in CONTINUES | {"LPAR", "DOT", NEWLINE}
    ):
        return "an unused expression has no effect: `name = ...` or `return ...`"
    return ""


def _two_statements(error: Mistake) -> str:
    if error.ends_here and error.found.type in WORDS:
        return "statements on one line are separated by `;`"
    return ""


_KNOWN_MISTAKES: tuple[Callable[[Mistake], str], ...] = (
    _foreign_comment,
    _misplaced,
    _foreign_word,
    _misspelt_word,
    _file_without_quotes,
    _several_loop_names,
    _fixed_dim,
    _call_in_use,
    _call_without_parentheses,
    _augmented_assignment,
    _dangling_operator,
    _brace_on_next_line,
    _chained_comparison,
    _block_after_pipe,
    _operator_after_pipe,
    _loop,
    _equality,
    _annotation,
    _expression_statement,
    _two_statements,
)


def _help(error: Mistake) -> str:
    return next((text for mistake in _KNOWN_MISTAKES if (text := mistake(error))), "")
