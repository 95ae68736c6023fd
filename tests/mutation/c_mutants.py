"""Small faults in C code, found by tokens: comparisons, numbers off by one, operators, dropped statements."""

from __future__ import annotations

import re

from python_mutants import Mutant

_SKIPPED = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|^[ \t]*#(?:\\\n|[^\n])*'
_TOKENS = {
    "comparison": r"(?<=[\w)\]] )(?:<=|>=|==|!=|<|>)(?= )",
    "operator": r"(?<=[\w)\]] )(?:&&|\|\||\+|-|%)(?= )",
    "off-by-one": r"(?<![\w.])\d+(?![\w.])",
    "statement": r"(?<=[;{}\n])[ \t]*(?:\w+\([^;{}]*\)|[\w.>-]+(?:\+\+|--| [+-]?= [^;{}]*));",
    "condition": r"(?<=\bif )\([^;{}\n]*?\)(?= (?:return|continue|break|\w+[ (]))",
}
_PATTERNS = {
    kind: re.compile(f"(?P<skipped>{_SKIPPED})|{pattern}", re.DOTALL | re.MULTILINE)
    for kind, pattern in _TOKENS.items()
}
_OTHER = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "%": "+",
}


def find_mutants(text: str) -> list[Mutant]:
    """Returns the mutants of a C file. Some may not compile."""
    found = []
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            if match["skipped"]:
                continue
            token = match[0]
            start = len(text[: match.start()].encode())
            line = text.count("\n", 0, match.start() + len(token) - len(token.lstrip())) + 1
            found.append(Mutant(kind, line, start, start + len(token.encode()), _changed(kind, token)))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.kind))


def _changed(kind: str, token: str) -> str:
    if kind == "off-by-one":
        return str(int(token) + 1)
    if kind == "statement":
        return token[: len(token) - len(token.lstrip())] + ";"
    if kind == "condition":
        return f"(!{token})"
    return _OTHER[token]
