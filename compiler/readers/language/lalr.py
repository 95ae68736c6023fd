"""An LALR parser that is fed tokens one by one, and can be copied at any of them.

It runs lark's tables and lark's tree builders. Most reductions of an expression lead from one level of precedence to
the next and keep the value, so that they only change the state; lark's parser calls several functions for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from lark import Token, Tree
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift
from lark.tree import Meta

from ....dialect.lazy_dataclass import dataclass
from .grammar import grammar

START, END = "file", "$END"
"""The rule of a whole text, and the type of the token after it."""
_Value = Tree[Token] | Token
_Position = tuple[int | None, int | None]


class _Place(Meta):
    """The lines and columns of a tree; `begin` and `end` include brackets around it that are in no tree."""

    def __init__(self, begin: _Position, end: _Position) -> None:
        self.line, self.column = self.begin = begin  # type: ignore[assignment]  # known of all tokens of a text
        self.end_line, self.end_column = self.end = end  # type: ignore[assignment]  # as above
        self.empty = False


_NOWHERE = Meta()  # type: ignore[no-untyped-call]  # unannotated
"""The place of a tree without tokens."""


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A rule: the number of its symbols, and the function that makes a value of theirs; None where one value stays."""

    origin: str
    size: int
    build: Callable[[list[_Value]], _Value] | None


class _Rows(dict[int, dict[str, int | _Reduction]]):
    """For each state, the next state after a symbol, or the rule that ends before a terminal."""

    def __init__(self, lark: Any) -> None:
        super().__init__()
        self.lark = lark
        self.table = self.lark.parser.parser._parse_table
        self.reductions = {rule: self._reduction(rule) for rule in self.lark.rules}
        self.start, self.end = self.table.start_states[START], self.table.end_states[START]

    def _reduction(self, rule: Any) -> _Reduction:
        build, size = self.lark._callbacks[rule], len(rule.expansion)
        return _Reduction(
            str(rule.origin.name), size, None if size == 1 and isinstance(build, ExpandSingleChild) else build
        )

    def __missing__(self, state: int) -> dict[str, int | _Reduction]:
        # A text needs few of the states. lark's names are tokens, which are slower to compare than their text.
        actions = ((str(name), action) for name, action in self.table.states[state].items())
        row = self[state] = {name: at if step is Shift else self.reductions[at] for name, (step, at) in actions}
        return row


_rows = lru_cache(maxsize=1)(_Rows)


class Parser:
    """The states of the parser, and the values of the symbols between them."""

    __slots__ = ("rows", "states", "values")

    def __init__(self) -> None:
        self.rows = _rows(grammar())
        self.states: list[int] = [self.rows.start]
        self.values: list[_Value] = []

    def copy(self) -> Parser:
        made = Parser()
        made.states, made.values = self.states.copy(), self.values.copy()
        return made

    def feed(self, token: Token) -> bool:
        """Takes a token. Returns False where it does not fit; the parser is then before this token."""
        rows, states, values, kind = self.rows, self.states, self.values, token.type
        while True:
            step = rows[states[-1]].get(kind)
            if step is None:
                return False
            if isinstance(step, int):
                states.append(step)
                values.append(token)
                return True
            build, size = step.build, step.size
            if build is None:
                states[-1] = rows[states[-2]][step.origin]  # type: ignore[assignment]  # a rule always leads to a state
                continue
            children: list[_Value] = []
            if size:
                children = values[-size:]
                del values[-size:], states[-size:]
            value = build(children)
            if isinstance(value, Tree):
                _locate(value, children)
            values.append(value)
            states.append(rows[states[-1]][step.origin])  # type: ignore[arg-type]  # as above
            if kind == END and states[-1] == rows.end:
                return True

    def finish(self, last: Token) -> Tree[Token]:
        """Returns the tree of the text that ends with this token."""
        accepted = self.feed(Token.new_borrow_pos(END, "", last))
        tree = self.values[-1]
        assert accepted and isinstance(tree, Tree), tree
        return tree

    def accepts(self) -> frozenset[str]:
        """Returns the types of the tokens that fit here."""
        return frozenset(kind for kind in self.rows[self.states[-1]] if kind.isupper() and self._accepts(kind))

    def _accepts(self, kind: str) -> bool:
        rows, states = self.rows, self.states.copy()
        while not isinstance(step := rows[states[-1]].get(kind), int):
            if step is None:
                return False
            del states[len(states) - step.size :]
            states.append(rows[states[-1]][step.origin])  # type: ignore[arg-type]  # as above
            if kind == END and states[-1] == rows.end:
                return True
        return True


def _locate(tree: Tree[Token], symbols: list[_Value]) -> None:
    """Sets the place of the tree of these symbols. One that a rule has returned as it was keeps its own, and takes the
    room of all symbols."""
    begin, end = _edge(symbols, is_end=False), _edge(reversed(symbols), is_end=True)
    place = tree._meta
    if begin is None or end is None:
        tree._meta = place or _NOWHERE
    elif isinstance(place, _Place):
        place.begin, place.end = begin, end
    else:
        tree._meta = _Place(begin, end)


def _edge(symbols: Iterable[_Value], is_end: bool) -> _Position | None:
    """Returns where the first symbol that has a place begins, or ends."""
    for symbol in symbols:
        if isinstance(symbol, Token):
            return (symbol.end_line, symbol.end_column) if is_end else (symbol.line, symbol.column)
        if isinstance(place := symbol._meta, _Place):
            return place.end if is_end else place.begin
    return None
