"""The lexer and the parser of model text, derived from the grammar in nacre.lark, or loaded from the cache."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib import resources
from io import BytesIO

import lark
from lark import Lark, Token

from ...base.cache_folder import object_folder
from ...base.store import Store


class _KeepTrivia:
    """Makes lark keep terminals that no rule mentions."""

    always_accept = ("COMMENT", "UNCLOSED_STRING", "SINGLE_QUOTES", "STRANGE")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def grammar() -> Lark:
    """Returns the lexer and the parser. Their tables are cached: deriving them takes longer than most other imports."""
    text = resources.files(__package__).joinpath("nacre.lark").read_text(encoding="utf-8")
    store, key = Store(object_folder()), _grammar_key(text)
    kept = store.get(key)
    grammar = _derived(text) if kept is None else Lark.load(BytesIO(kept))
    if kept is None:
        file = BytesIO()
        grammar.save(file)
        store.put(key, file.getvalue())
    # Otherwise `lex` builds a lexer for every text.
    grammar.lexer = grammar._build_lexer()
    return grammar


def _grammar_key(text: str) -> str:
    parts = (text, lark.__version__, sys.version)
    return f"grammar-{hashlib.sha256(repr(parts).encode()).hexdigest()}"


def _derived(text: str) -> Lark:
    return Lark(
        text,
        parser="lalr",
        lexer="basic",
        start="file",
        propagate_positions=True,
        maybe_placeholders=False,
        postlex=_KeepTrivia(),
    )
