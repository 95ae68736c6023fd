"""Locations in MLIR's text: source locations of a model are kept, those of our own texts are removed.

MLIR names our own texts `-`, and operations created by its passes have no location.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BEGIN = re.compile(r' loc\((?=["@\w#])')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')
_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":\d+:\d+')


def keep_source_locations(text: str) -> str:
    """Returns the text of a module that was printed with all locations, with only the source locations of models."""
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    position = 0
    for match in _BEGIN.finditer(text):
        if match.start() < position:
            continue  # inside of a string, or of a location
        end = _closing(text, match.end())
        yield text[position : match.start()]
        locations = [location[0] for location in _LOCATION.finditer(text, match.end(), end) if location[1] != "-"]
        if locations:
            # The first of several, as for an inlined function, is the location of the operation itself.
            yield f" loc({locations[0]})"
        position = end
    yield text[position:]


def _closing(text: str, position: int) -> int:
    """Returns the index after the closing bracket of the one that is open at the position."""
    depth = 1
    for token in _TOKEN.finditer(text, position):
        depth += {"(": 1, ")": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    raise AssertionError(text[position : position + 200])
