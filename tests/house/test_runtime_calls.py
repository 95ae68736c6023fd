"""The C sources of the runtime call one another in one direction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

RUNTIME = Path(__file__).parents[2] / "runtime"

_WORDS = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"'
_DEFINED = r"^(?!static|typedef|else|return)\w[\w \*]*?\b(nacre_\w+)\([^;{]*\)\s*\{"

Calls = Mapping[str, Set[str]]


def calls(texts: Mapping[str, str]) -> Calls:
    """Returns the files with functions that each file names and does not define."""
    bare = {name: re.sub(_WORDS, "", text, flags=re.DOTALL) for name, text in texts.items()}
    defined = {name: set(re.findall(_DEFINED, text, re.MULTILINE)) for name, text in bare.items()}
    used = {name: set(re.findall(r"\bnacre_\w+", text)) - defined[name] for name, text in bare.items()}
    return {name: {other for other in texts if used[name] & defined[other]} for name in texts}


def circles(found: Calls) -> set[frozenset[str]]:
    """Returns the sets of files that reach one another, without single files."""

    @cache
    def reached(start: str) -> frozenset[str]:
        seen, open_ = set[str](), [start]
        while open_:
            for other in found[open_.pop()] - seen:
                seen.add(other)
                open_.append(other)
        return frozenset(seen)

    sets = {frozenset(b for b in reached(a) if a in reached(b)) for a in found}
    return {one for one in sets if len(one) > 1}


def test_files_call_in_one_direction() -> None:
    sources = {str(path.relative_to(RUNTIME)): path.read_text(encoding="utf-8") for path in RUNTIME.rglob("*.c")}
    found = calls(sources)
    assert "error.c" in found["state.c"] and len(sources) > 20, "the calls were not found"
    assert circles(found) == set()


def test_a_circle_is_found() -> None:
    a = "int nacre_a(void) { return nacre_b(); }"
    b = "static int own(void) { return 1; }\nint nacre_b(void) { return own(); } /* nacre_a() */"
    assert circles(calls({"a.c": a, "b.c": b})) == set()
    assert circles(calls({"a.c": a, "b.c": b.replace("own(); }", "nacre_a(); }")})) == {frozenset({"a.c", "b.c"})}
