"""The lexer and the parser of model text, derived from the grammar in nacre.lark, or loaded from the cache.

The cache holds the objects that lark derives, as a pickle. `Lark.save` writes numbers and names instead, and
`Lark.load` calls a function for each entry of the parse table; this takes more than twice as long.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import lark
from lark import Lark, Token
from lark.common import ParserConf
from lark.grammar import Rule
from lark.parser_frontends import ParsingFrontend
from lark.parsers.lalr_analysis import Action
from lark.parsers.lalr_parser import LALR_Parser, _Parser

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
    own = Path(__file__)
    text = own.with_name("nacre.lark").read_text(encoding="utf-8")
    store, key = Store(object_folder()), _grammar_key(text, own.read_bytes())
    kept = store.get(key)
    grammar = _derived(text) if kept is None else _unpickled(kept)
    if kept is None:
        store.put(key, _pickled(grammar))
    # Otherwise `lex` builds a lexer for every text.
    grammar.lexer = grammar._build_lexer()
    return grammar


def _grammar_key(text: str, code: bytes) -> str:
    """Returns the key of the cached pickle. It depends on the grammar, on this file, and on the versions of lark and
    Python, since the pickle contains private classes of lark."""
    parts = (text, code, lark.__version__, sys.version)
    return f"parser-{hashlib.sha256(repr(parts).encode()).hexdigest()}"


def _derived(text: str) -> Lark:
    return Lark(
        text,
        parser="lalr",
        lexer="basic",
        start="file",
        maybe_placeholders=False,
        postlex=_KeepTrivia(),
    )


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Action):
            return value.name  # a global name; lark compares actions by identity
        if isinstance(value, Rule):
            # A rule keeps its hash, which differs between processes.
            return Rule, (value.origin, value.expansion, value.order, value.alias, value.options)
        if isinstance(value, ModuleType):
            return import_module, (value.__name__,)
        return NotImplemented


def _pickled(grammar: Lark) -> bytes:
    file = BytesIO()
    table = grammar.parser.parser._parse_table
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump((grammar.options, grammar.rules, grammar.lexer_conf, table))
    return file.getvalue()


def _unpickled(data: bytes) -> Lark:
    """Restores a grammar from its pickle, as `Lark._load` restores a saved one."""
    grammar = Lark.__new__(Lark)
    grammar.options, grammar.rules, grammar.lexer_conf, table = pickle.loads(data)
    grammar.lexer_conf.skip_validation = True  # its expressions were tried one by one when it was derived
    grammar.terminals = grammar.lexer_conf.terminals
    grammar._terminals_dict = {terminal.name: terminal for terminal in grammar.terminals}
    grammar._prepare_callbacks()
    parser = LALR_Parser.__new__(LALR_Parser)
    parser._parse_table, parser.parser = table, _Parser(table, grammar._callbacks)
    configuration = ParserConf(grammar.rules, grammar._callbacks, grammar.options.start)
    configuration.parser_type = grammar.options.parser
    grammar.parser = ParsingFrontend(grammar.lexer_conf, configuration, grammar.options, parser=parser)
    return grammar
