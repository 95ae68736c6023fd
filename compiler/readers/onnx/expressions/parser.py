"""Regular expressions in the syntax of RE2, compiled to automata over the bytes of UTF-8.

    a(b|c)+     parse        ->  concat(a, repeat(choice(b, c), 1, many))
                automata.py  ->  a table of states by classes of bytes

`\\b`, `\\d`, `\\s` and `\\w` know ASCII, as in RE2. Flags, `\\C` and classes of Unicode such as `\\pL` are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from .automata import Automaton, build_automaton
from .tree import (
    Choice,
    Chosen,
    ExpressionError,
    Join,
    Repeat,
    Tree,
    Where,
    complement,
    ranges_of,
)

__all__ = ["ExpressionError", "compile_expression"]

_MOST_REPEATS = 1000
_DEEPEST = 100
_DIGITS, _SPACES = ((48, 57),), ((9, 10), (12, 13), (32, 32))
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_CLASSES = {"d": _DIGITS, "s": _SPACES, "w": _WORD}
_NAMED = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS = {"A": Where.START, "b": Where.BOUNDARY, "B": Where.INSIDE, "z": Where.END}


def compile_expression(pattern: str) -> Automaton:
    """Returns the automaton that accepts the strings that a pattern matches as a whole. Raises ExpressionError."""
    parser = _Parser(pattern)
    tree = parser.choice(0)
    if parser.position < len(pattern):
        raise ExpressionError(f"unexpected `{pattern[parser.position]}` at character {parser.position}")
    return build_automaton(tree)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def _peek(self, expected: str) -> bool:
        return self.text.startswith(expected, self.position)

    def _take(self, expected: str) -> bool:
        found = self._peek(expected)
        self.position += len(expected) if found else 0
        return found

    def _next(self) -> str:
        if self.position >= len(self.text):
            raise ExpressionError("the pattern ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def choice(self, depth: int) -> Tree:
        if depth > _DEEPEST:
            raise ExpressionError(f"groups are nested more than {_DEEPEST} deep")
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Tree:
        parts: list[Tree] = []
        while self.position < len(self.text) and not self._peek("|") and not self._peek(")"):
            parts.append(self._repeated(self._atom(depth)))
        return Join(tuple(parts))

    def _repeated(self, tree: Tree) -> Tree:
        times = 0
        while (bounds := self._bounds()) is not None:
            times += 1
            if times > 1:
                raise ExpressionError(f"a repetition is repeated at character {self.position - 1}")
            tree = Repeat(tree, *bounds)
            self._take("?")  # the shortest match; the string is matched as a whole in any case
        return tree

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        stop = self.text.find("}", self.position)
        if not self._peek("{") or stop < 0:
            return None
        low, comma, high = self.text[self.position + 1 : stop].partition(",")
        if not (low.isascii() and low.isdigit()) or not (high == "" or (high.isascii() and high.isdigit())):
            return None  # `{` without numbers is a character
        self.position = stop + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > _MOST_REPEATS or (most is not None and not least <= most <= _MOST_REPEATS):
            raise ExpressionError(f"has a bad repetition {{{low}{comma}{high}}}")
        return least, most

    def _atom(self, depth: int) -> Tree:
        sign = self._next()
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return self._brackets()
        if sign == ".":
            return Chosen(complement(((10, 10),)))
        if sign in "^$":
            return Where.START if sign == "^" else Where.END
        if sign in "*+?":
            raise ExpressionError(f"nothing to repeat at character {self.position - 1}")
        if sign == "\\":
            if self.text[self.position : self.position + 1] in _ASSERTIONS:
                return _ASSERTIONS[self._next()]
            return Chosen(self._escape())
        return Chosen(((ord(sign), ord(sign)),))

    def _group(self, depth: int) -> Tree:
        start = self.position
        if self._take("?"):
            named = self._take("P<") or (not self._peek("<=") and not self._peek("<!") and self._take("<"))
            if named:
                stop = self.text.find(">", self.position)
                if stop < 0:
                    raise ExpressionError("the name of a group does not end")
                self.position = stop + 1
            elif not self._take(":"):
                raise ExpressionError(f"the group at character {start - 1} has flags or looks around")
        tree = self.choice(depth + 1)
        if not self._take(")"):
            raise ExpressionError(f"the group at character {start - 1} does not end")
        return tree

    def _escape(self) -> tuple[tuple[int, int], ...]:
        sign = self._next()
        if sign.lower() in _CLASSES:
            ranges = _CLASSES[sign.lower()]
            return ranges if sign.islower() else complement(ranges)
        if sign in _CONTROLS:
            return ((_CONTROLS[sign], _CONTROLS[sign]),)
        if sign == "x":
            return self._hexadecimal()
        if sign.isascii() and sign.isalnum():
            raise ExpressionError(f"`\\{sign}` is not supported")
        return ((ord(sign), ord(sign)),)

    def _hexadecimal(self) -> tuple[tuple[int, int], ...]:
        if self._take("{"):
            stop = self.text.find("}", self.position)
            digits, self.position = self.text[self.position : max(stop, self.position)], stop + 1
        else:
            digits, self.position = self.text[self.position : self.position + 2], self.position + 2
        try:
            code = int(digits, 16) if digits.isalnum() and digits.isascii() else -1
        except ValueError:
            code = -1
        if not 0 <= code <= 0x10FFFF:
            raise ExpressionError(f"`\\x{digits}` is not a character")
        return ((code, code),)

    def _brackets(self) -> Tree:
        inverted = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            first = False
            if self._peek("[:"):
                ranges += self._named_class()
                continue
            low = self._member()
            if len(low) == 1 and low[0][0] == low[0][1] and self._peek("-") and not self._peek("-]"):
                self._take("-")
                high = self._member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise ExpressionError(f"has a bad range at character {self.position - 1}")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        found = ranges_of(ranges)
        return Chosen(complement(found) if inverted else found)

    def _member(self) -> Sequence[tuple[int, int]]:
        sign = self._next()
        return self._escape() if sign == "\\" else ((ord(sign), ord(sign)),)

    def _named_class(self) -> Sequence[tuple[int, int]]:
        stop = self.text.find(":]", self.position + 2)
        name = self.text[self.position + 2 : max(stop, self.position + 2)]
        ranges = _NAMED.get(name.removeprefix("^"))
        if stop < 0 or ranges is None:
            raise ExpressionError(f"`[:{name}:]` is not a class of characters")
        self.position = stop + 2
        return complement(ranges) if name.startswith("^") else ranges
