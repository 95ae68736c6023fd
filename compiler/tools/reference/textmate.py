"""Writes the TextMate grammar of the language, from its words, dtypes and functions:
`python -m nacre.compiler.tools.reference.textmate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lark.lexer import PatternStr

from ....dialect.types import BLOCK_DTYPES, DTYPES
from ...readers.language.grammar import grammar
from ...readers.language.tokens import WORDS
from ...readers.language.unknown import FUNCTIONS

FILE = Path(__file__).parents[1] / "language_server" / "vscode" / "syntaxes" / "nacre.tmLanguage.json"

_CONSTANTS = ("true", "false", "None")
_OPERATORS = ("and", "or", "not", "in")


def words() -> list[str]:
    """Returns every word of the language."""
    terminals = (t for t in grammar().terminals if t.name in WORDS)
    return sorted(t.pattern.value for t in terminals if isinstance(t.pattern, PatternStr))


def format_grammar() -> str:
    """Returns the grammar as JSON."""
    dtypes = sorted({*DTYPES, *(name.partition("[")[0] for name in BLOCK_DTYPES)})
    keywords = [word for word in words() if word not in (*_CONSTANTS, *_OPERATORS)]
    patterns: list[dict[str, Any]] = [
        {"name": "comment.line.number-sign.nacre", "match": "#.*$"},
        {
            "name": "string.quoted.double.nacre",
            "begin": '"',
            "end": '"|$',
            "patterns": [
                {"name": "constant.character.escape.nacre", "match": r"\\."},
                {"name": "variable.parameter.nacre", "match": r"\{[^{}\"]*\}"},
            ],
        },
        {
            "match": r"\b(block|model)\s+([A-Za-z_]\w*)",
            "captures": {"1": {"name": "keyword.control.nacre"}, "2": {"name": "entity.name.type.nacre"}},
        },
        {"name": "constant.numeric.nacre", "match": r"\b\d[\d_]*(\.\d[\d_]*)?([eE][+-]?\d+)?"},
        {"name": "variable.other.member.nacre", "match": r"(?<=\.)[A-Za-z_]\w*"},
        {"name": "constant.language.nacre", "match": _any(_CONSTANTS)},
        {"name": "storage.type.nacre", "match": _any(dtypes)},
        {"name": "keyword.operator.word.nacre", "match": _any(_OPERATORS)},
        {"name": "support.function.nacre", "match": _any(sorted(FUNCTIONS)) + r"(?=\s*\()"},
        {"name": "keyword.control.nacre", "match": _any(keywords) + r"(?!\s*[=(.:,)\]])"},
        {"name": "keyword.operator.nacre", "match": r"\|>|->|\.\.\.?|//|\*\*|[<>=!]=|[-+*/%@=<>]"},
    ]
    content = {"name": "Nacre", "scopeName": "source.nacre", "fileTypes": ["nacre"], "patterns": patterns}
    return json.dumps(content, indent=2) + "\n"


def _any(names: Iterable[str]) -> str:
    return rf"\b({'|'.join(names)})\b"


def main() -> None:
    FILE.write_text(format_grammar(), encoding="utf-8")


if __name__ == "__main__":
    main()
