"""Probes: calls in the product that record which mutants a test reaches, without changing what is computed.

    a = b < c        a = (infected(7, lambda: (b < c), lambda: (b <= c)))
    if ready:        if (reached(8) or (ready)):
    f(x)             reached(9); f(x)

A probe of a comparison or an operator evaluates both sides, and records whether they ever differ: a test in which they
do not differ cannot notice the mutant. Other mutants differ wherever they are reached.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from python_mutants import Mutant

HEADER = "from reached import infected as _infected, reached as _reached"
_IMPURE = (
    "pop",
    "next",
    "read",
    "append",
    "add",
    "write",
    "take",
    "yield",
    "await",
    ":=",
    "run",
    "send",
    "recv",
    "emit",
)


def insert_probes(text: str, mutants: Sequence[tuple[int, Mutant]]) -> tuple[str, set[int]]:
    """Returns the text with a probe for each numbered mutant, and the numbers of mutants that could not have one."""
    if _parses(probed := _with_probes(text, mutants)):
        return probed, set()
    placed: list[tuple[int, Mutant]] = []
    left: set[int] = set()
    for number, mutant in mutants:
        if _parses(_with_probes(text, [*placed, (number, mutant)])):
            placed.append((number, mutant))
        else:
            left.add(number)
    return _with_probes(text, placed), left


def _with_probes(text: str, mutants: Sequence[tuple[int, Mutant]]) -> str:
    data = text.encode()
    outermost_first = sorted(mutants, key=lambda each: (each[1].start, -each[1].end))
    return _with_header(_probed(data, 0, len(data), outermost_first).decode())


def _probed(data: bytes, start: int, end: int, mutants: Sequence[tuple[int, Mutant]]) -> bytes:
    result, position, left = b"", start, list(mutants)
    while left:
        number, mutant = left.pop(0)
        inner = [each for each in left if each[1].end <= mutant.end]
        left = [each for each in left if each[1].end > mutant.end]
        original = _probed(data, mutant.start, mutant.end, inner)
        result += data[position : mutant.start] + _probe(number, mutant, original)
        position = mutant.end
    return result + data[position:end]


def _probe(number: int, mutant: Mutant, original: bytes) -> bytes:
    if mutant.kind == "statement":
        return b"_reached(%d); %s" % (number, original)
    if mutant.kind not in ("comparison", "operator", "operands") or any(word in mutant.replacement for word in _IMPURE):
        return b"(_reached(%d) or (%s))" % (number, original)
    return b"(_infected(%d, lambda: (%s), lambda: (%s)))" % (number, original, mutant.replacement.encode())


def _with_header(text: str) -> str:
    """The line of the first statement after the docstring and the imports of features."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return text
    first = [
        node
        for node in body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    lines = text.splitlines(keepends=True)
    at = first[0].lineno - 1 if first else len(lines)
    if first and isinstance(first[0], ast.ClassDef | ast.FunctionDef) and first[0].decorator_list:
        at = first[0].decorator_list[0].lineno - 1
    return "".join([*lines[:at], HEADER + "\n", *lines[at:]])


def _parses(text: str) -> bool:
    try:
        compile(text, "probed", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
