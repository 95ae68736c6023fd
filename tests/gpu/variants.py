"""Variants of a PTX module in one C source: the C compiler translates common statements once.

Each variant replaces or removes statements of the module. The variable `nacre_variant` chooses at run time: 0 is the
module itself, and n its nth variant.

    if (nacre_variant == 2) { R->r[3] = R->r[4]; } else {   { R->r[3] = R->r[4] + R->r[5]; } }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count

from ptx_to_c import translate

VARIANT = "nacre_variant"
_PLACE = re.compile(r"(?<=R->place = )\d+(; return \w+; case )\d+:")


def translate_variants(ptx: str, variants: Sequence[str]) -> str:
    """Returns the C source of a module and its variants. A variant has the registers and labels of the module."""
    lines = _lines(ptx)
    others: list[dict[str, list[int]]] = [{} for _ in lines]
    for number, variant in enumerate(variants, 1):
        for line, other in _differences(lines, _lines(variant)):
            others[line].setdefault(other, []).append(number)
    places = count(1)

    def number_place(match: re.Match[str]) -> str:
        place = next(places)
        return f"{place}{match[1]}{place}:"

    text = "\n".join(map(_choose, lines, others)).replace("\n", f"\nint {VARIANT};\n", 1)
    return _PLACE.sub(number_place, text)


def _lines(ptx: str) -> list[str]:
    """Returns the lines of a translation, in which all places where a thread waits have the number 0."""
    return _PLACE.sub(r"0\g<1>0:", translate(ptx)).split("\n")


def _differences(lines: Sequence[str], changed: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields the numbers of lines that differ, each with the changed line: none if it was removed."""
    at, removed = 0, len(lines) - len(changed)
    for number, line in enumerate(lines):
        if at < len(changed) and changed[at] == line:
            at += 1
        elif removed and (at == len(changed) or lines[number + 1] == changed[at]):
            removed -= 1
            yield number, ""
        else:
            yield number, changed[at]
            at += 1
    assert removed == 0 and at == len(changed), "statements were added"


def _choose(line: str, others: dict[str, list[int]]) -> str:
    tests = {other: " || ".join(f"{VARIANT} == {n}" for n in numbers) for other, numbers in others.items()}
    return "".join(f"  if ({test}) {{ {other} }} else {{ " for other, test in tests.items()) + line + " }" * len(tests)
