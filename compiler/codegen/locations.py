"""Where an operation comes from, in MLIR's text: places in the source of a model stay, those in texts of ours go.

A text of ours is known to MLIR as the file `-`, and what its passes make has no place at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BEGIN = re.compile(r' loc\((?=["@\w#])')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":\d+:\d+')


def keep_source_locations(text: str) -> str:
    """The text of a module that was printed with all locations."""
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    position = 0
    for match in _BEGIN.finditer(text):
        if match.start() < position:
            continue  # inside of a string, or of a location
        end = _closing(text, match.end())
        yield text[position : match.start()]
        places = [place[0] for place in _PLACE.finditer(text, match.end(), end) if place[1] != "-"]
        if places:
            # Of several, as where a function was inlined, the first is where the operation was written.
            yield f" loc({places[0]})"
        position = end
    yield text[position:]


def _closing(text: str, position: int) -> int:
    """Where the bracket that is open at the position has been closed."""
    depth = 1
    for token in _TOKEN.finditer(text, position):
        depth += {"(": 1, ")": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    raise AssertionError(text[position : position + 200])
